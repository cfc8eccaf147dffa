"""Traces kept in memory."""

from collections.abc import Iterator
from typing import Any

from opentelemetry import trace


class KeptSpan(trace.NonRecordingSpan):
    """A span that remembers what was said of it."""

    def __init__(self, name: str, attributes: Any) -> None:
        super().__init__(trace.INVALID_SPAN_CONTEXT)
        self.name = name
        self.attributes: dict[str, Any] = dict(attributes or {})
        self.ended = False

    def set_attribute(self, key: str, value: Any) -> None:
        self.attributes[key] = value

    def set_attributes(self, attributes: Any) -> None:
        self.attributes.update(attributes)

    def end(self, end_time: int | None = None) -> None:
        self.ended = True


class KeptTraces(trace.TracerProvider, trace.Tracer):
    """The tracers of a process, in whose spans a test may look."""

    def __init__(self) -> None:
        self.spans: list[KeptSpan] = []

    def get_tracer(self, *_: Any, **__: Any) -> trace.Tracer:
        return self

    def start_span(self, name: str, *_: Any, attributes: Any = None, **__: Any) -> KeptSpan:
        span = KeptSpan(name, attributes)
        self.spans.append(span)
        return span

    def start_as_current_span(self, *_: Any, **__: Any) -> Iterator[trace.Span]:  # type: ignore[override]  # nobody here asks for it
        raise NotImplementedError

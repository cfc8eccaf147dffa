"""Records spans in memory."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from services.common.rpc_telemetry import RecordTracerProvider


class RecordedTraces(InMemorySpanExporter):
    """Finished spans."""

    def __init__(self) -> None:
        super().__init__()
        self._more = asyncio.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self._more.set()
        return super().export(spans)

    async def ended(self, name: str, count: int) -> list[ReadableSpan]:
        """Waits for `count` finished spans of a name and returns them."""
        while len(matching := [span for span in self.get_finished_spans() if span.name == name]) < count:
            self._more.clear()
            await self._more.wait()
        return matching


@contextmanager
def record_traces() -> Iterator[RecordedTraces]:
    """Records the spans of tracers used within the block."""
    recorded, traces, before = RecordedTraces(), RecordTracerProvider(), trace._TRACER_PROVIDER
    traces.add_span_processor(SimpleSpanProcessor(recorded))
    trace._TRACER_PROVIDER = traces
    try:
        yield recorded
    finally:
        trace._TRACER_PROVIDER = before
        traces.shutdown()

"""Structured logging to standard error: one event per line, with request, run and trace ids."""

import logging
import sys

import structlog
from opentelemetry import trace

from services.common import call_context

_OWN_PACKAGES = ("services", "gateway", "experts")
"""Packages whose DEBUG events are logged; those of libraries contain complete prompts."""


def setup(service: str, *, level: str = "INFO", style: str = "json") -> None:
    """Configures structlog and the standard library's logging for this process.

    Args:
        service: the service field of every event.
        level: DEBUG, INFO, WARNING or ERROR.
        style: "json" for machines, "pretty" for terminals.
    """
    shared = (_add_service(service), *_SHARED)
    renderers: list[structlog.typing.Processor] = (
        [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback)]
        if style == "pretty"
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderers],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(max(logging.getLevelNamesMapping()[level], logging.INFO))
    for package in _OWN_PACKAGES:
        logging.getLogger(package).setLevel(level)
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level]),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )


def _add_caller(_: object, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    caller = call_context.current()
    for name in ("request_id", "run_id"):
        if value := getattr(caller, name):
            event.setdefault(name, value)
    return event


def _add_trace(_: object, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    span = trace.get_current_span().get_span_context()
    if span.is_valid:
        event["trace_id"] = trace.format_trace_id(span.trace_id)
        event["span_id"] = trace.format_span_id(span.span_id)
    return event


def _add_service(service: str) -> structlog.typing.Processor:
    """A processor rather than a context variable, because threads and libraries' tasks do not inherit the latter."""

    def add(_: object, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        event.setdefault("service", service)
        return event

    return add


_SHARED: tuple[structlog.typing.Processor, ...] = (
    structlog.contextvars.merge_contextvars,
    _add_caller,
    _add_trace,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.ExtraAdder(),
    structlog.processors.TimeStamper(fmt="iso", utc=True),
)

"""Logs: one structured line per fact on standard error, with request, run and trace id."""

import logging
import sys

import structlog
from opentelemetry import trace

from services.common import call_context


def _for_the_caller(_: object, __: str, line: structlog.typing.EventDict) -> structlog.typing.EventDict:
    acting_for = call_context.current()
    for name in ("request_id", "run_id"):
        if value := getattr(acting_for, name):
            line.setdefault(name, value)
    return line


def _within_trace(_: object, __: str, line: structlog.typing.EventDict) -> structlog.typing.EventDict:
    span = trace.get_current_span().get_span_context()
    if span.is_valid:
        line["trace_id"] = trace.format_trace_id(span.trace_id)
        line["span_id"] = trace.format_span_id(span.span_id)
    return line


def _of(service: str) -> structlog.typing.Processor:
    """Whose line it is, also of one that is logged in a thread or by a library's task."""

    def named(_: object, __: str, line: structlog.typing.EventDict) -> structlog.typing.EventDict:
        line.setdefault("service", service)
        return line

    return named


_SHARED: tuple[structlog.typing.Processor, ...] = (
    structlog.contextvars.merge_contextvars,
    _for_the_caller,
    _within_trace,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.ExtraAdder(),
    structlog.processors.TimeStamper(fmt="iso", utc=True),
)


_ROOMS = ("services", "gateway", "experts")
"""Whose lines of debugging are shown: those of libraries have whole prompts in them."""


def setup(service: str, *, level: str = "INFO", style: str = "json") -> None:
    """Sends all logs of this process to standard error.

    Args:
        service: stands in every line.
        level: DEBUG, INFO, WARNING or ERROR.
        style: "json" for machines, "pretty" for people.
    """
    shared = (_of(service), *_SHARED)
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
    for room in _ROOMS:
        logging.getLogger(room).setLevel(level)
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level]),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )

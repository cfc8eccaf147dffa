import contextvars
import json
import logging
from collections.abc import Iterator

import pytest
import structlog
from opentelemetry import trace

from protos.hugginggpt.v1.caller_pb2 import Caller
from services.common import call_context
from services.common import logging as logging_module


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    root.handlers, root.level = handlers, level
    for package in ("services", "gateway", "experts"):
        logging.getLogger(package).setLevel(logging.NOTSET)
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_event_has_service_request_and_run(capsys: pytest.CaptureFixture[str]) -> None:
    logging_module.setup("planner")
    with call_context.use_caller(Caller(request_id="r-1", run_id="run_1")):
        structlog.get_logger("somewhere").info("planned", tasks=3)
    (line,) = lines(capsys)
    assert line.pop("timestamp")
    assert line == {
        "event": "planned",
        "level": "info",
        "logger": "somewhere",
        "request_id": "r-1",
        "run_id": "run_1",
        "service": "planner",
        "tasks": 3,
    }


def test_event_has_the_service_in_threads_and_foreign_tasks(capsys: pytest.CaptureFixture[str]) -> None:
    before = contextvars.copy_context()
    logging_module.setup("planner")
    before.run(structlog.get_logger("somewhere").info, "planned")
    (line,) = lines(capsys)
    assert line["service"] == "planner"


def test_event_within_a_span_has_its_trace_id(capsys: pytest.CaptureFixture[str]) -> None:
    logging_module.setup("planner")
    with trace.use_span(trace.NonRecordingSpan(trace.SpanContext(0xAB, 0xCD, is_remote=True))):
        structlog.get_logger("somewhere").info("planned")
        logging.getLogger("library").warning("beware")
    assert {(line["trace_id"], line["span_id"]) for line in lines(capsys)} == {(f"{0xAB:032x}", f"{0xCD:016x}")}


def test_events_of_libraries_have_the_same_format(capsys: pytest.CaptureFixture[str]) -> None:
    logging_module.setup("planner", level="WARNING")
    logging.getLogger("library").warning("beware of %s", "this")
    logging.getLogger("library").info("not said")
    (line,) = lines(capsys)
    assert line["event"] == "beware of this"
    assert line["logger"] == "library"
    assert line["service"] == "planner"


def test_debug_level_applies_to_own_packages_only(capsys: pytest.CaptureFixture[str]) -> None:
    logging_module.setup("planner", level="DEBUG")
    logging.getLogger("openai._base_client").debug("a whole prompt")
    structlog.get_logger("services.planner").debug("a fact")
    assert [line["event"] for line in lines(capsys)] == ["a fact"]


@pytest.mark.parametrize("style", ["json", "pretty"])
def test_traceback_contains_no_local_variables(capsys: pytest.CaptureFixture[str], style: str) -> None:
    logging_module.setup("planner", style=style)
    secret = "hunter" + str(2)
    try:
        int(secret == "") / 0
    except ZeroDivisionError:
        structlog.get_logger("somewhere").exception("it broke")
    output = capsys.readouterr().err
    assert "ZeroDivisionError" in output
    assert secret not in output


def test_pretty_style_is_readable(capsys: pytest.CaptureFixture[str]) -> None:
    logging_module.setup("planner", style="pretty")
    structlog.get_logger("somewhere").info("planned", tasks=3)
    assert "planned" in capsys.readouterr().err

import re
import signal
from collections.abc import Iterator, Sequence
from functools import partial
from io import BytesIO, StringIO, TextIOWrapper
from typing import Any

import pytest
from rich.console import Console
from rich.text import Text

from gateway.cli.live_view import LineView, LiveTable
from gateway.cli.run_progress import RunProgress
from gateway.cli.terminal import one_line, print_row, printable
from gateway.cli.up import LogPrinter, SignalHandler, log_line
from gateway.client import Event

PLANNED = {"task_id": 1, "task_planned": {"task": {"id": 1, "task": "image-to-text"}}}
STARTED = {"task_id": 1, "attempt": 1, "task_started": {"by": {"model_id": "rapidocr", "expert": "lite"}}}
AGAIN = {**STARTED, "attempt": 2}
FAILURE = {"reason": "MODEL_FAILED", "message": "the model broke"}


def ended(state: str, **result: Any) -> dict[str, Any]:
    return {"task_id": 1, "task_ended": {"state": state, "result": result}}


def drawn(events: Sequence[dict[str, Any]], encoding: str = "utf-8") -> list[str]:
    """Lines of the live table after the events, with * for the spinner."""
    out = TextIOWrapper(BytesIO(), encoding=encoding)
    console = Console(file=out, width=120)
    table, progress = LiveTable(console), RunProgress()
    for number, event in enumerate(events, start=1):
        document = {"run_id": "r", "sequence": number, "time": f"2030-01-01T00:00:{number:02}Z", **event}
        applied = Event.of(document)
        progress.apply(applied)
        table.show(progress, applied.kind, applied.task_id)
    console.print(table._render())
    out.seek(0)
    still = re.sub("[\u2800-\u28ff]", "*", out.read())
    return [" ".join(line.split()) for line in still.splitlines() if line.strip()]


@pytest.mark.parametrize(
    ("events", "row"),
    [
        ([PLANNED], "· 1 image-to-text"),
        ([PLANNED, {"task_id": 1, "task_waiting": {"reason": "lite wakes"}}], "… 1 image-to-text lite wakes"),
        ([PLANNED, STARTED, ended("succeeded")], "✓ 1 image-to-text rapidocr 1.00 s"),
        ([PLANNED, ended("reused")], "✓ 1 image-to-text"),
        ([PLANNED, STARTED, AGAIN, ended("succeeded", attempt=2)], "✓ 1 image-to-text rapidocr 2.00 s attempt 2"),
        (
            [PLANNED, STARTED, ended("failed", failure=FAILURE)],
            "✗ 1 image-to-text rapidocr 1.00 s (the model broke)",
        ),
        ([PLANNED, ended("skipped")], "– 1 image-to-text"),
    ],
)
def test_each_task_has_a_row_with_its_state(events: list[dict[str, Any]], row: str) -> None:
    assert drawn(events)[0] == row


def test_running_task_shows_progress() -> None:
    (row, *_) = drawn([PLANNED, STARTED, {"task_id": 1, "task_progress": {"fraction": 0.25, "message": "page 1"}}])
    assert re.fullmatch(r"\* 1 image-to-text rapidocr \d+\.\d\d s 25% page 1", row)


def test_last_line_shows_active_step() -> None:
    completed: dict[str, Any] = {"plan_completed": {"tasks": 1}}
    document = [PLANNED, completed, {"answer_chunk": {"text": "It"}}, {"run_ended": {"state": "completed"}}]
    lasts = [drawn(document[:count])[-1] for count in range(1, 5)]
    assert lasts == ["* planning", "· 1 image-to-text", "* answering", "· 1 image-to-text"]


def test_notes_are_above_tasks() -> None:
    assert drawn([{"plan_note": {"text": "nothing bakes cakes"}}, PLANNED])[0] == "nothing bakes cakes"


WRITTEN = {"controller": "llm", "llm_model": "small"}
NO_KEY = {"llm_model": "small", "fell_back_because": "the LLM small refuses the key"}
FELL_BACK = {"plan_note": {"kind": "fell_back", "text": "This was planned without it: the LLM small refuses the key."}}


@pytest.mark.parametrize(
    ("events", "text"),
    [
        ([{"plan_completed": {"decision": WRITTEN}}], ["planned by the LLM small"]),
        ([{"plan_completed": {"decision": {"controller": "embedded"}}}], ["planned by the embedded planner"]),
        ([{"plan_completed": {"decision": {"controller": "supplied"}}}], ["planned by the client"]),
        ([{"plan_completed": {"decision": {"reason": "the plan may lack tasks"}}}], ["the plan may lack tasks"]),
        (
            [FELL_BACK, {"plan_completed": {"decision": {"controller": "embedded", **NO_KEY}}}],
            ["planned by the embedded planner: the LLM small refuses the key"],
        ),
        (
            [PLANNED, FELL_BACK, {"plan_completed": {"decision": {"controller": "embedded", **NO_KEY}}}],
            [
                "· 1 image-to-text",
                "planned first by the LLM small, then by the embedded planner: the LLM small refuses the key",
            ],
        ),
        (
            [
                PLANNED,
                {"task_id": 1, "task_selected": {"candidates": [{}], "decision": {"controller": "rank", **NO_KEY}}},
            ],
            ["· 1 image-to-text chosen by rank: the LLM small refuses the key"],
        ),
        (
            [{"answer_chunk": {"decision": WRITTEN}}, {"run_ended": {"state": "completed"}}],
            ["answer written by the LLM small"],
        ),
        (
            [{"answer_chunk": {"decision": {"controller": "composed"}}}, {"run_ended": {"state": "completed"}}],
            [],
        ),
    ],
)
def test_decisions_show_decider_and_fallback_reason(events: list[dict[str, Any]], text: list[str]) -> None:
    ended = (
        events if any("run_ended" in event for event in events) else [*events, {"run_ended": {"state": "completed"}}]
    )
    assert " ".join(drawn(ended)) == " ".join(text)


def test_ascii_terminal_gets_only_ascii() -> None:
    assert drawn([PLANNED, STARTED, ended("succeeded")], "ascii")[0] == "+ 1 image-to-text rapidocr 1.00 s"


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        (
            {
                "event": "child died, restarting",
                "level": "warning",
                "service": "supervisor",
                "child": "lite",
                "restarts": 1,
            },
            "child died, restarting service=supervisor child=lite restarts=1",
        ),
        ({"event": "a library speaks", "level": "plain"}, "a library speaks"),
    ],
)
def test_log_entry_is_rendered_as_text(entry: dict[str, Any], text: str) -> None:
    assert " ".join(log_line(entry).plain.split()) == text


MISSING = {"event": "expert not started", "level": "error", "expert": "remote"}


def printed(*entries: dict[str, str], starting_at: int) -> list[str]:
    """Lines printed for log entries, with the services ready after some of them."""
    out = StringIO()
    printer = LogPrinter(Console(file=out), verbose=False)
    for number, entry in enumerate(entries):
        if number == starting_at:
            printer.start()
        printer.add(entry)
    return out.getvalue().splitlines()


@pytest.mark.parametrize("starting_at", [0, 1])
def test_repeated_error_of_a_service_is_printed_once(starting_at: int) -> None:
    assert printed(MISSING, MISSING, starting_at=starting_at) == ["expert not started  expert=remote"]


def test_warning_before_the_services_are_ready_is_not_printed() -> None:
    assert printed({"event": "retrying", "level": "warning"}, MISSING, starting_at=1) == [
        "expert not started  expert=remote"
    ]


class InterruptingFile(StringIO):
    """A file whose first flush is interrupted by SIGINT, as a print may be."""

    interrupted = False

    def flush(self) -> None:
        super().flush()
        if not self.interrupted:
            self.interrupted = True
            signal.raise_signal(signal.SIGINT)


@pytest.fixture
def _restored_signals() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("_restored_signals")
def test_line_that_a_signal_interrupts_is_printed_once() -> None:
    out, stops = InterruptingFile(), list[None]()
    console = Console(file=out)
    with SignalHandler(console, partial(stops.append, None)) as signals:
        console.print("a line")
    assert out.getvalue().splitlines() == ["a line", "Stopping… Ctrl-C again stops immediately."]
    assert signals.is_stopping
    assert len(stops) == 1


@pytest.mark.usefixtures("_restored_signals")
def test_second_signal_stops_immediately() -> None:
    out, stops = StringIO(), list[None]()
    with SignalHandler(Console(file=out), partial(stops.append, None)):
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
    assert out.getvalue().splitlines()[-1] == "Stopping immediately…"
    assert len(stops) == 2


def test_upload_progress_is_shown_in_bytes() -> None:
    out = TextIOWrapper(BytesIO(), encoding="utf-8")
    console = Console(file=out, width=120)
    table, lines = LiveTable(console), LineView(console)
    for view in (table, lines):
        view.sent(5_000_000, 40_000_000)
    console.print(table._render())
    lines.sent(40_000_000, 40_000_000)
    lines.sent(1_000, 1_000)
    out.seek(0)
    assert [line.strip() for line in out.read().splitlines() if "MB" in line][-1] == "sent 40.0 MB"
    out.seek(0)
    assert "sending 5.0 MB of 40.0 MB" in out.read()


def test_printable_keeps_lines_and_removes_control_characters() -> None:
    text = "one\n\ttwo \x1b[31mred \u202ederet\u2066 \N{MAN}\u200d\N{WOMAN}"
    assert printable(text) == "one\n\ttwo [31mred deret \N{MAN}\u200d\N{WOMAN}"
    assert one_line(text) == "one  two [31mred deret \N{MAN}\N{WOMAN}"


def test_long_row_of_a_list_is_shortened_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in (("FORCE_COLOR", "1"), ("NO_COLOR", "1"), ("COLUMNS", "20")):
        monkeypatch.setenv(name, value)
    print_row(Text("run_1  completed  Read this aloud"))
    assert capsys.readouterr().out == "run_1  completed  R…\n"


def test_row_of_a_list_is_complete_in_a_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setenv("COLUMNS", "20")
    print_row(Text("run_1  completed  Read this aloud"))
    assert capsys.readouterr().out == "run_1  completed  Read this aloud\n"

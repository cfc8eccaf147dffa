from collections.abc import Sequence
from io import BytesIO, TextIOWrapper
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from gateway.cli.trace import render
from gateway.cli.waterfall import Span, Waterfall
from gateway.client import Event as ClientEvent
from gateway.client.run_fold import RunFold

Event = dict[str, Any]
Timed = tuple[float, Event]

ACCEPTED: Timed = (0, {"run_accepted": {}})
PLANNED: Timed = (0.1, {"task_id": 1, "task_planned": {"task": {"id": 1, "task": "image-to-text"}}})
AFTER_IT: Timed = (
    0.1,
    {
        "task_id": 2,
        "task_planned": {
            "task": {"id": 2, "task": "speak", "arguments": {"text": [{"task_id": 1, "output": "text"}, "and"]}}
        },
    },
)
DONE: Timed = (0.2, {"plan_completed": {"decision": {"controller": "llm", "llm_model": "small"}}})
OCR = {"model_id": "ocr", "expert": "lite"}
BACKUP = {"model_id": "backup", "expert": "vision"}


def selected(at: float, task_id: int = 1) -> Timed:
    return at, {"task_id": task_id, "task_selected": {"candidates": [OCR], "decision": {"controller": "rank"}}}


def started(at: float, attempt: int = 1, by: Event = OCR, task_id: int = 1) -> Timed:
    return at, {"task_id": task_id, "attempt": attempt, "task_started": {"by": by}}


def failed(at: float, attempt: int, then: str) -> Timed:
    body = {"failure": {"message": "it broke"}, "by": OCR, "next": then}
    return at, {"task_id": 1, "attempt": attempt, "attempt_failed": body}


def ended(at: float, state: str = "succeeded", task_id: int = 1, **result: Any) -> Timed:
    return at, {"task_id": task_id, "task_ended": {"state": state, "result": result}}


def over(at: float, state: str = "completed") -> Timed:
    return at, {"run_ended": {"state": state}}


def waterfall(*timed_events: Timed) -> Waterfall:
    fold, events = RunFold(), []
    for sequence, (at, event) in enumerate(timed_events, start=1):
        time = f"2030-01-01T00:{int(at) // 60:02}:{at % 60:06.3f}Z"
        events.append({"run_id": "r", "sequence": sequence, "time": time, **event})
        fold.apply(ClientEvent.of(events[-1]))
    return Waterfall.of(fold.run, events)


def spans(of: Waterfall) -> list[tuple[Any, ...]]:
    return [(span.kind, span.task_id, round(span.begin, 3), span.end and round(span.end, 3)) for span in of.spans]


def span(of: Waterfall, kind: str, index: int = 0) -> Span:
    return [each for each in of.spans if each.kind == kind][index]


def test_waterfall_has_plan_select_attempt_and_answer_spans() -> None:
    made = waterfall(
        ACCEPTED,
        PLANNED,
        selected(0.15),
        started(0.151),
        DONE,
        ended(1.0, usage={"busy": 0.8}),
        (1.1, {"answer_chunk": {"text": "It"}}),
        (1.4, {"answer_chunk": {"decision": {"controller": "composed"}}}),
        over(1.5),
    )
    assert spans(made) == [
        ("plan", 0, 0, 0.2),
        ("task", 1, 0.1, 1.0),
        ("select", 1, 0.1, 0.15),
        ("attempt", 1, 0.151, 1.0),
        ("answer", 0, 1.0, 1.4),
    ]
    assert made.run.state == "completed"
    assert made.seconds == 1.5
    assert span(made, "plan").by == "llm small"
    assert span(made, "select").by == "rank"
    assert span(made, "select").note == "ocr on lite"
    assert span(made, "attempt").by == "ocr on lite"
    assert span(made, "attempt").work == 0.8
    assert span(made, "answer").by == "composed"
    assert span(made, "answer").first == 1.1


def test_each_failed_attempt_notes_next_step() -> None:
    made = waterfall(
        ACCEPTED,
        PLANNED,
        selected(0.1),
        started(0.1),
        failed(0.3, 1, "retry"),
        started(0.4, 2),
        failed(0.5, 2, "next_candidate"),
        failed(0.5, 3, "next_candidate"),  # skipped: it was never started
        started(0.6, 4, BACKUP),
        ended(0.9, by=BACKUP),
        over(1.0),
    )
    attempts = [each for each in made.spans if each.kind == "attempt"]
    assert [(each.attempt, each.state, each.note) for each in attempts] == [
        (1, "failed", "it broke, then retry"),
        (2, "failed", "it broke, then next candidate"),
        (3, "failed", "it broke, then next candidate"),
        (4, "succeeded", ""),
    ]
    assert attempts[-1].by == "backup on vision"
    assert [(each.begin, each.end) for each in attempts] == [(0.1, 0.3), (0.4, 0.5), (0.5, 0.5), (0.6, 0.9)]


def test_wait_starts_at_end_of_last_dependency() -> None:
    made = waterfall(
        ACCEPTED,
        PLANNED,
        AFTER_IT,
        selected(0.1),
        selected(0.1, 2),
        started(0.1),
        ended(0.5),
        started(0.75, task_id=2),
        ended(0.9, task_id=2),
        over(1),
    )
    (wait,) = (each for each in made.spans if each.kind == "wait")
    assert wait.task_id == 2
    assert wait.begin == 0.5
    assert wait.end == 0.75
    assert wait.note == "for capacity"


def test_reported_wait_has_its_reason() -> None:
    waiting = {"task_id": 1, "task_waiting": {"expert": "lite", "reason": "lite wakes"}}
    made = waterfall(ACCEPTED, PLANNED, selected(0.1), (0.2, waiting), started(0.9), ended(1), over(1))
    (wait,) = (each for each in made.spans if each.kind == "wait")
    assert wait.begin == 0.2
    assert wait.end == 0.9
    assert wait.by == "lite"
    assert wait.note == "lite wakes"


@pytest.mark.parametrize("state", ["reused", "skipped", "failed"])
def test_task_without_attempts_has_no_attempt_span(state: str) -> None:
    made = waterfall(ACCEPTED, PLANNED, ended(0.5, state, failure={"message": "no expert"}), over(0.6))
    assert [each.kind for each in made.spans if each.task_id] == ["task", "select"]
    assert span(made, "task").state == state
    assert span(made, "task").note == "no expert"
    assert span(made, "select").end == 0.5


def test_takeover_marks_active_spans_lost() -> None:
    taken = (0.7, {"taken_over": {"owner": "other", "reason": "not heard of"}})
    made = waterfall(
        ACCEPTED, PLANNED, DONE, selected(0.2), started(0.2), taken, started(0.8, 2), ended(0.9), over(1.0)
    )
    assert [(each.state, each.end) for each in made.spans if each.kind == "attempt"] == [
        ("lost", 0.7),
        ("succeeded", 0.9),
    ]
    assert span(made, "handover").by == "other"
    assert span(made, "handover").begin == 0.7


def test_approval_is_a_span_and_approved_plan_replaces_tasks() -> None:
    other = {"plan_approved": {"plan": [{"id": 7, "task": "speak"}]}}
    made = waterfall(ACCEPTED, PLANNED, DONE, (0.2, {"approval_requested": {}}), (60.0, other), over(61, "failed"))
    assert span(made, "approval").begin == 0.2
    assert span(made, "approval").end == 60.0
    assert [each.task_id for each in made.spans if each.kind == "task"] == [7]


def test_replanning_is_a_span() -> None:
    made = waterfall(ACCEPTED, DONE, (0.5, {"replanning": {"failed": [1, 2]}}), (0.9, DONE[1]), over(1))
    again = span(made, "replan")
    assert again.begin == 0.5
    assert again.end == 0.9
    assert again.note == "alternative for task 1, 2"
    assert again.by == "llm small"


def test_active_spans_end_with_run() -> None:
    running = [ACCEPTED, PLANNED, selected(0.2), started(0.3)]
    assert span(waterfall(*running), "attempt").end is None
    stopped = waterfall(*running, over(0.8, "cancelled"))
    assert span(stopped, "attempt").end == 0.8
    assert span(stopped, "attempt").state == "cancelled"


def test_waterfall_has_trace_id() -> None:
    named = {"run_accepted": {"trace": {"traceparent": f"00-{'ab' * 16}-{'cd' * 8}-01"}}}
    assert waterfall((0, named)).trace_id == "ab" * 16
    assert waterfall(ACCEPTED).trace_id == ""


def rows(made: Waterfall, width: int = 100, encoding: str = "utf-8") -> Sequence[str]:
    out = TextIOWrapper(BytesIO(), encoding=encoding)
    Console(file=out, width=width).print(render(made, width, plain=encoding != "utf-8"))
    out.seek(0)
    return out.read().splitlines()


DRAWN = waterfall(
    ACCEPTED,
    PLANNED,
    DONE,
    selected(0.2),
    started(0.2),
    failed(0.4, 1, "retry"),
    started(0.5, 2),
    ended(1.0, usage={"busy": 0.25}),
    over(1.0),
)


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_bars_are_scaled_to_width(width: int) -> None:
    plan, task, select, first, second = rows(DRAWN, width)
    assert [line.split()[0] for line in (plan, task, select, first, second)] == [
        "plan",
        "1",
        "select",
        "attempt",
        "attempt",
    ]
    assert plan.index("█") < first.index("█") < second.index("░") < second.index("█")
    assert second.count("░") == pytest.approx(second.count("█"), abs=1)
    assert all(cell_len(line.rstrip()) <= width for line in rows(DRAWN, width))


def test_ascii_terminal_gets_only_ascii() -> None:
    assert all(line.isascii() for line in rows(DRAWN, encoding="ascii"))


def test_failed_attempt_shows_reason() -> None:
    assert "ocr on lite, failed, it broke, then retry" in rows(DRAWN, 200)[3]


def test_span_without_duration_has_a_cell() -> None:
    assert all(
        "█" in line or "─" in line for line in rows(waterfall(ACCEPTED, DONE, PLANNED, selected(0.2), over(0.2)))
    )


def test_run_awaiting_approval_has_planned_tasks() -> None:
    made = waterfall(ACCEPTED, PLANNED, DONE, (0.3, {"approval_requested": {}}))
    assert made.run.state == "awaiting_approval"
    assert span(made, "task").state == "planned"


def test_approved_run_is_running() -> None:
    made = waterfall(ACCEPTED, PLANNED, DONE, (0.3, {"approval_requested": {}}), (5.0, {"plan_approved": {}}))
    assert made.run.state == "running"


def test_accepted_run_is_queued_until_something_is_planned() -> None:
    assert waterfall(ACCEPTED).run.state == "queued"


def test_called_task_is_running_and_others_planned() -> None:
    made = waterfall(ACCEPTED, PLANNED, AFTER_IT, selected(0.2), started(0.3))
    assert span(made, "task", 0).state == "running"
    assert span(made, "task", 1).state == "planned"

"""Invariants of the events, results and journal of a run that has ended, whatever faults occurred."""

from collections.abc import Iterator, Sequence

from protos.hugginggpt.v1.event_pb2 import RunEvent
from protos.hugginggpt.v1.run_pb2 import (
    RUN_STATE_CANCELLED,
    RUN_STATE_COMPLETED,
    TASK_STATE_CANCELLED,
    TASK_STATE_REUSED,
    TASK_STATE_SUCCEEDED,
    Run,
    RunState,
    TaskState,
)
from tests.chaos.cases import Case

_GOOD = frozenset({TASK_STATE_SUCCEEDED, TASK_STATE_REUSED})


def violations(case: Case, events: Sequence[RunEvent], *, may_be_cancelled: bool) -> Iterator[str]:
    """Violations in the events of a run.

    Args:
        case: the run with its expected results.
        events: all of them, in order.
        may_be_cancelled: the client cancelled the run, or left a stream that cancels it.
    """
    yield from _order(events)
    yield from _tasks(events)
    state = events[-1].run_ended.state
    cancelled = may_be_cancelled and state == RUN_STATE_CANCELLED
    if state != RUN_STATE_COMPLETED and not cancelled:
        failure = events[-1].run_ended.failure
        yield f"it ended {RunState.Name(state)}: {failure.reason}, {failure.message}"
    yield from _results(case, events, complete=not cancelled)
    answer = "".join(event.answer_chunk.text for event in events)
    if not (case.answer.startswith(answer) if cancelled else answer == case.answer):
        yield f"its answer is {answer!r}, not {case.answer!r}"


def disagreements(events: Sequence[RunEvent], others: Sequence[RunEvent]) -> Iterator[str]:
    """Differences between the events that two clients received of one run."""
    if len(events) != len(others):
        yield f"one client received {len(events)} events, another {len(others)}"
    for one, other in zip(events, others, strict=False):
        if one != other:
            yield f"two clients received different events {one.sequence}: {one} and {other}"
            return


def has_ended(events: Sequence[RunEvent]) -> bool:
    """Whether the run's end was received."""
    return bool(events) and events[-1].HasField("run_ended")


def journal_differences(events: Sequence[RunEvent], brief: Run, run: Run) -> Iterator[str]:
    """Differences between the journal and the received events.

    Args:
        events: received by a client, to the run's end.
        brief: the run from List.
        run: the run from Get.
    """
    for stored in (brief, run):
        if stored.last_sequence != len(events):
            yield f"the journal has {stored.last_sequence} events, the client received {len(events)}"
        if stored.state != events[-1].run_ended.state:
            yield f"the journal has the state {RunState.Name(stored.state)}"
    ends = {event.task_id: event.task_ended.result for event in events if event.HasField("task_ended")}
    results = {status.task.id: status.result for status in run.tasks}
    if any(results.get(task_id) != result for task_id, result in ends.items()):
        yield "the journal has different results"
    if run.answer != "".join(event.answer_chunk.text for event in events):
        yield "the journal has a different answer"


def _order(events: Sequence[RunEvent]) -> Iterator[str]:
    if [event.sequence for event in events] != list(range(1, len(events) + 1)):
        yield "its events are not numbered from 1 without gaps"
    if len({event.run_id for event in events}) != 1:
        yield "its events belong to several runs"
    kinds = [event.WhichOneof("event") for event in events]
    if kinds[0] != "run_accepted" or kinds.count("run_accepted") != 1:
        yield "run_accepted is not its first event, or occurs twice"
    if kinds[-1] != "run_ended" or kinds.count("run_ended") != 1:
        yield "run_ended is not its last event, or occurs twice"
    if kinds.count("plan_completed") > 1 + kinds.count("replanning"):
        yield "plan_completed occurs twice"


def _tasks(events: Sequence[RunEvent]) -> Iterator[str]:
    planned: set[int] = set()
    ended: set[int] = set()
    attempts: set[tuple[int, int]] = set()
    for event in events:
        task_id = event.task_id
        if event.HasField("task_planned"):
            if task_id in planned:
                yield f"task {task_id} was planned twice"
            planned.add(task_id)
        elif task_id and task_id not in planned:
            yield f"task {task_id} was not planned before event {event.sequence}"
        elif task_id in ended:
            yield f"task {task_id} had ended before event {event.sequence}, {event.WhichOneof('event')}"
        if event.HasField("task_ended"):
            ended.add(task_id)
        if event.HasField("task_started"):
            if (task_id, event.attempt) in attempts:
                yield f"attempt {event.attempt} of task {task_id} started twice"
            attempts.add((task_id, event.attempt))
    if missing := planned - ended:
        yield f"tasks {sorted(missing)} did not end"


def _results(case: Case, events: Sequence[RunEvent], *, complete: bool) -> Iterator[str]:
    seen = set()
    for event in events:
        if not event.HasField("task_ended"):
            continue
        seen.add(event.task_id)
        state, result = event.task_ended.state, event.task_ended.result
        if state in _GOOD:
            if result.outputs["text"].text != case.outputs.get(event.task_id):
                yield f"task {event.task_id} gave {result.outputs['text']}, not {case.outputs.get(event.task_id)}"
        elif complete or state != TASK_STATE_CANCELLED:
            why = f"{result.failure.reason}, {result.failure.message}"
            yield f"task {event.task_id} ended {TaskState.Name(state)}: {why}"
    if complete and seen != case.outputs.keys():
        yield f"tasks {sorted(seen ^ case.outputs.keys())} are missing or unexpected"

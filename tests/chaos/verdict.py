"""What must hold of a run that has ended, whatever happened on the way."""

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


def complaints(case: Case, events: Sequence[RunEvent], *, may_be_cancelled: bool) -> Iterator[str]:
    """What is wrong with a run's events, told by what the case knows.

    Args:
        case: what was asked for.
        events: all of them, in order.
        may_be_cancelled: somebody asked for its end, or left a stream that was its life.
    """
    yield from _order(events)
    yield from _tasks(events)
    state = events[-1].run_ended.state
    cancelled = may_be_cancelled and state == RUN_STATE_CANCELLED
    if state != RUN_STATE_COMPLETED and not cancelled:
        failure = events[-1].run_ended.failure
        yield f"it ended {RunState.Name(state)}: {failure.reason}, {failure.message}"
    yield from _results(case, events, whole=not cancelled)
    answer = "".join(event.answer_chunk.text for event in events)
    if not (case.answer.startswith(answer) if cancelled else answer == case.answer):
        yield f"its answer is {answer!r}, not {case.answer!r}"


def disagreements(events: Sequence[RunEvent], others: Sequence[RunEvent]) -> Iterator[str]:
    """Where two watchers of one run have not seen the same."""
    if len(events) != len(others):
        yield f"one watcher saw {len(events)} events, another {len(others)}"
    for one, other in zip(events, others, strict=False):
        if one != other:
            yield f"two watchers saw different events {one.sequence}: {one} and {other}"
            return


def has_ended(events: Sequence[RunEvent]) -> bool:
    """Whether a run's end was seen."""
    return bool(events) and events[-1].HasField("run_ended")


def misread(events: Sequence[RunEvent], brief: Run, run: Run) -> Iterator[str]:
    """Where the journal, read at the end, does not agree with what was seen.

    Args:
        events: what was seen, to the run's end.
        brief: the run as List has it.
        run: the run as Get has it.
    """
    for read in (brief, run):
        if read.last_sequence != len(events):
            yield f"the journal has {read.last_sequence} events, {len(events)} were seen"
        if read.state != events[-1].run_ended.state:
            yield f"the journal has it {RunState.Name(read.state)}"
    ends = {event.task_id: event.task_ended.result for event in events if event.HasField("task_ended")}
    kept = {status.task.id: status.result for status in run.tasks}
    if any(kept.get(task_id) != result for task_id, result in ends.items()):
        yield "the journal has other results"
    if run.answer != "".join(event.answer_chunk.text for event in events):
        yield "the journal has another answer"


def _order(events: Sequence[RunEvent]) -> Iterator[str]:
    if [event.sequence for event in events] != list(range(1, len(events) + 1)):
        yield "its events are not numbered from 1 without gaps"
    if len({event.run_id for event in events}) != 1:
        yield "its events are of several runs"
    kinds = [event.WhichOneof("event") for event in events]
    if kinds[0] != "run_accepted" or kinds.count("run_accepted") != 1:
        yield "it was not accepted once, at its beginning"
    if kinds[-1] != "run_ended" or kinds.count("run_ended") != 1:
        yield "it did not end once, at its end"
    if kinds.count("plan_completed") > 1 + kinds.count("replanning"):
        yield "its plan was completed twice"


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
            yield f"task {task_id} was not planned when event {event.sequence} came"
        elif task_id in ended:
            yield f"task {task_id} had ended when event {event.sequence}, {event.WhichOneof('event')}, came"
        if event.HasField("task_ended"):
            ended.add(task_id)
        if event.HasField("task_started"):
            if (task_id, event.attempt) in attempts:
                yield f"attempt {event.attempt} of task {task_id} began twice"
            attempts.add((task_id, event.attempt))
    if missing := planned - ended:
        yield f"tasks {sorted(missing)} never ended"


def _results(case: Case, events: Sequence[RunEvent], *, whole: bool) -> Iterator[str]:
    seen = set()
    for event in events:
        if not event.HasField("task_ended"):
            continue
        seen.add(event.task_id)
        state, result = event.task_ended.state, event.task_ended.result
        if state in _GOOD:
            if result.outputs["text"].text != case.outputs.get(event.task_id):
                yield f"task {event.task_id} gave {result.outputs['text']}, not {case.outputs.get(event.task_id)}"
        elif whole or state != TASK_STATE_CANCELLED:
            why = f"{result.failure.reason}, {result.failure.message}"
            yield f"task {event.task_id} ended {TaskState.Name(state)}: {why}"
    if whole and seen != case.outputs.keys():
        yield f"tasks {sorted(seen ^ case.outputs.keys())} are missing or too many"

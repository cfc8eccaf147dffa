"""Accounts of runs that have ended: their state, attempts and decisions, for records and verifications."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from google.protobuf.timestamp_pb2 import Timestamp

from gateway.core.runs import RunOperations
from protos.hugginggpt.run_state import ENDED_RUN_STATES, RunFold
from protos.hugginggpt.v1.artifact_pb2 import Value
from protos.hugginggpt.v1.caller_pb2 import Caller
from protos.hugginggpt.v1.event_pb2 import (
    NEXT_STEP_UNSPECIFIED,
    NextStep,
    RunEvent,
    TaskEnded,
    TaskSelected,
)
from protos.hugginggpt.v1.model_pb2 import Candidate
from protos.hugginggpt.v1.plan_pb2 import Decision
from protos.hugginggpt.v1.run_pb2 import TaskResult
from protos.hugginggpt.v1.task_pb2 import Argument, Task
from protos.hugginggpt.v1.usage_pb2 import Usage
from services.common.errors import FailedPrecondition

Timed = tuple[Timestamp, Decision]


@dataclass
class Attempt:
    """One call of a model."""

    by: Candidate = field(default_factory=Candidate)
    began: Timestamp | None = None
    ended: Timestamp | None = None
    reason: str = ""
    next: "NextStep.ValueType" = NEXT_STEP_UNSPECIFIED
    usage: Usage | None = None


@dataclass
class TaskAccount:
    """Events of one task."""

    task: Task
    selected: TaskSelected = field(default_factory=TaskSelected)
    selected_at: Timestamp | None = None
    attempts: dict[int, Attempt] = field(default_factory=dict)
    ended: TaskEnded = field(default_factory=TaskEnded)

    @property
    def result(self) -> TaskResult:
        return self.ended.result


class Account:
    """State of a run that has ended, with the calls and decisions that led to it.

    Args:
        events: all events in order.
    """

    def __init__(self, events: Iterable[RunEvent]) -> None:
        self.caller: Caller | None = None
        self.tasks: dict[int, TaskAccount] = {}
        self.planning: list[Timed] = []
        self.answering: Timed | None = None
        self.takeovers = 0
        fold = RunFold(ignore_unplanned=True)
        for event in events:
            fold.apply(event)
            self._apply(event)
        self.run = fold.snapshot()

    def _apply(self, event: RunEvent) -> None:
        match event.WhichOneof("event"):
            case "run_accepted" if event.run_accepted.HasField("caller"):
                self.caller = event.run_accepted.caller
            case "task_planned":
                self.tasks[event.task_id] = TaskAccount(event.task_planned.task)
            case "plan_completed":
                self.planning.append((event.time, event.plan_completed.decision))
            case "plan_approved" if event.plan_approved.HasField("plan"):
                self.tasks = {task.id: TaskAccount(task) for task in event.plan_approved.plan.tasks}
            case "answer_chunk" if event.answer_chunk.HasField("decision"):
                self.answering = (event.time, event.answer_chunk.decision)
            case "taken_over":
                self.takeovers += 1
            case _ if event.task_id in self.tasks:
                _apply_to_task(self.tasks[event.task_id], event)


def _apply_to_task(task: TaskAccount, event: RunEvent) -> None:
    match event.WhichOneof("event"):
        case "task_selected":
            task.selected, task.selected_at = event.task_selected, event.time
        case "task_started":
            task.attempts[event.attempt] = Attempt(event.task_started.by, event.time)
        case "attempt_failed":
            attempt = task.attempts.setdefault(event.attempt, Attempt(event.attempt_failed.by))
            attempt.ended, attempt.next = event.time, event.attempt_failed.next
            attempt.reason = event.attempt_failed.failure.reason
            attempt.usage = event.attempt_failed.usage if event.attempt_failed.HasField("usage") else None
        case "task_ended":
            task.ended = event.task_ended
            if attempt_made := task.attempts.get(event.attempt):
                attempt_made.ended, attempt_made.reason = event.time, task.result.failure.reason
                attempt_made.usage = task.result.usage if task.result.HasField("usage") else None


async def read(runs: RunOperations, run_id: str) -> Account:
    """Reads the events of one of the caller's runs.

    Raises:
        NotFound: RUN.
        FailedPrecondition: RUNNING, the run has not ended.
    """
    if (await runs.get(run_id)).state not in ENDED_RUN_STATES:
        remedy = "wait until it has ended, or cancel it"
        raise FailedPrecondition(f"run {run_id} is still active", reason="RUNNING", remedy=remedy)
    feed = await runs.watch(run_id, 0)
    events = []
    try:
        while (event := await feed.read()) is not None:
            events.append(event)
    finally:
        feed.stop()
    return Account(events)


def flat(task: Task) -> Iterator[tuple[str, Argument]]:
    """Yields the arguments by port; each element of a list separately."""
    for port in sorted(task.arguments):
        argument = task.arguments[port]
        for item in argument.list.items if argument.HasField("list") else (argument,):
            yield port, item


def value_of(argument: Argument, account: Account) -> Value | None:
    """Value of an argument; None if it refers to a value that does not exist."""
    match argument.WhichOneof("kind"):
        case "value":
            return argument.value
        case "input":
            return next((each.value for each in account.run.spec.inputs if each.name == argument.input.name), None)
        case "reference":
            needed = account.tasks.get(argument.reference.task_id)
            outputs: Mapping[str, Value] = needed.result.outputs if needed else {}
            return outputs.get(argument.reference.output)
    return None


def values_of(task: Task, account: Account) -> Sequence[tuple[str, Value | None]]:
    return [(port, value_of(argument, account)) for port, argument in flat(task)]

"""Plain types of a planning request."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from protos.hugginggpt.internal.v1 import planner_pb2
from protos.hugginggpt.v1 import artifact_pb2, run_pb2
from services.planner.plan import Task, Unset, Value, value_from_proto


@dataclass(frozen=True, slots=True)
class Named:
    """A value and its name in plans."""

    name: str
    value: Value


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of a conversation."""

    by_user: bool
    text: str
    attachments: tuple[Named, ...] = ()


class State(StrEnum):
    """State of a task."""

    UNSPECIFIED = "unknown"
    PLANNED = "planned"
    WAITING = "waiting"
    RUNNING = "running"
    SUCCEEDED = "done"
    REUSED = "done before"
    FAILED = "failed"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Prior:
    """An existing task of the run and its result."""

    task: Task
    state: State = State.PLANNED
    summary: str = ""
    """Its result, possibly shortened."""


@dataclass(frozen=True, slots=True)
class New:
    """Plan a new request."""


@dataclass(frozen=True, slots=True)
class Continue:
    """Plan the rest after an interrupted stream."""


@dataclass(frozen=True, slots=True)
class Replan:
    """Plan an alternative to failed tasks."""

    failed: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Check:
    """Only validate this plan."""

    draft: tuple[Task, ...]


Goal = New | Continue | Replan | Check


@dataclass(frozen=True, slots=True)
class Request:
    """A conversation whose last message is to be planned, and the inputs of the run."""

    conversation: tuple[Turn, ...] = ()
    inputs: tuple[Named, ...] = ()
    prior: tuple[Prior, ...] = ()
    goal: Goal = New()
    limit: int = 0
    """Maximum number of tasks; 0: no limit of the request."""

    @classmethod
    def from_proto(cls, request: planner_pb2.PlanRequest) -> Self:
        turns = (
            Turn(turn.role != run_pb2.ROLE_ASSISTANT, turn.text, _named(turn.attachments))
            for turn in request.conversation
        )
        return cls(
            conversation=tuple(turns),
            inputs=_named(request.inputs),
            prior=tuple(map(_prior, request.prior)),
            goal=_goal(request.goal),
            limit=request.budget.tasks,
        )

    @property
    def standing(self) -> tuple[Task, ...]:
        """Existing tasks of the run."""
        return tuple(prior.task for prior in self.prior)

    @property
    def text(self) -> str:
        """Text of the last message if the user wrote it; empty otherwise."""
        last = self.conversation[-1] if self.conversation else None
        return last.text if last and last.by_user else ""


# ---------------------------------------------------------------- conversion

_STATES: Mapping[int, State] = {run_pb2.TaskState.Value(f"TASK_STATE_{state.name}"): state for state in State}


def _prior(prior: planner_pb2.PriorTask) -> Prior:
    return Prior(Task.from_proto(prior.task), _STATES.get(prior.state, State.UNSPECIFIED), prior.summary)


def _goal(goal: planner_pb2.PlanGoal) -> Goal:
    match goal.WhichOneof("kind"):
        case "check":
            return Check(tuple(Task.from_proto(task) for task in goal.check.draft.tasks))
        case "replan":
            return Replan(tuple(goal.replan.failed))
        case "continuation":
            return Continue()
        case _:
            return New()


def _named(values: Iterable[artifact_pb2.NamedValue]) -> tuple[Named, ...]:
    converted = ((named.name, value_from_proto(named.value)) for named in values)
    return tuple(Named(name, value) for name, value in converted if not isinstance(value, Unset))

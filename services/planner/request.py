"""Plain types of a planning request."""

from dataclasses import dataclass
from enum import StrEnum

from services.planner.plan import Task, Value


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

    @property
    def standing(self) -> tuple[Task, ...]:
        """Existing tasks of the run."""
        return tuple(prior.task for prior in self.prior)

    @property
    def text(self) -> str:
        """Text of the last message if the user wrote it; empty otherwise."""
        last = self.conversation[-1] if self.conversation else None
        return last.text if last and last.by_user else ""

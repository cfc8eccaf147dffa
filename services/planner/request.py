"""What the planner is asked, in plain Python."""

from dataclasses import dataclass
from enum import StrEnum

from services.planner.plan import Task, Value


@dataclass(frozen=True, slots=True)
class Named:
    """A value under the name by which a plan may refer to it."""

    name: str
    value: Value


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of a conversation."""

    by_user: bool
    text: str
    attachments: tuple[Named, ...] = ()


class State(StrEnum):
    """How far a task has come; the names are the protos'."""

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
    """A task that already stands, and what came of it."""

    task: Task
    state: State = State.PLANNED
    summary: str = ""
    """What it gave, or the beginning of it."""


@dataclass(frozen=True, slots=True)
class New:
    """A plan from nothing."""


@dataclass(frozen=True, slots=True)
class Continue:
    """The rest of a plan whose stream broke."""


@dataclass(frozen=True, slots=True)
class Replan:
    """Another way to what failed."""

    failed: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Check:
    """Only say what is wrong with this plan."""

    draft: tuple[Task, ...]


Goal = New | Continue | Replan | Check


@dataclass(frozen=True, slots=True)
class Request:
    """A conversation whose last message is to be planned, and what there is to work with."""

    conversation: tuple[Turn, ...] = ()
    inputs: tuple[Named, ...] = ()
    prior: tuple[Prior, ...] = ()
    goal: Goal = New()
    limit: int = 0
    """Most tasks wanted; 0 leaves it to the planner."""

    @property
    def standing(self) -> tuple[Task, ...]:
        """The tasks of the run that are planned already."""
        return tuple(prior.task for prior in self.prior)

    @property
    def text(self) -> str:
        """The user's last words."""
        last = self.conversation[-1] if self.conversation else None
        return last.text if last and last.by_user else ""

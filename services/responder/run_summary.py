"""What a run came to, in plain Python: what an answer is made of."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


@dataclass(frozen=True, slots=True)
class Artifact:
    """A file: known by name, never opened here."""

    name: str
    media_type: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Json:
    """Structured data."""

    data: Any


Output = str | Json | Artifact


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why something did not come about, and what would help."""

    message: str
    remedy: str = ""


class State(StrEnum):
    """How a task ended; the names are the protos', those of a task that has not ended taken together."""

    OPEN = "not finished"
    SUCCEEDED = "done"
    REUSED = "taken from an earlier run"
    FAILED = "failed"
    SKIPPED = "not started"
    CANCELLED = "cancelled"

    @property
    def good(self) -> bool:
        return self in {State.SUCCEEDED, State.REUSED}


@dataclass(frozen=True, slots=True)
class Task:
    """A task of the run with what came of it."""

    id: int
    name: str
    state: State
    source: str = ""
    """The words of the request it came from."""
    outputs: Mapping[str, Output] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    question: str = ""
    """What it was asked, where it takes a question."""
    given: tuple[str, ...] = ()
    """Names of the sent files it worked on."""
    needs: frozenset[int] = frozenset()
    """The tasks whose outputs it took."""
    model: str = ""
    expert: str = ""
    seconds: float | None = None
    trouble: Trouble | None = None

    @property
    def text(self) -> str:
        """Its output in words, if it is at hand."""
        text = self.outputs.get("text")
        return text.strip() if isinstance(text, str) else ""

    def data(self, port: str) -> Any:
        """A structured output, or None."""
        output = self.outputs.get(port)
        return output.data if isinstance(output, Json) else None

    @property
    def artifacts(self) -> tuple[Artifact, ...]:
        return tuple(output for _, output in sorted(self.outputs.items()) if isinstance(output, Artifact))


class RemarkKind(StrEnum):
    """What the planner remarked on."""

    MISSING = "could not be planned, or must be said first"
    CHAT = "wants an answer but no task"
    LEFT_OUT = "was sent but not used"
    OTHER = "about how the plan was made"


@dataclass(frozen=True, slots=True)
class Remark:
    kind: RemarkKind
    text: str


@dataclass(frozen=True, slots=True)
class Turn:
    """What was said before the request."""

    by_user: bool
    text: str


@dataclass(frozen=True, slots=True)
class Account:
    """All there is to tell of a run."""

    request: str
    tasks: tuple[Task, ...] = ()
    remarks: tuple[Remark, ...] = ()
    trouble: Trouble | None = None
    sent: str = ""
    """What of the answer has been sent already."""
    history: tuple[Turn, ...] = ()
    """Oldest first, without the request."""
    given: Mapping[str, Artifact] = field(default_factory=dict)
    """The files that were sent, by the name under which a plan refers to them."""

    llm: bool = False
    """Answers are an LLM's to write, and composed only where it does not."""

    @property
    def files(self) -> Mapping[str, Artifact]:
        """All files of the run by id: what was sent, and what its tasks made."""
        made = {
            f"task{task.id}.{port}": output
            for task in self.tasks
            if task.state.good
            for port, output in task.outputs.items()
            if isinstance(output, Artifact)
        }
        return {**self.given, **made}

    @property
    def only_talk(self) -> bool:
        """A conversation: nothing was to be done."""
        kinds = {remark.kind for remark in self.remarks}
        return RemarkKind.CHAT in kinds and RemarkKind.MISSING not in kinds and not self.tasks and self.trouble is None

    @property
    def missing(self) -> bool:
        """Something that was asked for is not there."""
        wanting = any(remark.kind is RemarkKind.MISSING for remark in self.remarks)
        return wanting or self.trouble is not None or any(not task.state.good for task in self.tasks)

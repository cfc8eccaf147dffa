"""Plain types for the result of a run, from which answers are composed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


@dataclass(frozen=True, slots=True)
class Artifact:
    """Metadata of a file; its content is not read here."""

    name: str
    media_type: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Json:
    """A structured output."""

    data: Any


Output = str | Json | Artifact


@dataclass(frozen=True, slots=True)
class Failure:
    """Reason of a failure, and a remedy."""

    message: str
    remedy: str = ""


class State(StrEnum):
    """Final state of a task; all states that are not final are OPEN."""

    OPEN = "not finished"
    SUCCEEDED = "done"
    REUSED = "taken from an earlier run"
    FAILED = "failed"
    SKIPPED = "not started"
    CANCELLED = "cancelled"

    @property
    def is_successful(self) -> bool:
        return self in {State.SUCCEEDED, State.REUSED}


@dataclass(frozen=True, slots=True)
class Task:
    """A task of the run and its result."""

    id: int
    name: str
    state: State
    source: str = ""
    """Part of the request that the task covers."""
    outputs: Mapping[str, Output] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    question: str = ""
    """Value of its question input, if it has one."""
    given: tuple[str, ...] = ()
    """Names of the uploaded files it used."""
    needs: frozenset[int] = frozenset()
    """Ids of the tasks whose outputs it used."""
    model: str = ""
    expert: str = ""
    seconds: float | None = None
    failure: Failure | None = None

    @property
    def text(self) -> str:
        """Its text output; empty without one."""
        text = self.outputs.get("text")
        return text.strip() if isinstance(text, str) else ""

    def data(self, port: str) -> Any:
        """Returns the JSON output of a port; None without one."""
        output = self.outputs.get(port)
        return output.data if isinstance(output, Json) else None

    @property
    def artifacts(self) -> tuple[Artifact, ...]:
        return tuple(output for _, output in sorted(self.outputs.items()) if isinstance(output, Artifact))


class NoteKind(StrEnum):
    """Kind of a planner's note."""

    MISSING = "could not be planned, or needs clarification first"
    CHAT = "wants an answer but no task"
    UNUSED_FILE = "was sent but not used"
    OTHER = "about how the plan was made"


@dataclass(frozen=True, slots=True)
class Note:
    kind: NoteKind
    text: str


@dataclass(frozen=True, slots=True)
class Turn:
    """An earlier turn of the conversation."""

    by_user: bool
    text: str


@dataclass(frozen=True, slots=True)
class RunSummary:
    """All facts of a run from which an answer is composed."""

    request: str
    tasks: tuple[Task, ...] = ()
    notes: tuple[Note, ...] = ()
    failure: Failure | None = None
    sent: str = ""
    """Part of the answer that was already sent."""
    history: tuple[Turn, ...] = ()
    """Earlier turns, oldest first."""
    given: Mapping[str, Artifact] = field(default_factory=dict)
    """Uploaded files by their names in the plan."""

    llm: bool = False
    """Whether an LLM writes answers; templates are then only the fallback."""

    @property
    def files(self) -> Mapping[str, Artifact]:
        """All files of the run by id: uploaded files and outputs of tasks."""
        made = {
            f"task{task.id}.{port}": output
            for task in self.tasks
            if task.state.is_successful
            for port, output in task.outputs.items()
            if isinstance(output, Artifact)
        }
        return {**self.given, **made}

    @property
    def is_chat_only(self) -> bool:
        """Whether the request is only conversation, without tasks or failures."""
        kinds = {note.kind for note in self.notes}
        return NoteKind.CHAT in kinds and NoteKind.MISSING not in kinds and not self.tasks and self.failure is None

    @property
    def has_failures(self) -> bool:
        """Whether any part of the request was not done."""
        has_unmapped = any(note.kind is NoteKind.MISSING for note in self.notes)
        return has_unmapped or self.failure is not None or any(not task.state.is_successful for task in self.tasks)

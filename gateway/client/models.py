"""What a gateway tells, in the names of its API; what it tells beyond them is kept, too."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, Generic, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

T = TypeVar("T")

COMPLETED = "completed"
ENDS = frozenset({COMPLETED, "incomplete", "failed", "cancelled"})

_ENVELOPE = frozenset({"run_id", "sequence", "time", "task_id", "attempt"})


class Told(BaseModel):
    """Something the gateway told."""

    model_config = ConfigDict(frozen=True, extra="allow", protected_namespaces=())


class Artifact(Told):
    """A file that the house keeps, known by its digest."""

    sha256: str
    media_type: str = ""
    size_bytes: int = 0
    name: str = ""


def _value(content: Any) -> Any:
    match content:
        case {"artifact": dict() as artifact}:
            return Artifact.model_validate(artifact)
        case {"json": inner} if len(content) == 1:
            return inner
    return content


Value = Annotated[Any, BeforeValidator(_value)]
"""Text, JSON or an Artifact."""


class Failure(Told):
    """Why something did not come about, and what would help."""

    reason: str = ""
    message: str = ""
    remedy: str = ""
    port: str = ""


class Candidate(Told):
    """A model that was chosen."""

    model_id: str = ""
    revision: str = ""
    expert: str = ""
    reason: str = ""


class Result(Told):
    """What became of a task: outputs by port, or why there are none."""

    outputs: dict[str, Value] = Field(default_factory=dict)
    failure: Failure | None = None
    by: Candidate | None = None
    attempt: int = 0


class TaskStatus(Told):
    """A task of a run."""

    task: dict[str, Any]
    """As planned: id, task, arguments, parameters."""
    state: str = "planned"
    result: Result | None = None
    candidate: Candidate | None = None

    @property
    def outputs(self) -> Mapping[str, Any]:
        """Text, JSON or an Artifact, by port."""
        return self.result.outputs if self.result else {}

    @property
    def again(self) -> dict[str, Any]:
        """The task as a plan has it, with the model that it had."""
        chosen = (self.result and self.result.by) or self.candidate
        if chosen is None or not chosen.model_id:
            return self.task
        pinned = {"pinned_model": chosen.model_id, "pinned_revision": chosen.revision}
        return {**self.task, **{key: value for key, value in pinned.items() if value}}


class Run(Told):
    """A run as it stands."""

    run_id: str
    state: str = "queued"
    spec: dict[str, Any] = Field(default_factory=dict)
    """What it was asked to do."""
    tasks: tuple[TaskStatus, ...] = ()
    notes: tuple[dict[str, Any], ...] = ()
    answer: str = ""
    failure: Failure | None = None
    """Why it is incomplete, failed or cancelled."""
    last_sequence: int = 0
    create_time: datetime | None = None
    end_time: datetime | None = None
    conversation_id: str = ""
    usage: dict[str, Any] = Field(default_factory=dict)

    @property
    def is_over(self) -> bool:
        return self.state in ENDS

    @property
    def is_completed(self) -> bool:
        """Everything asked for is there."""
        return self.state == COMPLETED

    @property
    def is_waiting(self) -> bool:
        """Its plan waits for approval."""
        return self.state == "awaiting_approval"

    @property
    def plan(self) -> list[dict[str, Any]]:
        """What another run can be given as its plan: the same tasks, by the same models."""
        return [task.again for task in self.tasks]

    @property
    def artifacts(self) -> list[Artifact]:
        """What its tasks made, each once, in the order of the plan."""
        made = (value for task in self.tasks for value in task.outputs.values() if isinstance(value, Artifact))
        return list({artifact.sha256: artifact for artifact in made}.values())


@dataclass(frozen=True)
class Event:
    """Something that happened to a run. Its events are numbered from 1 without gaps."""

    run_id: str
    sequence: int
    kind: str
    """What happened, such as task_started; new kinds may come."""
    content: Mapping[str, Any] = field(repr=False)
    """All of it."""

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> "Event":
        kind = next((key for key in content if key not in _ENVELOPE), "")
        return cls(str(content["run_id"]), int(content["sequence"]), kind, content)

    @property
    def task_id(self) -> int:
        """The task it is about; 0 means the run."""
        return int(self.content.get("task_id", 0))

    @property
    def body(self) -> Mapping[str, Any]:
        """What belongs to its kind: the text of an answer_chunk, for instance."""
        body = self.content.get(self.kind)
        return body if isinstance(body, dict) else {}


class KeptFile(Told):
    """A file that stays until it is deleted or its time is over."""

    id: str
    artifact: Artifact
    filename: str = ""
    purpose: str = ""
    created_at: int = 0
    """Seconds since the epoch."""
    expires_at: int | None = None


class Conversation(Told):
    """Runs that continue one another; it has the id of the first."""

    id: str
    title: str = ""
    created_at: int = 0
    """Seconds since the epoch."""
    runs: tuple[Run, ...] = ()
    """The first one first; only where one conversation was asked for."""


class Port(Told):
    """What a task takes or gives."""

    name: str
    modality: str = ""
    required: bool = False
    many: bool = False
    description: str = ""


class TaskKind(Told):
    """A kind of task that can be planned now."""

    name: str
    description: str = ""
    inputs: tuple[Port, ...] = ()
    outputs: tuple[Port, ...] = ()
    experts: tuple[str, ...] = ()
    dormant: bool = False


class Model(Told):
    """A model that can be chosen now."""

    id: str
    task: str = ""
    expert: str = ""
    description: str = ""
    license: str = ""
    state: str = ""


@dataclass(frozen=True)
class Page(Generic[T]):
    """Some of a list."""

    items: Sequence[T]
    next: str = ""
    """What to ask for the page after it with; empty on the last one."""

    def __iter__(self) -> Iterator[T]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

"""Objects of the gateway's API; unknown fields are kept."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, Generic, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from gateway.client.errors import InvalidRequest

T = TypeVar("T")

COMPLETED = "completed"
END_STATES = frozenset({COMPLETED, "incomplete", "failed", "cancelled"})

_ENVELOPE = frozenset({"run_id", "sequence", "time", "task_id", "attempt"})


class ApiModel(BaseModel):
    """Base class of API objects."""

    model_config = ConfigDict(frozen=True, extra="allow", protected_namespaces=())


class Artifact(ApiModel):
    """A stored file, identified by its digest."""

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


class Failure(ApiModel):
    """Reason of a failure, and a remedy."""

    reason: str = ""
    message: str = ""
    remedy: str = ""
    port: str = ""


class Candidate(ApiModel):
    """A chosen model."""

    model_id: str = ""
    revision: str = ""
    expert: str = ""
    reason: str = ""


class Result(ApiModel):
    """Result of a task: outputs by port, or a failure."""

    outputs: dict[str, Value] = Field(default_factory=dict)
    failure: Failure | None = None
    by: Candidate | None = None
    attempt: int = 0


class TaskStatus(ApiModel):
    """A task of a run."""

    task: dict[str, Any]
    """The planned task: id, task, arguments, parameters."""
    state: str = "planned"
    result: Result | None = None
    candidate: Candidate | None = None

    @property
    def outputs(self) -> Mapping[str, Any]:
        """Text, JSON or an Artifact, by port."""
        return self.result.outputs if self.result else {}

    @property
    def pinned_task(self) -> dict[str, Any]:
        """The task for a plan, pinned to the model that ran it."""
        chosen = (self.result and self.result.by) or self.candidate
        if chosen is None or not chosen.model_id:
            return self.task
        pinned = {"pinned_model": chosen.model_id, "pinned_revision": chosen.revision}
        return {**self.task, **{key: value for key, value in pinned.items() if value}}


class Run(ApiModel):
    """State of a run."""

    run_id: str
    state: str = "queued"
    spec: dict[str, Any] = Field(default_factory=dict)
    """The request."""
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
        return self.state in END_STATES

    @property
    def is_completed(self) -> bool:
        """Whether all tasks and the answer are complete."""
        return self.state == COMPLETED

    @property
    def is_waiting(self) -> bool:
        """Whether its plan awaits approval."""
        return self.state == "awaiting_approval"

    @property
    def plan(self) -> list[dict[str, Any]]:
        """Plan for another run: the same tasks with the same models."""
        return [task.pinned_task for task in self.tasks]

    @property
    def artifacts(self) -> list[Artifact]:
        """Output artifacts without duplicates, in the order of the plan."""
        outputs = (value for task in self.tasks for value in task.outputs.values() if isinstance(value, Artifact))
        return list({artifact.sha256: artifact for artifact in outputs}.values())


@dataclass(frozen=True)
class Event:
    """An event of a run. Events are numbered from 1 without gaps."""

    run_id: str
    sequence: int
    kind: str
    """Kind of event, such as task_started; new kinds may be added."""
    content: Mapping[str, Any] = field(repr=False)
    """The whole event."""

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> "Event":
        kind = next((key for key in content if key not in _ENVELOPE), "")
        return cls(str(content["run_id"]), int(content["sequence"]), kind, content)

    @property
    def task_id(self) -> int:
        """Id of the event's task; 0 for events of the run."""
        return int(self.content.get("task_id", 0))

    @property
    def body(self) -> Mapping[str, Any]:
        """Data of the event's kind, such as the text of an answer_chunk."""
        body = self.content.get(self.kind)
        return body if isinstance(body, dict) else {}


class StoredFile(ApiModel):
    """A file stored until it is deleted or expires."""

    id: str
    artifact: Artifact
    filename: str = ""
    purpose: str = ""
    created_at: int = 0
    """Seconds since the epoch."""
    expires_at: int | None = None


class Conversation(ApiModel):
    """Runs that continue one another; its id is that of the first run."""

    id: str
    title: str = ""
    created_at: int = 0
    """Seconds since the epoch."""
    runs: tuple[Run, ...] = ()
    """Runs, oldest first; only set if a single conversation was requested."""


class Port(ApiModel):
    """Input or output of a task."""

    name: str
    modality: str = ""
    required: bool = False
    many: bool = False
    description: str = ""


class TaskKind(ApiModel):
    """An available task."""

    name: str
    description: str = ""
    inputs: tuple[Port, ...] = ()
    outputs: tuple[Port, ...] = ()
    experts: tuple[str, ...] = ()
    dormant: bool = False


class Model(ApiModel):
    """An available model."""

    id: str
    task: str = ""
    expert: str = ""
    description: str = ""
    license: str = ""
    state: str = ""


@dataclass(frozen=True)
class Page(Generic[T]):
    """A page of a list."""

    items: Sequence[T]
    next: str = ""
    """Token of the next page; empty on the last page."""

    def __iter__(self) -> Iterator[T]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)


class Pipeline(ApiModel):
    """A plan saved under a name. Versions are immutable."""

    name: str = ""
    """Empty for a plan that is not saved."""
    version: int = 0
    description: str = ""
    inputs: tuple[Port, ...] = ()
    """Parameters."""
    outputs: tuple[Port, ...] = ()
    """Outputs."""
    plan: tuple[dict[str, Any], ...] = ()
    """Tasks."""
    create_time: datetime | None = None
    source_run_id: str = ""
    """The run whose plan was saved."""
    policy: str = ""
    """local: its data never leaves the deployment, whichever client runs it."""


class BatchCounts(ApiModel):
    """Number of items by state."""

    total: int = 0
    waiting: int = 0
    """Items that have not started."""
    running: int = 0
    completed: int = 0
    incomplete: int = 0
    failed: int = 0
    cancelled: int = 0

    @property
    def ended(self) -> int:
        return self.completed + self.incomplete + self.failed + self.cancelled


class Batch(ApiModel):
    """State of a batch."""

    batch_id: str
    state: str = "queued"
    spec: dict[str, Any] = Field(default_factory=dict)
    """The request for each item."""
    pipeline: Pipeline | None = None
    """The plan of each item; None before planning."""
    counts: BatchCounts = BatchCounts()
    create_time: datetime | None = None
    end_time: datetime | None = None
    failure: Failure | None = None
    """Why the whole batch failed."""
    waiting_for: str = ""
    """What the batch waits for; empty: nothing."""
    items_per_second: float = 0.0
    """Recent rate of ended items."""
    remaining: float | None = None
    """Estimated seconds until all items have ended; None if unknown."""

    @property
    def is_over(self) -> bool:
        return self.state in END_STATES


class BatchItem(ApiModel):
    """One item of a batch."""

    index: int
    """Position in the input, from 1."""
    name: str = ""
    inputs: tuple[dict[str, Any], ...] = ()
    state: str = "queued"
    run_id: str = ""
    """Its last run; empty if it has none."""
    outputs: dict[str, Value] = Field(default_factory=dict)
    """Text, JSON or an Artifact, by the names of the pipeline's outputs."""
    failure: Failure | None = None
    usage: dict[str, Any] = Field(default_factory=dict)


class BatchResult(ApiModel):
    """Result of an item."""

    index: int
    name: str = ""
    state: str = "queued"
    run_id: str | None = None
    outputs: dict[str, Value] = Field(default_factory=dict)
    """Text, JSON or an Artifact, by the names of the pipeline's outputs."""
    error: Failure | None = None
    seconds: float | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    """In the currency of the deployment's price table."""


class BatchSummary(ApiModel):
    """Statistics of all items of a batch."""

    batch_id: str
    state: str = "queued"
    counts: BatchCounts = BatchCounts()
    seconds: dict[str, float | None] = Field(default_factory=dict)
    """Seconds of items: total, median, p95."""
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    """In the currency of the deployment's price table."""
    pool_seconds: dict[str, float] = Field(default_factory=dict)
    """Computing seconds by pool."""
    slowest: tuple[dict[str, Any], ...] = ()
    """Index, name and seconds, slowest first."""
    errors: tuple[dict[str, Any], ...] = ()
    """Reason, message, count and example names of each kind of error, most frequent first."""


def reference(pipeline: Pipeline | str) -> dict[str, Any]:
    """Parses the reference of a pipeline: an object, name@version, or a name for the latest version.

    Raises:
        InvalidRequest: PIPELINE, the version is invalid.
    """
    if isinstance(pipeline, Pipeline):
        return {"name": pipeline.name, "version": pipeline.version}
    name, at, version = pipeline.partition("@")
    if not at:
        return {"name": name}
    if not (version.isascii() and version.isdecimal() and int(version)):
        raise InvalidRequest(
            f"{pipeline} has no valid version", code="PIPELINE", remedy=f"use {name}, or {name}@1 for the first version"
        )
    return {"name": name, "version": int(version)}

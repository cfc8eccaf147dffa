"""Pipelines and batches, in the names of the gateway's API."""

from datetime import datetime
from typing import Any

from pydantic import Field

from gateway.client.errors import InvalidRequest
from gateway.client.models import ENDS, Failure, Port, Told, Value


class Pipeline(Told):
    """A plan kept under a name. A version is never changed."""

    name: str = ""
    """Empty for a plan that is not kept under a name."""
    version: int = 0
    description: str = ""
    inputs: tuple[Port, ...] = ()
    """Its parameters."""
    outputs: tuple[Port, ...] = ()
    """What it gives."""
    plan: tuple[dict[str, Any], ...] = ()
    """Its tasks."""
    create_time: datetime | None = None
    source_run_id: str = ""
    """The run from which it was kept."""
    policy: str = ""
    """local: what runs through it never leaves the house, whoever runs it."""


class BatchCounts(Told):
    """How many items of a batch stand where."""

    total: int = 0
    waiting: int = 0
    """Not begun."""
    running: int = 0
    completed: int = 0
    incomplete: int = 0
    failed: int = 0
    cancelled: int = 0

    @property
    def over(self) -> int:
        return self.completed + self.incomplete + self.failed + self.cancelled


class Batch(Told):
    """A batch as it stands."""

    batch_id: str
    state: str = "queued"
    spec: dict[str, Any] = Field(default_factory=dict)
    """What it was asked to do with each of its items."""
    pipeline: Pipeline | None = None
    """What each item runs through; None until it has been planned."""
    counts: BatchCounts = BatchCounts()
    create_time: datetime | None = None
    end_time: datetime | None = None
    failure: Failure | None = None
    """Why it failed as a whole."""
    waiting_for: str = ""
    """Why it begins no new item at the moment."""
    items_per_second: float = 0.0
    """That have ended, of late."""
    remaining: float | None = None
    """Seconds until all items have ended, at that rate; None if there is none."""

    @property
    def is_over(self) -> bool:
        return self.state in ENDS


class BatchItem(Told):
    """One item of a batch."""

    index: int
    """Its place in the input, from 1."""
    name: str = ""
    inputs: tuple[dict[str, Any], ...] = ()
    state: str = "queued"
    run_id: str = ""
    """The last run it was; empty while there is none, or if it could not become one."""
    outputs: dict[str, Value] = Field(default_factory=dict)
    """Text, JSON or an Artifact, by the names of the pipeline's outputs."""
    failure: Failure | None = None
    usage: dict[str, Any] = Field(default_factory=dict)


class BatchResult(Told):
    """What became of an item, as the results of a batch have it."""

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


class BatchSummary(Told):
    """What there is to say about all items of a batch."""

    batch_id: str
    state: str = "queued"
    counts: BatchCounts = BatchCounts()
    seconds: dict[str, float | None] = Field(default_factory=dict)
    """Of items: total, median, p95."""
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    """In the currency of the deployment's price table."""
    pool_seconds: dict[str, float] = Field(default_factory=dict)
    """Of computing, by pool."""
    slowest: tuple[dict[str, Any], ...] = ()
    """Index, name and seconds, the slowest first."""
    errors: tuple[dict[str, Any], ...] = ()
    """Reason, message, count and some names of each kind, the most frequent first."""


def reference(pipeline: Pipeline | str) -> dict[str, Any]:
    """Which version of a pipeline is meant: the one given, or that of name@version, or the latest of a name.

    Raises:
        InvalidRequest: PIPELINE, this is no version.
    """
    if isinstance(pipeline, Pipeline):
        return {"name": pipeline.name, "version": pipeline.version}
    name, at, version = pipeline.partition("@")
    if not at:
        return {"name": name}
    if not (version.isascii() and version.isdecimal() and int(version)):
        raise InvalidRequest(
            f"{pipeline} names no version", code="PIPELINE", remedy=f"say {name}, or {name}@1 for the first version"
        )
    return {"name": name, "version": int(version)}

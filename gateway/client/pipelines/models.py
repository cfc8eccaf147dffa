"""Pipelines and batches of the gateway's API."""

from datetime import datetime
from typing import Any

from pydantic import Field

from gateway.client.errors import InvalidRequest
from gateway.client.models import END_STATES, ApiModel, Failure, Port, Value


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
    """local: its data never leaves the deployment, whoever runs it."""


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

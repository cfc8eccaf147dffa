"""Options of runs and batches, and values of parameters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Literal, TypedDict

from gateway.client.attachments import Attachment, FileId, Part, Url
from gateway.client.errors import InvalidRequest
from gateway.client.models import Artifact, Conversation, Pipeline, Run, StoredFile, reference


@dataclass(frozen=True)
class Json:
    """A JSON value; needed for a JSON string, because a str is text."""

    content: Any


Given = (
    PathLike[str]
    | bytes
    | Attachment
    | FileId
    | Url
    | Artifact
    | StoredFile
    | Json
    | str
    | Mapping[str, Any]
    | Sequence[Any]
    | float
    | bool
    | None
)
"""A file (Path, bytes, FileId, Url, or an artifact of an earlier run), text as a str, otherwise JSON.

Json marks a value as JSON.
"""


def part_or_value(given: Given, name: str) -> Part | dict[str, Any]:
    """Converts a value to a file part, or to an inline value."""
    match given:
        case Attachment() | FileId() | Url() | Artifact():
            return given
        case StoredFile():
            return given.artifact
        case bytes():
            return Attachment(name, given)
        case PathLike():
            return Attachment(Path(given).name, Path(given))
        case str():
            return {"text": given}
    return {"json": given.content if isinstance(given, Json) else given}


DataPolicy = Literal["local", "open"]
InferenceMode = Literal["local", "hybrid", "remote"]


class Budget(TypedDict, total=False):
    """Resource limits of a run."""

    llm_tokens: int
    tasks: int
    expert_time: float
    """Total seconds of experts."""
    wall_time: float
    """Seconds from the start to the end of the run."""


class Constraints(TypedDict, total=False):
    """Constraints on the models of a run."""

    licenses: Sequence[str]
    languages: Sequence[str]
    max_parameter_count: int
    allowed: Sequence[str]
    """Ids of the allowed models."""
    regions: Sequence[str]


class Options(TypedDict, total=False):
    """Options of a run; all are optional."""

    plan: Run | Sequence[Mapping[str, Any]]
    """Runs this plan, or that of a run, instead of planning."""
    pipeline: Pipeline | str
    """Runs this saved pipeline: name for the latest version, or name@version. Files fill its parameters in order."""
    inputs: Mapping[str, Given]
    """Values of parameters by name."""
    policy: DataPolicy
    """local: no data leaves the deployment."""
    mode: Literal["plan", "approve", "results"]
    """plan: only plan; approve: plan and wait for approval; results: run without an answer."""
    inference_mode: InferenceMode
    """Whether models of the deployment or external models run the tasks."""
    selection_policy: Literal["rank", "llm"]
    budget: Budget
    constraints: Constraints
    conversation: Run | Conversation | str
    """Continues this run, the run of this id, or the last run of this conversation."""
    bypass_memo: bool
    """Ignores cached results of earlier runs."""
    metadata: Mapping[str, str]
    """Stored with the run for the client."""
    idempotency_key: str
    """Requests with the same key start only one run, for 24 hours. Unset: a random key, for safe retries."""


_OWN = ("plan", "pipeline", "inputs", "conversation", "idempotency_key")


def spec(request: str, options: Options) -> dict[str, Any]:
    """Builds the run spec, without files and inputs."""
    spec: dict[str, Any] = {"request": request}
    if plan := options.get("plan"):
        spec["plan"] = plan.plan if isinstance(plan, Run) else list(plan)
    if pipeline := options.get("pipeline"):
        spec["pipeline"] = reference(pipeline)
    if conversation := options.get("conversation"):
        spec["parent_run_id"] = _last(conversation)
    return spec | {key: value for key, value in options.items() if key not in _OWN and value is not None}


def _last(conversation: Run | Conversation | str) -> str:
    match conversation:
        case Run():
            return conversation.run_id
        case Conversation():
            return conversation.runs[-1].run_id if conversation.runs else conversation.id
    return conversation


Plan = Run | Sequence[Mapping[str, Any]]
"""A list of tasks, or a run whose tasks run again on the same models."""


class BatchOptions(TypedDict, total=False):
    """Exactly one of pipeline, plan, request and run is required; the rest is optional."""

    pipeline: Pipeline | str
    """A saved pipeline: name for the latest version, or name@version."""
    plan: Plan
    """A plan whose arguments refer to named inputs."""
    request: str
    """A request that is planned once, on the first item."""
    run: Run | str
    """Runs the plan of this run or run id; its inputs become parameters."""
    policy: DataPolicy
    """local: no data of the batch leaves the deployment."""
    budget: Budget
    """Budget of each item."""
    max_at_once: int
    """Limit of concurrent items, in addition to the deployment's."""
    inference_mode: InferenceMode
    constraints: Constraints
    bypass_memo: bool
    """Ignores cached results of earlier runs."""
    metadata: Mapping[str, str]
    """Stored with the batch for the client."""
    idempotency_key: str
    """Requests with the same key start only one batch. Unset: a random key, for safe retries."""


_SOURCES = ("pipeline", "plan", "request", "run")


def batch_spec(options: BatchOptions) -> dict[str, Any]:
    """Builds the batch spec, without items.

    Raises:
        InvalidRequest: SPEC, not exactly one source of a plan is given; PIPELINE.
    """
    sources = [name for name in _SOURCES if options.get(name)]
    if len(sources) != 1:
        remedy = "give a pipeline, a plan, a request or a run"
        raise InvalidRequest("a batch needs exactly one plan", code="SPEC", remedy=remedy)
    rest = {key: value for key, value in options.items() if key not in (*_SOURCES, "idempotency_key")}
    return {**_source(options), **{key: value for key, value in rest.items() if value is not None}}


def _source(options: BatchOptions) -> dict[str, Any]:
    if pipeline := options.get("pipeline"):
        return {"pipeline": reference(pipeline)}
    if plan := options.get("plan"):
        return {"plan": _tasks(plan)}
    if run := options.get("run"):
        return {"run_id": run_id(run)}
    return {"request": options["request"]}


def _tasks(plan: Plan) -> list[Mapping[str, Any]]:
    return plan.plan if isinstance(plan, Run) else list(plan)  # type: ignore[return-value]  # list is invariant


def run_id(run: Run | str) -> str:
    return run.run_id if isinstance(run, Run) else run

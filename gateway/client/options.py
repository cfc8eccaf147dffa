"""Options of a run."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

from gateway.client.models import Conversation, Run
from gateway.client.pipelines.models import Pipeline, reference
from gateway.client.values import Given

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

"""What one can say about a run beside its words and files."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

from gateway.client.models import Conversation, Run
from gateway.client.pipelines.models import Pipeline, reference
from gateway.client.values import Given

DataPolicy = Literal["local", "open"]
InferenceMode = Literal["local", "hybrid", "remote"]


class Budget(TypedDict, total=False):
    """What a run may use up."""

    llm_tokens: int
    tasks: int
    expert_time: float
    """Seconds of experts, summed."""
    wall_time: float
    """Seconds from acceptance to the end."""


class Constraints(TypedDict, total=False):
    """What the models of a run must satisfy."""

    licenses: Sequence[str]
    languages: Sequence[str]
    max_parameter_count: int
    allowed: Sequence[str]
    """Only these model ids."""
    regions: Sequence[str]


class Options(TypedDict, total=False):
    """All may be left out."""

    plan: Run | Sequence[Mapping[str, Any]]
    """Run this plan, or that of a run, instead of making one."""
    pipeline: Pipeline | str
    """Run this kept plan: its name for the latest version, or name@version. Files are its parameters in their order."""
    inputs: Mapping[str, Given]
    """What parameters are given, by their names."""
    policy: DataPolicy
    """local: no byte leaves the house."""
    mode: Literal["plan", "approve", "results"]
    """plan: only that; approve: plan and wait; results: without an answer in words."""
    inference_mode: InferenceMode
    """Whether the house's own models do the work, or others."""
    selection_policy: Literal["rank", "llm"]
    budget: Budget
    constraints: Constraints
    conversation: Run | Conversation | str
    """Continue after this run, the run of this id, or the last run of this conversation."""
    bypass_memo: bool
    """Take no results from earlier runs."""
    metadata: Mapping[str, str]
    """Kept with the run for whoever asked."""
    idempotency_key: str
    """Same key, same request: same run, for 24 h. Unset: a new one, so that a lost connection starts no second run."""


_OWN = ("plan", "pipeline", "inputs", "conversation", "idempotency_key")


def spec(request: str, options: Options) -> dict[str, Any]:
    """What is asked, as a gateway takes it, without files and inputs."""
    told: dict[str, Any] = {"request": request}
    if plan := options.get("plan"):
        told["plan"] = plan.plan if isinstance(plan, Run) else list(plan)
    if pipeline := options.get("pipeline"):
        told["pipeline"] = reference(pipeline)
    if conversation := options.get("conversation"):
        told["parent_run_id"] = _last(conversation)
    return told | {key: value for key, value in options.items() if key not in _OWN and value is not None}


def _last(conversation: Run | Conversation | str) -> str:
    match conversation:
        case Run():
            return conversation.run_id
        case Conversation():
            return conversation.runs[-1].run_id if conversation.runs else conversation.id
    return conversation

"""Options of a batch."""

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from gateway.client.errors import InvalidRequest
from gateway.client.models import Run
from gateway.client.options import Budget, Constraints, DataPolicy, InferenceMode
from gateway.client.pipelines.models import Pipeline, reference

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

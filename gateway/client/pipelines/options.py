"""What one can say about a batch."""

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from gateway.client.errors import InvalidRequest
from gateway.client.models import Run
from gateway.client.options import Budget, Constraints, DataPolicy, InferenceMode
from gateway.client.pipelines.models import Pipeline, reference

Plan = Run | Sequence[Mapping[str, Any]]
"""Tasks, as a run or ask --json has them; of a run: the same tasks by the same models."""


class BatchOptions(TypedDict, total=False):
    """One of the first four says what is run on each item; the rest may be left out."""

    pipeline: Pipeline | str
    """A kept plan: its name for the latest version, or name@version."""
    plan: Plan
    """A plan whose arguments refer to named inputs."""
    request: str
    """Words, planned once, on the first item."""
    run: Run | str
    """The plan of this run, or of the run of this id; its inputs are the parameters."""
    policy: DataPolicy
    """local: no byte of it leaves the house."""
    budget: Budget
    """Of each item."""
    max_at_once: int
    """Items under way at once; the deployment's limit holds as well."""
    inference_mode: InferenceMode
    constraints: Constraints
    bypass_memo: bool
    """Take no results from earlier runs."""
    metadata: Mapping[str, str]
    """Kept with the batch for whoever asked."""
    idempotency_key: str
    """Same key, same spec and items: same batch. Unset: a new one, so that a lost connection starts no second batch."""


_SOURCES = ("pipeline", "plan", "request", "run")


def batch_spec(options: BatchOptions) -> dict[str, Any]:
    """What is asked, as a gateway takes it, without items.

    Raises:
        InvalidRequest: SPEC, not one thing is named that is to be run; PIPELINE.
    """
    sources = [name for name in _SOURCES if options.get(name)]
    if len(sources) != 1:
        remedy = "name a pipeline, a plan, a request or a run"
        raise InvalidRequest("a batch runs one thing on its items", code="SPEC", remedy=remedy)
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
    return plan.plan if isinstance(plan, Run) else list(plan)  # type: ignore[return-value]  # lists of Python do not vary


def run_id(run: Run | str) -> str:
    return run.run_id if isinstance(run, Run) else run

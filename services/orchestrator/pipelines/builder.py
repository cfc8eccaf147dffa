"""Builds pipelines from plans and ended runs, and checks that their tasks can run."""

from collections.abc import Awaitable, Callable, Mapping

from protos.hugginggpt.internal.v1 import planner_pb2
from protos.hugginggpt.internal.v1.selector_pb2 import SelectResponse
from protos.hugginggpt.run_state import RunFold
from protos.hugginggpt.tasks import standard_tasks
from protos.hugginggpt.v1.caller_pb2 import (
    DATA_POLICY_LOCAL,
    DATA_POLICY_OPEN,
    DATA_POLICY_UNSPECIFIED,
    Caller,
    DataPolicy,
)
from protos.hugginggpt.v1.model_pb2 import INFERENCE_MODE_UNSPECIFIED, Constraints, InferenceMode
from protos.hugginggpt.v1.pipeline_pb2 import Pipeline
from protos.hugginggpt.v1.plan_pb2 import Plan
from protos.hugginggpt.v1.run_pb2 import RunSpec
from protos.hugginggpt.v1.task_pb2 import Argument, Task
from services.common import call_context
from services.common.errors import FailedPrecondition, InvalidRequest, NotFound
from services.orchestrator.journal import Journal
from services.orchestrator.pipelines import parameters
from services.orchestrator.runs import new_run
from services.orchestrator.runs.history import read_fold
from services.orchestrator.runs.selector_client import SelectorClient

CheckPlan = Callable[[planner_pb2.PlanRequest], Awaitable[Plan]]


class PipelineBuilder:
    """Builds unnamed pipelines, for batches and for saving.

    Args:
        journal: of runs, from whose plans pipelines are built.
        selector: returns candidates of tasks.
        check_plan: checks a plan with the planner; returns it completed.
    """

    def __init__(self, journal: Journal, selector: SelectorClient, check_plan: CheckPlan) -> None:
        self._journal = journal
        self._selector = selector
        self._check_plan = check_plan

    async def from_plan(self, plan: Plan, *, pin: bool = False) -> Pipeline:
        """Builds an unnamed pipeline from a plan: checked, with its parameters and outputs.

        Args:
            plan: its tasks refer to named inputs where they take parameters.
            pin: pin each task to the model that would run it now.

        Raises:
            InvalidRequest: it has no task, or is invalid; or TOO_LARGE, a value must be an artifact.
            FailedPrecondition: TASK_UNAVAILABLE or POLICY.
        """
        if not plan.tasks:
            raise InvalidRequest("the plan has no task", reason="EMPTY", port="plan", remedy="add a task")
        new_run.validate(RunSpec(plan=plan))
        offers, missing = await self._offers(plan)
        specs = {**standard_tasks(), **{offer.spec.name: offer.spec for offer in offers.values()}}
        inputs = parameters.derive_inputs(plan, specs)
        draft = planner_pb2.PlanGoal(check=planner_pb2.CheckPlan(draft=plan))
        checked = await self._check_plan(planner_pb2.PlanRequest(inputs=parameters.sample_inputs(inputs), goal=draft))
        if missing:
            raise missing
        if pin:
            for task in checked.tasks:
                best = offers[task.id].candidates[0].candidate
                task.pinned_model, task.pinned_revision = best.model_id, best.revision
        return Pipeline(inputs=inputs, outputs=parameters.derive_outputs(checked, specs), plan=checked)

    async def from_run(self, run_id: str, *, pin: bool = False) -> Pipeline:
        """Builds a pipeline from the plan of an ended run, with the run's inputs as parameters and its data policy.

        Args:
            run_id: ID of the run.
            pin: pin each task to the model that ran it.

        Raises:
            NotFound: RUN.
            FailedPrecondition: RUNNING, NO_PLAN, TASK_UNAVAILABLE or POLICY.
            CorruptData: its events cannot be read.
        """
        row = await self._journal.row(run_id, call_context.current().tenant)
        if not row.has_ended:
            raise FailedPrecondition(f"run {run_id} has not ended", reason="RUNNING", remedy="wait for its end")
        fold = await read_fold(run_id, self._journal)
        if not fold.run.tasks:
            raise FailedPrecondition(f"run {run_id} has no plan", reason="NO_PLAN", remedy="use another run")
        policy = DATA_POLICY_UNSPECIFIED if row.caller.policy == DATA_POLICY_OPEN else DATA_POLICY_LOCAL
        with call_context.use_caller(with_policy(call_context.current(), policy)):
            pipeline = await self.from_plan(_plan_of(fold, pin=pin))
        pipeline.source_run_id, pipeline.policy = run_id, policy
        return pipeline

    async def check_available(self, plan: Plan, mode: "InferenceMode.ValueType", constraints: Constraints) -> None:
        """Checks that each task of a plan has a candidate; calls the selector only if the catalogue has changed.

        Raises:
            FailedPrecondition: TASK_UNAVAILABLE, a task or pinned model is no longer offered; or POLICY.
            Unavailable: the selector is unavailable.
        """
        _, missing = await self._offers(plan, mode, constraints)
        if missing:
            raise missing

    async def _offers(
        self,
        plan: Plan,
        mode: "InferenceMode.ValueType" = INFERENCE_MODE_UNSPECIFIED,
        constraints: Constraints | None = None,
    ) -> tuple[Mapping[int, SelectResponse], FailedPrecondition | None]:
        """Candidates by task ID, and the error of the first task without candidates."""
        offers: dict[int, SelectResponse] = {}
        missing: FailedPrecondition | None = None
        for task in plan.tasks:
            try:
                offers[task.id] = await self._selector.select_cached(task, mode, constraints)
            except NotFound as error:
                message = f"task {task.id} ({_title(task)}): {error.message}"
                missing = missing or FailedPrecondition(message, reason="TASK_UNAVAILABLE", remedy=error.remedy)
        return offers, missing


def with_policy(caller: Caller, policy: "DataPolicy.ValueType") -> Caller:
    """The caller with the stricter of both data policies; an unknown policy counts as local."""
    result = Caller()
    result.CopyFrom(caller)
    if policy not in {DATA_POLICY_UNSPECIFIED, DATA_POLICY_OPEN}:
        result.policy = DATA_POLICY_LOCAL
    return result


def _plan_of(fold: RunFold, *, pin: bool) -> Plan:
    """The executed plan without replaced tasks; values that were inputs of the run become parameters."""
    names = {item.value.artifact.sha256: item.name for item in reversed(fold.run.spec.inputs)}
    names.pop("", None)
    plan = Plan()
    for status in fold.run.tasks:
        if status.task.id in fold.replaced:
            continue
        task = plan.tasks.add()
        task.CopyFrom(status.task)
        for argument in task.arguments.values():
            _use_inputs(argument, names)
        if pin:
            _pin(task, status.result.by.model_id or status.candidate.model_id, status.result.by.revision)
    return plan


def _use_inputs(argument: Argument, names: Mapping[str, str]) -> None:
    for item in argument.list.items:
        _use_inputs(item, names)
    if argument.HasField("value") and (name := names.get(argument.value.artifact.sha256)):
        argument.input.name = name


def _pin(task: Task, model: str, revision: str) -> None:
    if not model:
        raise FailedPrecondition(
            f"task {task.id} ({task.task}) has not run: there is no model to pin",
            reason="NO_PLAN",
            remedy="save without pinned models, or use a run of which all tasks ran",
        )
    task.pinned_model, task.pinned_revision = model, revision


def _title(task: Task) -> str:
    model = f" by {task.pinned_model}" if task.pinned_model else ""
    return f"{task.task}{model}{'@' + task.pinned_revision if task.pinned_revision else ''}"

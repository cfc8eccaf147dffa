"""Pipelines of callers: saves, reads and deletes them, applies them to runs, and checks that they can run."""

import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from difflib import get_close_matches

from protos.hugginggpt.internal.v1 import planner_pb2
from protos.hugginggpt.internal.v1.selector_pb2 import SelectResponse
from protos.hugginggpt.run_state import RunFold
from protos.hugginggpt.tasks import standard_tasks
from protos.hugginggpt.v1.artifact_pb2 import MODALITY_UNSPECIFIED
from protos.hugginggpt.v1.caller_pb2 import (
    DATA_POLICY_LOCAL,
    DATA_POLICY_OPEN,
    DATA_POLICY_UNSPECIFIED,
    Caller,
    DataPolicy,
)
from protos.hugginggpt.v1.gateway_pb2 import SavePipelineRequest
from protos.hugginggpt.v1.model_pb2 import INFERENCE_MODE_UNSPECIFIED, SELECTION_POLICY_RANK, Constraints, InferenceMode
from protos.hugginggpt.v1.pipeline_pb2 import Pipeline, PipelineRef
from protos.hugginggpt.v1.plan_pb2 import Plan
from protos.hugginggpt.v1.run_pb2 import RunSpec
from protos.hugginggpt.v1.task_pb2 import Argument, Port, Task
from services.common import call_context
from services.common.errors import FailedPrecondition, InvalidRequest, NotFound
from services.orchestrator.journal import Journal
from services.orchestrator.journal.pages import Page
from services.orchestrator.journal.pipelines import PipelineStore
from services.orchestrator.pipelines import parameters
from services.orchestrator.runs import acceptance
from services.orchestrator.runs.conversation import read_fold
from services.orchestrator.runs.selection import SelectorClient

Check = Callable[[planner_pb2.PlanRequest], Awaitable[Plan]]

_NAME = re.compile(r"[a-z][a-z0-9._-]{0,62}")
_LIST_HINT = "check the name; `hugginggpt pipelines` or `GET /v1/pipelines` lists them"


class PipelineService:
    """The caller's pipelines.

    Args:
        store: of pipelines.
        journal: of runs, from whose plans pipelines are made.
        selector: returns candidates of tasks.
        check: checks a plan with the planner.
    """

    def __init__(self, store: PipelineStore, journal: Journal, selector: SelectorClient, check: Check) -> None:
        self._store = store
        self._journal = journal
        self._selector = selector
        self._check = check

    async def save(self, request: SavePipelineRequest) -> Pipeline:
        """Stores a plan as the next version of a name.

        Raises:
            InvalidRequest: the name or the plan is invalid, or there is no plan.
            NotFound: RUN.
            FailedPrecondition: RUNNING, the run has not ended; NO_PLAN, it has no plan; TASK_UNAVAILABLE or POLICY.
        """
        if not _NAME.fullmatch(request.name):
            raise InvalidRequest(
                f"{request.name!r} is not a valid name of a pipeline",
                port="name",
                remedy="use lower-case letters, digits, '.', '-' and '_'; begin with a letter; at most 63 characters",
            )
        with call_context.use_caller(with_policy(call_context.current(), request.policy)):
            if request.HasField("run_id"):
                pipeline = await self.from_run(request.run_id, pin=request.pin_models)
            else:
                pipeline = await self.from_plan(request.plan, pin=request.pin_models)
        _describe(pipeline, request.inputs)
        pipeline.name, pipeline.description = request.name, request.description
        pipeline.policy = pipeline.policy or request.policy
        return await self._store.save(call_context.current().tenant, pipeline)

    async def get(self, ref: PipelineRef) -> Pipeline:
        """A version of a pipeline; the latest for 0.

        Raises:
            NotFound: PIPELINE.
        """
        if found := await self._store.get(call_context.current().tenant, ref.name, ref.version):
            return found
        raise _unknown(ref)

    async def list(self, after: str, limit: int) -> Page[Pipeline]:
        """The latest version of each pipeline, by name; a page of them."""
        return await self._store.latest(call_context.current().tenant, after, limit)

    async def versions(self, name: str, before: int, limit: int) -> Page[Pipeline]:
        """The versions of one pipeline, latest first; a page of them."""
        return await self._store.versions(call_context.current().tenant, name, before, limit)

    async def delete(self, ref: PipelineRef) -> None:
        """Deletes a version; all for 0.

        Raises:
            NotFound: PIPELINE.
        """
        if not await self._store.delete(call_context.current().tenant, ref.name, ref.version):
            raise _unknown(ref)

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
        acceptance.validate(RunSpec(plan=plan))
        offers, missing = await self._offers(plan)
        specs = {**standard_tasks(), **{offer.spec.name: offer.spec for offer in offers.values()}}
        inputs = parameters.parameters(plan, specs)
        draft = planner_pb2.PlanGoal(check=planner_pb2.CheckPlan(draft=plan))
        checked = await self._check(planner_pb2.PlanRequest(inputs=parameters.samples(inputs), goal=draft))
        if missing:
            raise missing
        if pin:
            for task in checked.tasks:
                best = offers[task.id].candidates[0].candidate
                task.pinned_model, task.pinned_revision = best.model_id, best.revision
        return Pipeline(inputs=inputs, outputs=parameters.results(checked, specs), plan=checked)

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
        if not row.ended:
            raise FailedPrecondition(f"run {run_id} has not ended", reason="RUNNING", remedy="wait for its end")
        fold = await read_fold(run_id, self._journal)
        if not fold.run.tasks:
            raise FailedPrecondition(f"run {run_id} has no plan", reason="NO_PLAN", remedy="use another run")
        policy = DATA_POLICY_UNSPECIFIED if row.caller.policy == DATA_POLICY_OPEN else DATA_POLICY_LOCAL
        with call_context.use_caller(with_policy(call_context.current(), policy)):
            pipeline = await self.from_plan(_plan(fold, pin=pin))
        pipeline.source_run_id, pipeline.policy = run_id, policy
        return pipeline

    async def apply_to_run(self, spec: RunSpec) -> Caller:
        """Copies the pipeline that a run names into its spec; returns the caller with the pipeline's data policy.

        Raises:
            InvalidRequest: the inputs do not fit, or the plan exceeds the budget (BUDGET).
            NotFound: PIPELINE.
            FailedPrecondition: TASK_UNAVAILABLE or POLICY.
        """
        pipeline = await self.get(spec.pipeline)
        acceptance.validate(RunSpec(plan=pipeline.plan, budget=spec.budget))
        parameters.assign_files(pipeline.inputs, spec.inputs)
        parameters.check(pipeline.inputs, spec.inputs)
        caller = with_policy(call_context.current(), pipeline.policy)
        with call_context.use_caller(caller):
            await self.check_available(pipeline.plan, spec.inference_mode, spec.constraints)
        spec.pipeline.version = pipeline.version
        spec.plan.CopyFrom(pipeline.plan)
        spec.selection_policy = SELECTION_POLICY_RANK
        return caller

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


def _plan(fold: RunFold, *, pin: bool) -> Plan:
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


def _describe(pipeline: Pipeline, declared: Collection[Port]) -> None:
    """Adds the caller's descriptions of inputs."""
    inputs = {port.name: port for port in pipeline.inputs}
    for port in declared:
        if port.name not in inputs:
            raise _unused(pipeline.plan, port.name, [each.name for each in declared], inputs)
        if port.modality not in {MODALITY_UNSPECIFIED, inputs[port.name].modality}:
            message = f"the modality of input {port.name} is not that of the tasks that use it"
            raise InvalidRequest(message, port=port.name, remedy="leave its modality unspecified")
        inputs[port.name].description = port.description or inputs[port.name].description


def _unused(plan: Plan, name: str, declared: Collection[str], inputs: Collection[str]) -> InvalidRequest:
    """The error for a declared input that no task uses; names a similar one that a task uses but is not declared."""
    if similar := get_close_matches(name, [each for each in inputs if each not in declared], n=1, cutoff=0):
        task = next(task.id for task in plan.tasks if similar[0] in parameters.inputs_of(task))
        message = f"task {task} uses {similar[0]}, which is not among the inputs ({', '.join(declared)})"
        return InvalidRequest(message, port=name, remedy="use the same name in both")
    message = f"no task uses the input {name}"
    return InvalidRequest(message, port=name, remedy=f"the plan's inputs are {', '.join(inputs) or 'none'}")


def _title(task: Task) -> str:
    model = f" by {task.pinned_model}" if task.pinned_model else ""
    return f"{task.task}{model}{'@' + task.pinned_revision if task.pinned_revision else ''}"


def _unknown(ref: PipelineRef) -> NotFound:
    which = f" version {ref.version}" if ref.version else ""
    return NotFound(f"there is no pipeline {ref.name or '(unnamed)'}{which}", reason="PIPELINE", remedy=_LIST_HINT)

"""Plans kept under a name: saved, read, filled in for runs, and vouched for by what is offered now."""

import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from difflib import get_close_matches

from protos.hugginggpt.internal.v1 import planner_pb2
from protos.hugginggpt.internal.v1.selector_pb2 import SelectResponse
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
from services.orchestrator.journal.pipelines import KeptPipelines
from services.orchestrator.pipelines import parameters
from services.orchestrator.runs import acceptance
from services.orchestrator.runs.conversation import view_of
from services.orchestrator.runs.run_state import RunView
from services.orchestrator.runs.selection import Selections

Check = Callable[[planner_pb2.PlanRequest], Awaitable[Plan]]

_NAME = re.compile(r"[a-z][a-z0-9._-]{0,62}")
_LISTED = "check the name; `hugginggpt pipelines` or `GET /v1/pipelines` lists them"


class Pipelines:
    """The caller's pipelines.

    Args:
        kept: where they are.
        journal: where runs are, from which they may come.
        selections: who can do their tasks.
        check: the planner's word on a plan.
    """

    def __init__(self, kept: KeptPipelines, journal: Journal, selections: Selections, check: Check) -> None:
        self._kept = kept
        self._journal = journal
        self._selections = selections
        self._check = check

    async def save(self, request: SavePipelineRequest) -> Pipeline:
        """Keeps a plan as the next version of a name.

        Raises:
            InvalidRequest: the name is none, there is no plan, or it is not valid.
            NotFound: RUN.
            FailedPrecondition: RUNNING, the run has not ended; NO_PLAN, it has none; VANISHED or POLICY.
        """
        if not _NAME.fullmatch(request.name):
            raise InvalidRequest(
                f"{request.name!r} is no name for a pipeline",
                port="name",
                remedy="use lower-case letters, digits, '.', '-' and '_', a letter first, 63 at most",
            )
        with call_context.use_caller(stricter(call_context.current(), request.policy)):
            if request.HasField("run_id"):
                pipeline = await self.of_run(request.run_id, pin=request.pin_models)
            else:
                pipeline = await self.drafted(request.plan, pin=request.pin_models)
        _describe(pipeline, request.inputs)
        pipeline.name, pipeline.description = request.name, request.description
        pipeline.policy = pipeline.policy or request.policy
        return await self._kept.save(call_context.current().tenant, pipeline)

    async def get(self, ref: PipelineRef) -> Pipeline:
        """A version of a pipeline; the latest for 0.

        Raises:
            NotFound: PIPELINE.
        """
        if found := await self._kept.get(call_context.current().tenant, ref.name, ref.version):
            return found
        raise _unknown(ref)

    async def listed(self, after: str, limit: int) -> Page[Pipeline]:
        """The latest version of each, by name; of large ones fewer."""
        return await self._kept.latest(call_context.current().tenant, after, limit)

    async def versions(self, name: str, before: int, limit: int) -> Page[Pipeline]:
        """The versions of one, the latest first; of large ones fewer."""
        return await self._kept.versions(call_context.current().tenant, name, before, limit)

    async def delete(self, ref: PipelineRef) -> None:
        """Removes a version; all for 0.

        Raises:
            NotFound: PIPELINE.
        """
        if not await self._kept.delete(call_context.current().tenant, ref.name, ref.version):
            raise _unknown(ref)

    async def drafted(self, plan: Plan, *, pin: bool = False) -> Pipeline:
        """A plan with its parameters and results, checked, under no name yet.

        Args:
            plan: its tasks refer to named inputs where they take parameters.
            pin: to the models that would run its tasks now.

        Raises:
            InvalidRequest: it has no task, or is not valid; or TOO_LARGE, what it says is to be an artifact.
            FailedPrecondition: VANISHED or POLICY.
        """
        if not plan.tasks:
            raise InvalidRequest("the plan has no task", reason="EMPTY", port="plan", remedy="give it one")
        acceptance.check(RunSpec(plan=plan))
        offers, missing = await self._offers(plan)
        specs = {**standard_tasks(), **{offer.spec.name: offer.spec for offer in offers.values()}}
        taken = parameters.parameters(plan, specs)
        draft = planner_pb2.PlanGoal(check=planner_pb2.CheckPlan(draft=plan))
        checked = await self._check(planner_pb2.PlanRequest(inputs=parameters.samples(taken), goal=draft))
        if missing:
            raise missing
        if pin:
            for task in checked.tasks:
                best = offers[task.id].candidates[0]
                task.pinned_model, task.pinned_revision = best.model_id, best.revision
        return Pipeline(inputs=taken, outputs=parameters.results(checked, specs), plan=checked)

    async def of_run(self, run_id: str, *, pin: bool = False) -> Pipeline:
        """The plan of a run that has ended, its inputs as parameters; of one that keeps its data in, it does so, too.

        Args:
            run_id: the run.
            pin: to the models that ran its tasks.

        Raises:
            NotFound: RUN.
            FailedPrecondition: RUNNING, NO_PLAN, VANISHED or POLICY.
            CorruptData: its events cannot be read.
        """
        row = await self._journal.row(run_id, call_context.current().tenant)
        if not row.ended:
            raise FailedPrecondition(f"run {run_id} has not ended", reason="RUNNING", remedy="wait for its end")
        view = await view_of(run_id, self._journal)
        if not view.run.tasks:
            raise FailedPrecondition(f"run {run_id} has no plan", reason="NO_PLAN", remedy="name another run")
        policy = DATA_POLICY_UNSPECIFIED if row.caller.policy == DATA_POLICY_OPEN else DATA_POLICY_LOCAL
        with call_context.use_caller(stricter(call_context.current(), policy)):
            pipeline = await self.drafted(_plan(view, pin=pin))
        pipeline.source_run_id, pipeline.policy = run_id, policy
        return pipeline

    async def fill(self, spec: RunSpec) -> Caller:
        """Puts a pipeline's plan into the run that names it, and its files where they fit; gives whose it then is.

        Raises:
            InvalidRequest: the inputs do not fit, or the budget does not (BUDGET).
            NotFound: PIPELINE.
            FailedPrecondition: VANISHED or POLICY.
        """
        pipeline = await self.get(spec.pipeline)
        acceptance.check(RunSpec(plan=pipeline.plan, budget=spec.budget))
        parameters.place(pipeline.inputs, spec.inputs)
        parameters.check(pipeline.inputs, spec.inputs)
        who = stricter(call_context.current(), pipeline.policy)
        with call_context.use_caller(who):
            await self.vouch(pipeline.plan, spec.inference_mode, spec.constraints)
        spec.pipeline.version = pipeline.version
        spec.plan.CopyFrom(pipeline.plan)
        spec.selection_policy = SELECTION_POLICY_RANK
        return who

    async def vouch(self, plan: Plan, mode: "InferenceMode.ValueType", constraints: Constraints) -> None:
        """Sees whether each task of a plan can be done now; asks the selector only if the catalogue has changed.

        Raises:
            FailedPrecondition: VANISHED, a task or a pinned model is not offered any more; or POLICY.
            Unavailable: the selector does not answer.
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
        """What is offered for each task, and what is wrong with the first for which nothing is."""
        offers: dict[int, SelectResponse] = {}
        missing: FailedPrecondition | None = None
        for task in plan.tasks:
            try:
                offers[task.id] = await self._selections.standing(task, mode, constraints)
            except NotFound as error:
                what = f"task {task.id} ({_named(task)}): {error.message}"
                missing = missing or FailedPrecondition(what, reason="VANISHED", remedy=error.remedy)
        return offers, missing


def stricter(who: Caller, policy: "DataPolicy.ValueType") -> Caller:
    """The caller, kept in the house if one of both says so, or what nobody here knows."""
    kept = Caller()
    kept.CopyFrom(who)
    if policy not in {DATA_POLICY_UNSPECIFIED, DATA_POLICY_OPEN}:
        kept.policy = DATA_POLICY_LOCAL
    return kept


def _plan(view: RunView, *, pin: bool) -> Plan:
    """What ran, but what another way was found to; what was given as an input is a parameter."""
    names = {item.value.artifact.sha256: item.name for item in reversed(view.run.spec.inputs)}
    names.pop("", None)
    plan = Plan()
    for status in view.run.tasks:
        if status.task.id in view.replaced:
            continue
        task = plan.tasks.add()
        task.CopyFrom(status.task)
        for argument in task.arguments.values():
            _generalise(argument, names)
        if pin:
            _pin(task, status.result.by.model_id or status.candidate.model_id, status.result.by.revision)
    return plan


def _generalise(argument: Argument, names: Mapping[str, str]) -> None:
    for item in argument.list.items:
        _generalise(item, names)
    if argument.HasField("value") and (name := names.get(argument.value.artifact.sha256)):
        argument.input.name = name


def _pin(task: Task, model: str, revision: str) -> None:
    if not model:
        raise FailedPrecondition(
            f"task {task.id} ({task.task}) was not run: there is no model to pin",
            reason="NO_PLAN",
            remedy="leave the models to selection, or name a run whose tasks were all run",
        )
    task.pinned_model, task.pinned_revision = model, revision


def _describe(pipeline: Pipeline, said: Collection[Port]) -> None:
    taken = {port.name: port for port in pipeline.inputs}
    for port in said:
        if port.name not in taken:
            raise _unused(pipeline.plan, port.name, [each.name for each in said], taken)
        if port.modality not in {MODALITY_UNSPECIFIED, taken[port.name].modality}:
            raise InvalidRequest(
                f"input {port.name} is not what its tasks take", port=port.name, remedy="leave its modality out"
            )
        taken[port.name].description = port.description or taken[port.name].description


def _unused(plan: Plan, name: str, declared: Collection[str], taken: Collection[str]) -> InvalidRequest:
    """An input is declared that no task takes: perhaps one of them takes it under another name."""
    if meant := get_close_matches(name, [each for each in taken if each not in declared], n=1, cutoff=0):
        task = next(task.id for task in plan.tasks if meant[0] in parameters.inputs_of(task))
        said = f"task {task} takes {meant[0]}, which is not among the inputs ({', '.join(declared)})"
        return InvalidRequest(said, port=name, remedy="call it the same in both places")
    said = f"no task takes the input {name}"
    return InvalidRequest(said, port=name, remedy=f"it takes {', '.join(taken) or 'none'}")


def _named(task: Task) -> str:
    model = f" by {task.pinned_model}" if task.pinned_model else ""
    return f"{task.task}{model}{'@' + task.pinned_revision if task.pinned_revision else ''}"


def _unknown(ref: PipelineRef) -> NotFound:
    which = f" version {ref.version}" if ref.version else ""
    return NotFound(f"there is no pipeline {ref.name or '(unnamed)'}{which}", reason="PIPELINE", remedy=_LISTED)

"""Pipelines of callers: saves, reads and deletes them, and applies them to runs."""

import re

from protos.hugginggpt.v1.caller_pb2 import Caller
from protos.hugginggpt.v1.gateway_pb2 import SavePipelineRequest
from protos.hugginggpt.v1.model_pb2 import SELECTION_POLICY_RANK
from protos.hugginggpt.v1.pipeline_pb2 import Pipeline, PipelineRef
from protos.hugginggpt.v1.run_pb2 import RunSpec
from services.common import call_context
from services.common.errors import InvalidRequest, NotFound
from services.orchestrator.journal.pipelines import PipelineStore
from services.orchestrator.journal.store import Page
from services.orchestrator.pipelines import parameters
from services.orchestrator.pipelines.builder import PipelineBuilder, with_policy
from services.orchestrator.runs import new_run

_NAME = re.compile(r"[a-z][a-z0-9._-]{0,62}")
_LIST_HINT = "check the name; `hugginggpt pipelines` or `GET /v1/pipelines` lists them"


class PipelineService:
    """The caller's pipelines.

    Args:
        store: of pipelines.
        builder: builds pipelines from plans and runs, and checks that they can run.
    """

    def __init__(self, store: PipelineStore, builder: PipelineBuilder) -> None:
        self.builder = builder
        self._store = store

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
                pipeline = await self.builder.from_run(request.run_id, pin=request.pin_models)
            else:
                pipeline = await self.builder.from_plan(request.plan, pin=request.pin_models)
        parameters.add_descriptions(pipeline, request.inputs)
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

    async def apply_to_run(self, spec: RunSpec) -> Caller:
        """Copies the pipeline that a run names into its spec; returns the caller with the pipeline's data policy.

        Raises:
            InvalidRequest: the inputs do not fit, or the plan exceeds the budget (BUDGET).
            NotFound: PIPELINE.
            FailedPrecondition: TASK_UNAVAILABLE or POLICY.
        """
        pipeline = await self.get(spec.pipeline)
        new_run.validate(RunSpec(plan=pipeline.plan, budget=spec.budget))
        parameters.assign_files(pipeline.inputs, spec.inputs)
        parameters.check(pipeline.inputs, spec.inputs)
        caller = with_policy(call_context.current(), pipeline.policy)
        with call_context.use_caller(caller):
            await self.builder.check_available(pipeline.plan, spec.inference_mode, spec.constraints)
        spec.pipeline.version = pipeline.version
        spec.plan.CopyFrom(pipeline.plan)
        spec.selection_policy = SELECTION_POLICY_RANK
        return caller


def _unknown(ref: PipelineRef) -> NotFound:
    which = f" version {ref.version}" if ref.version else ""
    return NotFound(f"there is no pipeline {ref.name or '(unnamed)'}{which}", reason="PIPELINE", remedy=_LIST_HINT)

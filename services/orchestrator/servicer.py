"""OrchestratorService over gRPC: converts between messages and the services of this package."""

from contextlib import aclosing
from typing import Any

from protos.hugginggpt.internal.v1 import orchestrator_pb2
from protos.hugginggpt.v1 import gateway_pb2, run_pb2
from protos.hugginggpt.v1.run_pb2 import ON_DISCONNECT_CANCEL, RUN_VIEW_BASIC, RunSpec
from services.common import call_context
from services.common.errors import InvalidRequest, ServiceError
from services.orchestrator.batches.service import BatchService
from services.orchestrator.batches.servicer import BatchServicer
from services.orchestrator.journal.artifacts import ArtifactHolds
from services.orchestrator.journal.ended_batches import EndedBatches
from services.orchestrator.journal.runs import EndedRun, RunRow
from services.orchestrator.paging import (
    page_size,
    page_token,
    parse_page_token,
    states_filter,
    to_seconds,
    to_timestamp,
)
from services.orchestrator.pipelines.service import PipelineService
from services.orchestrator.pipelines.servicer import PipelineServicer
from services.orchestrator.runs.service import RunService


class OrchestratorServicer(PipelineServicer, BatchServicer):
    """Implements the RPCs of runs; those of pipelines and batches are inherited."""

    def __init__(
        self,
        runs: RunService,
        holds: ArtifactHolds,
        pipelines: PipelineService,
        batches: BatchService,
        ended_batches: EndedBatches,
    ) -> None:
        self._runs = runs
        self._holds = holds
        self._pipelines = pipelines
        self._batches = batches
        self._ended_batches = ended_batches

    async def CreateRun(self, request: orchestrator_pb2.CreateRunRequest, context: Any) -> None:  # type: ignore[override]  # stubs only know generators
        run_id = await self._runs.create(request.spec)
        try:
            await self._write(context, run_id, 0)
        except ServiceError:  # the caller is still connected, and the error asks it to watch again
            raise
        except BaseException:
            if request.spec.on_disconnect == ON_DISCONNECT_CANCEL and not self._runs.is_closed:
                await self._runs.cancel(run_id)
            raise

    async def WatchRun(self, request: gateway_pb2.WatchRunRequest, context: Any) -> None:  # type: ignore[override]  # stubs only know generators
        await self._write(context, request.run_id, request.after_sequence)

    async def GetRun(self, request: gateway_pb2.GetRunRequest, context: Any) -> run_pb2.Run:
        if request.view == RUN_VIEW_BASIC:
            return _summary(await self._runs.row(request.run_id))
        return await self._runs.get(request.run_id)

    async def ListRuns(self, request: gateway_pb2.ListRunsRequest, context: Any) -> gateway_pb2.ListRunsResponse:
        size = page_size(request.page_size)
        rows = await self._runs.list(
            limit=size + 1,
            before=parse_page_token(request.page_token),
            states=states_filter(request.states),
            conversation_id=request.conversation_id,
            batch_id=request.batch_id,
            created_after=to_seconds(request.created_after, "created_after"),
            first_turns=request.first_turns,
        )
        following = page_token(rows[size - 1].created, rows[size - 1].id) if len(rows) > size else ""
        return gateway_pb2.ListRunsResponse(runs=[_summary(row) for row in rows[:size]], next_page_token=following)

    async def CancelRun(self, request: gateway_pb2.CancelRunRequest, context: Any) -> gateway_pb2.CancelRunResponse:
        await self._runs.cancel(request.run_id)
        return gateway_pb2.CancelRunResponse()

    async def ApproveRun(self, request: gateway_pb2.ApproveRunRequest, context: Any) -> gateway_pb2.ApproveRunResponse:
        await self._runs.approve(request.run_id, request.plan if request.HasField("plan") else None)
        return gateway_pb2.ApproveRunResponse()

    async def DeleteRun(self, request: gateway_pb2.DeleteRunRequest, context: Any) -> gateway_pb2.DeleteRunResponse:
        await self._runs.delete(request.run_id)
        return gateway_pb2.DeleteRunResponse()

    async def ListEndedRuns(
        self, request: orchestrator_pb2.ListEndedRunsRequest, context: Any
    ) -> orchestrator_pb2.ListEndedRunsResponse:
        size, since = page_size(request.page_size), to_seconds(request.ended_after, "ended_after")
        ended = await self._runs.ended(since, parse_page_token(request.page_token) or (0.0, ""), size + 1)
        following = page_token(ended[size - 1].ended, ended[size - 1].id) if len(ended) > size else ""
        return orchestrator_pb2.ListEndedRunsResponse(
            runs=[_ended_run(run) for run in ended[:size]], next_page_token=following
        )

    async def HoldArtifacts(
        self, request: orchestrator_pb2.HoldArtifactsRequest, context: Any
    ) -> orchestrator_pb2.HoldArtifactsResponse:
        if not request.holder:
            raise InvalidRequest("the holder is empty", port="holder", remedy="send the ID of the file that holds them")
        await self._holds.hold(call_context.current().tenant, request.holder, request.sha256s)
        return orchestrator_pb2.HoldArtifactsResponse()

    async def _write(self, context: Any, run_id: str, after: int) -> None:
        async with aclosing(self._runs.watch(run_id, after)) as events:
            async for event in events:
                await context.write(event)


def _summary(row: RunRow) -> run_pb2.Run:
    run = run_pb2.Run(
        run_id=row.id,
        state=row.state,
        spec=RunSpec(request=row.request, parent_run_id=row.parent_id),
        conversation_id=row.conversation_id,
        last_sequence=row.last_sequence,
    )
    run.create_time.CopyFrom(to_timestamp(row.created))
    run.deadline.CopyFrom(to_timestamp(row.deadline))
    return run


def _ended_run(ended: EndedRun) -> orchestrator_pb2.EndedRun:
    run = orchestrator_pb2.EndedRun(
        run_id=ended.id, caller=ended.caller, state=ended.state, usage=ended.last.run_ended.usage
    )
    run.end_time.CopyFrom(to_timestamp(ended.ended))
    return run

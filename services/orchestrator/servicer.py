"""OrchestratorService over gRPC."""

from contextlib import aclosing
from typing import Any

from protos.hugginggpt.v1 import orchestrator_pb2 as pb
from protos.hugginggpt.v1 import types_pb2 as types
from protos.hugginggpt.v1.types_pb2 import ON_DISCONNECT_CANCEL, RunSpec
from services.common import call_context
from services.common.errors import InvalidRequest, ServiceError
from services.orchestrator.batches.service import Batches
from services.orchestrator.batches.servicer import BatchCalls
from services.orchestrator.journal.artifact_refs import Holds
from services.orchestrator.journal.batch_ends import BatchEnds
from services.orchestrator.journal.tables import Ended, Row
from services.orchestrator.paging import moment, page_size, position, timestamp, token, wanted
from services.orchestrator.pipelines.service import Pipelines
from services.orchestrator.pipelines.servicer import PipelineCalls
from services.orchestrator.runs.service import Runs


class OrchestratorServicer(PipelineCalls, BatchCalls):
    """Reads requests, writes events."""

    def __init__(self, runs: Runs, holds: Holds, pipelines: Pipelines, batches: Batches, batch_ends: BatchEnds) -> None:
        self._runs = runs
        self._holds = holds
        self._pipelines = pipelines
        self._batches = batches
        self._batch_ends = batch_ends

    async def Run(self, request: pb.RunRequest, context: Any) -> None:  # type: ignore[override]  # stubs only know generators
        run_id = await self._runs.accept(request.spec)
        try:
            await self._write(context, run_id, 0)
        except ServiceError:  # the caller is still there, and told to watch
            raise
        except BaseException:
            if request.spec.on_disconnect == ON_DISCONNECT_CANCEL and not self._runs.closed:
                await self._runs.cancel(run_id)
            raise

    async def Watch(self, request: pb.WatchRunRequest, context: Any) -> None:  # type: ignore[override]  # stubs only know generators
        await self._write(context, request.run_id, request.after_sequence)

    async def Get(self, request: pb.GetRunRequest, context: Any) -> types.Run:
        if request.brief:
            return _brief(await self._runs.row(request.run_id))
        return await self._runs.get(request.run_id)

    async def List(self, request: pb.ListRunsRequest, context: Any) -> pb.ListRunsResponse:
        size = page_size(request.page_size)
        rows = await self._runs.rows(
            limit=size + 1,
            before=position(request.page_token),
            states=wanted(request.states),
            conversation_id=request.conversation_id,
            batch_id=request.batch_id,
            created_after=moment(request.created_after, "created_after"),
            first_turns=request.first_turns,
        )
        following = token(rows[size - 1].created, rows[size - 1].id) if len(rows) > size else ""
        return pb.ListRunsResponse(runs=[_brief(row) for row in rows[:size]], next_page_token=following)

    async def Cancel(self, request: pb.CancelRunRequest, context: Any) -> pb.CancelRunResponse:
        await self._runs.cancel(request.run_id)
        return pb.CancelRunResponse()

    async def Approve(self, request: pb.ApproveRunRequest, context: Any) -> pb.ApproveRunResponse:
        await self._runs.approve(request.run_id, request.plan if request.HasField("plan") else None)
        return pb.ApproveRunResponse()

    async def Delete(self, request: pb.DeleteRunRequest, context: Any) -> pb.DeleteRunResponse:
        await self._runs.delete(request.run_id)
        return pb.DeleteRunResponse()

    async def ListEnded(self, request: pb.ListEndedRequest, context: Any) -> pb.ListEndedResponse:
        size, since = page_size(request.page_size), moment(request.ended_after, "ended_after")
        ended = await self._runs.ended(since, position(request.page_token) or (0.0, ""), size + 1)
        following = token(ended[size - 1].ended, ended[size - 1].id) if len(ended) > size else ""
        return pb.ListEndedResponse(runs=[_told(run) for run in ended[:size]], next_page_token=following)

    async def Hold(self, request: pb.HoldRequest, context: Any) -> pb.HoldResponse:
        if not request.holder:
            raise InvalidRequest("nobody is named as the holder", port="holder", remedy="name it, by a file's id")
        await self._holds.hold(call_context.current().tenant, request.holder, request.sha256s)
        return pb.HoldResponse()

    async def _write(self, context: Any, run_id: str, after: int) -> None:
        async with aclosing(self._runs.watch(run_id, after)) as events:
            async for event in events:
                await context.write(event)


def _brief(row: Row) -> types.Run:
    run = types.Run(
        run_id=row.id,
        state=row.state,
        spec=RunSpec(request=row.request, parent_run_id=row.parent_id),
        conversation_id=row.conversation_id,
        last_sequence=row.seq,
    )
    run.created.CopyFrom(timestamp(row.created))
    run.deadline.CopyFrom(timestamp(row.deadline))
    return run


def _told(ended: Ended) -> pb.EndedRun:
    run = pb.EndedRun(run_id=ended.id, caller=ended.caller, state=ended.state, usage=ended.last.run_ended.usage)
    run.ended.CopyFrom(timestamp(ended.ended))
    return run

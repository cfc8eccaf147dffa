"""OrchestratorService over gRPC: converts between messages and the services of this package."""

from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing
from functools import partial
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp

from protos.hugginggpt.internal.v1 import orchestrator_pb2
from protos.hugginggpt.internal.v1 import orchestrator_pb2_grpc as rpc
from protos.hugginggpt.v1 import gateway_pb2, run_pb2
from protos.hugginggpt.v1.batch_pb2 import BATCH_ITEM_VIEW_BASIC, Batch
from protos.hugginggpt.v1.pipeline_pb2 import Pipeline, PipelineRef
from protos.hugginggpt.v1.run_pb2 import ON_DISCONNECT_CANCEL, RUN_VIEW_BASIC, RunSpec, RunState
from services.common import call_context, upload_acks
from services.common.errors import InvalidRequest, ServiceError
from services.orchestrator.batches.service import BatchService
from services.orchestrator.journal.artifacts import ArtifactHolds
from services.orchestrator.journal.batches import EndedBatches
from services.orchestrator.journal.runs import EndedRun, RunRow
from services.orchestrator.journal.store import to_timestamp
from services.orchestrator.pipelines.service import PipelineService
from services.orchestrator.runs.service import RunService

PAGE_SIZE, MAX_PAGE_SIZE = 50, 1_000
"""Rows of a page by default, and at most."""

_MAX_VERSION = 2**31
"""Largest version of a pipeline."""


class OrchestratorServicer(rpc.OrchestratorServiceServicer):
    """Implements the RPCs of runs, pipelines and batches."""

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

    # ------------------------------------------------------------ runs

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

    async def _write(self, context: Any, run_id: str, after: int) -> None:
        async with aclosing(self._runs.watch(run_id, after)) as events:
            async for event in events:
                await context.write(event)

    # ------------------------------------------------------------ pipelines

    async def SavePipeline(self, request: gateway_pb2.SavePipelineRequest, context: Any) -> Pipeline:
        return await self._pipelines.save(request)

    async def GetPipeline(self, request: gateway_pb2.GetPipelineRequest, context: Any) -> Pipeline:
        return await self._pipelines.get(PipelineRef(name=request.name, version=request.version))

    async def ListPipelines(
        self, request: gateway_pb2.ListPipelinesRequest, context: Any
    ) -> gateway_pb2.ListPipelinesResponse:
        size, token = page_size(request.page_size), request.page_token
        if request.name:
            found = await self._pipelines.versions(request.name, _parse_version_token(token), size)
        else:
            found = await self._pipelines.list(token, size)
        last = found.rows[-1] if found.more else Pipeline()
        following = str(last.version or "") if request.name else last.name
        return gateway_pb2.ListPipelinesResponse(pipelines=found.rows, next_page_token=following)

    async def DeletePipeline(
        self, request: gateway_pb2.DeletePipelineRequest, context: Any
    ) -> gateway_pb2.DeletePipelineResponse:
        await self._pipelines.delete(PipelineRef(name=request.name, version=request.version))
        return gateway_pb2.DeletePipelineResponse()

    # ------------------------------------------------------------ batches

    async def CreateBatch(self, request_iterator: AsyncIterator[gateway_pb2.CreateBatchRequest], context: Any) -> Batch:
        return await self._batches.start(request_iterator, partial(upload_acks.send_ack, context))

    async def GetBatch(self, request: gateway_pb2.GetBatchRequest, context: Any) -> Batch:
        return await self._batches.get(request.batch_id)

    async def ListBatches(
        self, request: gateway_pb2.ListBatchesRequest, context: Any
    ) -> gateway_pb2.ListBatchesResponse:
        size, states = page_size(request.page_size), states_filter(request.states)
        found = await self._batches.list(size, parse_page_token(request.page_token), states)
        following = page_token(found.rows[-1][0].created, found.rows[-1][0].id) if found.more else ""
        return gateway_pb2.ListBatchesResponse(batches=[batch for _, batch in found.rows], next_page_token=following)

    async def ListBatchItems(
        self, request: gateway_pb2.ListBatchItemsRequest, context: Any
    ) -> gateway_pb2.ListBatchItemsResponse:
        size, states = page_size(request.page_size), states_filter(request.states)
        inputs = request.view != BATCH_ITEM_VIEW_BASIC
        after = max(request.after_index, parse_index_token(request.page_token))
        found = await self._batches.items(request.batch_id, after, size, states, inputs=inputs)
        return gateway_pb2.ListBatchItemsResponse(
            items=found.rows, next_page_token=str(found.rows[-1].index) if found.more else ""
        )

    async def CancelBatch(
        self, request: gateway_pb2.CancelBatchRequest, context: Any
    ) -> gateway_pb2.CancelBatchResponse:
        await self._batches.cancel(request.batch_id)
        return gateway_pb2.CancelBatchResponse()

    async def ResumeBatch(self, request: gateway_pb2.ResumeBatchRequest, context: Any) -> Batch:
        return await self._batches.resume(request.batch_id, failed_only=request.failed_only)

    async def WatchBatch(self, request: gateway_pb2.WatchBatchRequest, context: Any) -> None:  # type: ignore[override]  # stubs only know generators
        async with aclosing(self._batches.watch(request.batch_id)) as shown:
            async for batch in shown:
                await context.write(batch)

    async def DeleteBatch(
        self, request: gateway_pb2.DeleteBatchRequest, context: Any
    ) -> gateway_pb2.DeleteBatchResponse:
        await self._batches.delete(request.batch_id)
        return gateway_pb2.DeleteBatchResponse()

    async def ListEndedBatches(
        self, request: orchestrator_pb2.ListEndedBatchesRequest, context: Any
    ) -> orchestrator_pb2.ListEndedBatchesResponse:
        size, since = page_size(request.page_size), to_seconds(request.ended_after, "ended_after")
        found = await self._ended_batches.since(since, parse_page_token(request.page_token) or (0.0, ""), size + 1)
        following = page_token(found[size - 1][0], found[size - 1][1].batch_id) if len(found) > size else ""
        return orchestrator_pb2.ListEndedBatchesResponse(
            batches=[batch for _, batch in found[:size]], next_page_token=following
        )

    # ------------------------------------------------------------ artifacts

    async def HoldArtifacts(
        self, request: orchestrator_pb2.HoldArtifactsRequest, context: Any
    ) -> orchestrator_pb2.HoldArtifactsResponse:
        if not request.holder:
            raise InvalidRequest("the holder is empty", port="holder", remedy="send the ID of the file that holds them")
        await self._holds.hold(call_context.current().tenant, request.holder, request.sha256s)
        return orchestrator_pb2.HoldArtifactsResponse()


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


# ---------------------------------------------------------------- filters and pages of lists


def page_size(requested: int) -> int:
    """Number of rows of a page; 0 requests the default.

    Raises:
        InvalidRequest: the number is negative.
    """
    if requested < 0:
        raise InvalidRequest("page_size is negative", port="page_size", remedy="send 0 for the default")
    return min(requested or PAGE_SIZE, MAX_PAGE_SIZE)


def page_token(seconds: float, id_: str) -> str:
    """The token of the page after the row with this time and ID."""
    return f"{seconds!r},{id_}"


def parse_page_token(token: str) -> tuple[float, str] | None:
    """The (time, ID) after which a page begins; None for the first page.

    Raises:
        InvalidRequest: the token was not made by page_token().
    """
    if not token:
        return None
    seconds, _, id_ = token.partition(",")
    try:
        return float(seconds), id_
    except ValueError:
        raise _invalid_token() from None


def parse_index_token(token: str) -> int:
    """Index of the last item of the page before; 0 for the first page.

    Raises:
        InvalidRequest: the token is not a decimal index.
    """
    if token and not (token.isascii() and token.isdecimal() and len(token) < 10):  # noqa: PLR2004  # int32
        raise _invalid_token()
    return int(token or 0)


def _parse_version_token(token: str) -> int:
    """The version after which a page of versions begins, in descending order; the largest for the first page.

    Raises:
        InvalidRequest: the token is no version.
    """
    if token and not (token.isascii() and token.isdigit() and int(token) <= _MAX_VERSION):
        raise _invalid_token()
    return int(token or _MAX_VERSION)


def _invalid_token() -> InvalidRequest:
    remedy = "send next_page_token of the previous page unchanged"
    return InvalidRequest("the page token is invalid", port="page_token", remedy=remedy)


def states_filter(states: "Iterable[RunState.ValueType]") -> "list[RunState.ValueType]":
    """The distinct states by which a list is filtered.

    Raises:
        InvalidRequest: a number is no state.
    """
    distinct = set(states)
    if unknown := distinct - set(RunState.values()):
        raise InvalidRequest(f"{min(unknown)} is no run state", port="states", remedy="see the enum RunState")
    return sorted(distinct)


def to_seconds(timestamp: Timestamp, port: str) -> float:
    """Seconds since the epoch; 0 for an empty timestamp.

    Raises:
        InvalidRequest: it is outside the years 1 to 9999.
    """
    try:
        return timestamp.ToMicroseconds() / 1e6
    except ValueError:
        raise InvalidRequest(
            f"{port} is no valid time", port=port, remedy="send a time in the years 1 to 9999"
        ) from None

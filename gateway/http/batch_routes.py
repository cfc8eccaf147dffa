"""Batches over HTTP."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Path, Query, Request
from starlette.responses import Response, StreamingResponse

from gateway.admission import Admission
from gateway.auth.caller import Callers
from gateway.http.run_routes import LastEventId, json_response
from gateway.json_decoder import decode
from gateway.json_encoder import encode, enum_names
from gateway.json_text import loads, refuse
from gateway.openapi import pipeline_operations
from gateway.pipelines import batch_body, batch_results
from gateway.pipelines.batch_items import Items
from gateway.pipelines.batch_stream import BatchStream, ending
from gateway.pipelines.batch_summary import summary
from gateway.pipelines.batches import Batches
from gateway.pipelines.pipelines import Pipelines
from gateway.run_request import JSON_BYTES, limited
from gateway.runs import Runs
from protos.hugginggpt.v1 import gateway_pb2 as pb
from protos.hugginggpt.v1.batch_pb2 import BatchSpec
from protos.hugginggpt.v1.caller_pb2 import DataPolicy
from protos.hugginggpt.v1.run_pb2 import RunState
from services.common.call_context import current, use_caller

BatchId = Annotated[str, Path(description="The batch's id.", examples=[pipeline_operations.BATCH_ID])]
_STATES = {"items": {"enum": list(enum_names(RunState.DESCRIPTOR).values())}}
ItemStates = Annotated[
    list[str] | None, Query(description="Only items in these states, such as `failed`.", json_schema_extra=_STATES)
]
BatchStates = Annotated[
    list[str] | None, Query(description="Only batches in these states, such as `running`.", json_schema_extra=_STATES)
]


class BatchRoutes:
    """What one can do with batches.

    Args:
        batches: those kept.
        pipelines: what they run through.
        runs: whose plans they run through, too.
        admission: looks at what is to be run.
        items: takes in what it is to be run on.
        callers: makes the caller of each request.
    """

    def __init__(
        self,
        batches: Batches,
        pipelines: Pipelines,
        runs: Runs,
        admission: Admission,
        items: Items,
        *,
        callers: Callers,
    ) -> None:
        self._batches = batches
        self._pipelines = pipelines
        self._runs = runs
        self._admission = admission
        self._items = items
        self._callers = callers

    def router(self) -> APIRouter:
        router = APIRouter(prefix="/v1/batches", tags=["batches"], default_response_class=Response)
        add = router.add_api_route
        add("", self.create, methods=["POST"], **pipeline_operations.START)
        add("", self.index, methods=["GET"], **pipeline_operations.BATCHES)
        add("/{batch_id}", self.show, methods=["GET"], **pipeline_operations.BATCH)
        add("/{batch_id}", self.delete, methods=["DELETE"], **pipeline_operations.NOTHING)
        add("/{batch_id}/items", self.items, methods=["GET"], **pipeline_operations.ITEMS)
        add("/{batch_id}/results", self.results, methods=["GET"], **pipeline_operations.RESULTS)
        add("/{batch_id}/summary", self.summary, methods=["GET"], **pipeline_operations.SUMMARY)
        add("/{batch_id}/events", self.events, methods=["GET"], **pipeline_operations.EVENTS)
        add("/{batch_id}/cancel", self.cancel, methods=["POST"], **pipeline_operations.NOTHING)
        add("/{batch_id}/resume", self.resume, methods=["POST"], **pipeline_operations.RESUME)
        return router

    async def create(
        self,
        request: Request,
        idempotency_key: Annotated[str, Header(description="Same key, same spec and items: same batch.")] = "",
    ) -> Response:
        """Runs one plan on many items, each of them a run of its own.

        The plan is a pipeline, a plan, that of an earlier run (`run_id`), or a request in words, which is planned once,
        on the first item. JSON holds all of it; lines of JSON are read while they come in and may be of any number:
        the first says what to run, each one after it is an item. An item whose values cannot be had is kept as failed,
        and so is one that does not fit; the others run. Nothing is kept of a body that breaks off or is refused.
        """
        wished = await batch_body.wished(request)
        with use_caller(self._callers.caller(current().request_id, await self._policy(wished.spec))):
            spec = await self._admission.admit_batch(wished.spec, idempotency_key)
            batch = await self._batches.start(spec, self._items.settled(wished.pages))
        return json_response(encode(batch), 202, {"location": f"/v1/batches/{batch.batch_id}"})

    async def index(
        self,
        state: BatchStates = None,
        page_size: Annotated[int, Query(ge=0, le=1000, description="0 means 50.")] = 0,
        page_token: Annotated[str, Query(description="`next_page_token` of the page before.")] = "",
    ) -> Response:
        """Lists batches, newest first, without plans, rate and remaining time."""
        wanted = {"states": state or [], "page_size": page_size, "page_token": page_token}
        page = await self._batches.list(decode(pb.ListBatchesRequest, wanted))
        more = {"next_page_token": page.next_page_token} if page.next_page_token else {}
        return json_response({"object": "list", "data": [encode(batch) for batch in page.batches], **more})

    async def show(self, batch_id: BatchId) -> Response:
        """A batch as it stands."""
        return json_response(encode(await self._batches.get(batch_id)))

    async def items(
        self,
        batch_id: BatchId,
        state: ItemStates = None,
        after: Annotated[int, Query(ge=0, lt=2**31, description="Only items with a greater index.")] = 0,
        page_size: Annotated[int, Query(ge=0, le=1000, description="0 means 50.")] = 0,
        page_token: Annotated[str, Query(description="`next_page_token` of the page before.")] = "",
    ) -> Response:
        """Lists the items of a batch in the order of its input, with what became of them."""
        wanted = {
            "batch_id": batch_id,
            "states": state or [],
            "after_index": after,
            "page_size": page_size,
            "page_token": page_token,
        }
        page = await self._batches.items(decode(pb.ListBatchItemsRequest, wanted))
        more = {"next_page_token": page.next_page_token} if page.next_page_token else {}
        return json_response({"object": "list", "data": [encode(item) for item in page.items], **more})

    async def results(
        self,
        batch_id: BatchId,
        state: ItemStates = None,
        format: Annotated[  # noqa: A002  # as callers know it
            Literal["jsonl", "csv"] | None, Query(description="Goes before what is accepted.")
        ] = None,
        accept: Annotated[str, Header(description="`text/csv` gives a table.")] = "",
    ) -> Response:
        """Streams what came of each item, a line an item, in the order of the input.

        Lines are JSON, or a table's for `text/csv`, where artifacts are addresses and a text that a spreadsheet would
        take for a formula begins with an apostrophe. Of a batch that goes on, it is what is there now.
        """
        batch = await self._batches.get(batch_id)
        items = self._batches.every(batch_id, _states(state))
        if format == "csv" or (format is None and batch_results.TABLE in accept.lower()):
            return _download(
                batch_results.table(batch, items), f"{batch_results.TABLE}; charset=utf-8", f"{batch.batch_id}.csv"
            )
        return _download(batch_results.json_lines(items), batch_results.JSON_LINES, f"{batch.batch_id}.jsonl")

    async def summary(self, batch_id: BatchId) -> Response:
        """A batch in a few figures: counts, times, tokens, cost, the slowest items, and errors by what they say."""
        return json_response(await summary(await self._batches.get(batch_id), self._batches.every(batch_id)))

    async def events(self, batch_id: BatchId, last_event_id: LastEventId = "") -> Response:
        """Streams a batch as it stands, whenever that has changed, as server-sent events, to its end.

        Its plan is told once: in the first event, or in the one that follows its planning. Where its end was seen there
        is no stream.
        """
        batch = await self._batches.get(batch_id)
        if batch.HasField("end_time") and last_event_id == ending(batch):
            return Response(status_code=204)  # by which a browser knows not to come back
        return BatchStream(await self._batches.watch(batch_id))

    async def cancel(self, batch_id: BatchId) -> Response:
        """Asks a batch to stop: items under way are cancelled, no new one begins. What has ended is kept."""
        await self._batches.cancel(batch_id)
        return Response(status_code=204)

    async def resume(self, batch_id: BatchId, request: Request) -> Response:
        """Runs the items that have not begun or were cancelled, or only those that have failed."""
        body = loads(await limited(request.stream(), JSON_BYTES, "the body") or b"{}")
        if not isinstance(body, dict) or body.keys() - {"failed_only"}:
            refuse("", "says something else than failed_only", remedy='send {"failed_only": true}, or nothing')
        wanted = decode(pb.ResumeBatchRequest, {**body, "batch_id": batch_id})
        batch = await self._batches.resume(batch_id, failed_only=wanted.failed_only)
        return json_response(encode(batch), 202, {"location": f"/v1/batches/{batch_id}"})

    async def delete(self, batch_id: BatchId) -> Response:
        """Removes an ended batch with its items and their runs."""
        await self._batches.delete(batch_id)
        return Response(status_code=204)

    async def _policy(self, spec: BatchSpec) -> "DataPolicy.ValueType":
        """Of what comes in: what is kept in, or comes from where it is, has no URL asked for outside, either."""
        match spec.WhichOneof("source"):
            case "pipeline":
                return await self._pipelines.policy(spec.pipeline, spec.policy)
            case "run_id":
                return await self._runs.policy(spec.run_id, spec.policy)
        return spec.policy


def _states(given: list[str] | None) -> "Sequence[RunState.ValueType]":
    return decode(pb.ListBatchItemsRequest, {"states": given or []}).states


def _download(content: Any, media_type: str, name: str) -> Response:
    headers = {"content-disposition": f'attachment; filename="{name}"', "cache-control": "no-store"}
    return StreamingResponse(batch_results.joined(content), headers=headers, media_type=media_type)

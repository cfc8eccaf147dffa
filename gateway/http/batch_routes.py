"""Routes of /v1/pipeline-batches."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Path, Query, Request
from starlette.responses import Response, StreamingResponse

from gateway.auth.identity import CallerFactory
from gateway.core.batch_items import ItemPreparer
from gateway.core.batches import BatchOperations
from gateway.core.pipelines import PipelineOperations
from gateway.core.runs import RunOperations
from gateway.core.validation import RequestValidator
from gateway.http import batch_request, batch_results
from gateway.http.batch_results import BatchStream, summary
from gateway.http.json_body import JSON_BYTES, json_response, read_limited
from gateway.http.sse import LastEventId
from gateway.json_decoder import decode
from gateway.json_encoder import encode, enum_names
from gateway.json_text import loads, refuse
from gateway.openapi import examples, operations
from protos.hugginggpt.v1 import gateway_pb2 as pb
from protos.hugginggpt.v1.batch_pb2 import BatchSpec
from protos.hugginggpt.v1.caller_pb2 import DataPolicy
from protos.hugginggpt.v1.run_pb2 import RunState
from services.common.call_context import current, use_caller

BatchId = Annotated[str, Path(description="Id of the batch.", examples=[examples.BATCH_ID])]
_STATES = {"items": {"enum": list(enum_names(RunState.DESCRIPTOR).values())}}
ItemStates = Annotated[
    list[str] | None, Query(description="Only items in these states, such as `failed`.", json_schema_extra=_STATES)
]
BatchStates = Annotated[
    list[str] | None, Query(description="Only batches in these states, such as `running`.", json_schema_extra=_STATES)
]


class BatchRoutes:
    """Starts, lists, shows, streams, cancels, resumes and deletes batches, and exports their results.

    Args:
        batches: batch operations of the orchestrator.
        pipelines: source of a batch's pipeline and its data policy.
        runs: source of an earlier run's plan and its data policy.
        validator: validates the batch.
        item_preparer: resolves and validates the items' values.
        callers: creates the caller of each request.
    """

    def __init__(
        self,
        batches: BatchOperations,
        pipelines: PipelineOperations,
        runs: RunOperations,
        validator: RequestValidator,
        item_preparer: ItemPreparer,
        *,
        callers: CallerFactory,
    ) -> None:
        self._batches = batches
        self._pipelines = pipelines
        self._runs = runs
        self._validator = validator
        self._item_preparer = item_preparer
        self._callers = callers

    def router(self) -> APIRouter:
        router = APIRouter(prefix="/v1/pipeline-batches", tags=["pipeline-batches"], default_response_class=Response)
        add = router.add_api_route
        add("", self.create_pipeline_batch, methods=["POST"], **operations.CREATE_BATCH)
        add("", self.list_pipeline_batches, methods=["GET"], **operations.LIST_BATCHES)
        add("/{batch_id}", self.get_pipeline_batch, methods=["GET"], **operations.GET_BATCH)
        add("/{batch_id}", self.delete_pipeline_batch, methods=["DELETE"], **operations.NO_CONTENT)
        add("/{batch_id}/items", self.list_pipeline_batch_items, methods=["GET"], **operations.LIST_BATCH_ITEMS)
        add("/{batch_id}/results", self.get_pipeline_batch_results, methods=["GET"], **operations.GET_BATCH_RESULTS)
        add("/{batch_id}/summary", self.get_pipeline_batch_summary, methods=["GET"], **operations.GET_BATCH_SUMMARY)
        add("/{batch_id}/events", self.stream_pipeline_batch_events, methods=["GET"], **operations.STREAM_BATCH_EVENTS)
        add("/{batch_id}/cancel", self.cancel_pipeline_batch, methods=["POST"], **operations.NO_CONTENT)
        add("/{batch_id}/resume", self.resume_pipeline_batch, methods=["POST"], **operations.RESUME_BATCH)
        return router

    async def create_pipeline_batch(
        self,
        request: Request,
        idempotency_key: Annotated[
            str, Header(description="The same key with the same spec and items returns the same batch.")
        ] = "",
    ) -> Response:
        """Runs one plan on many items, each as a run of its own.

        The plan is a pipeline, an explicit plan, the plan of an earlier run (`run_id`), or a request in natural
        language, which is planned once, on the first item. Send one JSON document, or any number of JSON lines, which
        are processed as they arrive: the first line describes the batch, each following line is an item. An item whose
        values are missing or do not fit is stored as failed; the other items run. Nothing is stored if the body is
        incomplete or invalid.
        """
        submitted = await batch_request.read_batch_request(request)
        with use_caller(self._callers.create(current().request_id, await self._policy(submitted.spec))):
            spec = await self._validator.validate_batch(submitted.spec, idempotency_key)
            batch = await self._batches.start(spec, self._item_preparer.prepared_pages(submitted.pages))
        return json_response(encode(batch), 202, {"location": f"/v1/pipeline-batches/{batch.batch_id}"})

    async def list_pipeline_batches(
        self,
        state: BatchStates = None,
        page_size: Annotated[int, Query(ge=0, le=1000, description="0 means 50.")] = 0,
        page_token: Annotated[str, Query(description="`next_page_token` of the previous page.")] = "",
    ) -> Response:
        """Lists batches, newest first, without plans, rates and remaining times."""
        parameters = {"states": state or [], "page_size": page_size, "page_token": page_token}
        page = await self._batches.list(decode(pb.ListBatchesRequest, parameters))
        more = {"next_page_token": page.next_page_token} if page.next_page_token else {}
        return json_response({"object": "list", "data": [encode(batch) for batch in page.batches], **more})

    async def get_pipeline_batch(self, batch_id: BatchId) -> Response:
        """Returns the current state of a batch."""
        return json_response(encode(await self._batches.get(batch_id)))

    async def list_pipeline_batch_items(
        self,
        batch_id: BatchId,
        state: ItemStates = None,
        after: Annotated[int, Query(ge=0, lt=2**31, description="Only items with a greater index.")] = 0,
        page_size: Annotated[int, Query(ge=0, le=1000, description="0 means 50.")] = 0,
        page_token: Annotated[str, Query(description="`next_page_token` of the page before.")] = "",
    ) -> Response:
        """Lists the items of a batch in input order, with their states and results."""
        parameters = {
            "batch_id": batch_id,
            "states": state or [],
            "after_index": after,
            "page_size": page_size,
            "page_token": page_token,
        }
        page = await self._batches.items(decode(pb.ListBatchItemsRequest, parameters))
        more = {"next_page_token": page.next_page_token} if page.next_page_token else {}
        return json_response({"object": "list", "data": [encode(item) for item in page.items], **more})

    async def get_pipeline_batch_results(
        self,
        batch_id: BatchId,
        state: ItemStates = None,
        format: Annotated[  # noqa: A002  # name of the query parameter
            Literal["jsonl", "csv"] | None, Query(description="Result format; overrides the Accept header.")
        ] = None,
        accept: Annotated[str, Header(description="`text/csv` returns a table.")] = "",
    ) -> Response:
        """Streams the result of each item, one line per item, in input order.

        The format is JSON Lines, or CSV with `text/csv`. In CSV, artifacts are URLs, and text that a spreadsheet would
        interpret as a formula starts with an apostrophe. For an active batch, the current results are returned.
        """
        batch = await self._batches.get(batch_id)
        items = self._batches.every(batch_id, _states(state))
        if format == "csv" or (format is None and batch_results.TABLE in accept.lower()):
            return _download(
                batch_results.table(batch, items), f"{batch_results.TABLE}; charset=utf-8", f"{batch.batch_id}.csv"
            )
        return _download(batch_results.json_lines(items), batch_results.JSON_LINES, f"{batch.batch_id}.jsonl")

    async def get_pipeline_batch_summary(self, batch_id: BatchId) -> Response:
        """Summarizes a batch: item counts, durations, tokens, cost, slowest items, errors grouped by message."""
        return json_response(await summary(await self._batches.get(batch_id), self._batches.every(batch_id)))

    async def stream_pipeline_batch_events(self, batch_id: BatchId, last_event_id: LastEventId = "") -> Response:
        """Streams the batch as server-sent events whenever it changes, until it has ended.

        The plan is sent once: in the first event, or in the event after planning. Returns 204 if the client has already
        seen the last event.
        """
        batch = await self._batches.get(batch_id)
        if batch.HasField("end_time") and last_event_id == batch_results.last_event_id(batch):
            return Response(status_code=204)  # EventSource clients then do not reconnect
        return BatchStream(await self._batches.watch(batch_id))

    async def cancel_pipeline_batch(self, batch_id: BatchId) -> Response:
        """Requests cancellation of a batch: active items are cancelled, no further item starts, results are kept."""
        await self._batches.cancel(batch_id)
        return Response(status_code=204)

    async def resume_pipeline_batch(self, batch_id: BatchId, request: Request) -> Response:
        """Runs the items that have not run or were cancelled, or only the failed ones."""
        body = loads(await read_limited(request.stream(), JSON_BYTES, "the body") or b"{}")
        if not isinstance(body, dict) or body.keys() - {"failed_only"}:
            refuse("", "has fields other than failed_only", remedy='send {"failed_only": true}, or no body')
        parameters = decode(pb.ResumeBatchRequest, {**body, "batch_id": batch_id})
        batch = await self._batches.resume(batch_id, failed_only=parameters.failed_only)
        return json_response(encode(batch), 202, {"location": f"/v1/pipeline-batches/{batch_id}"})

    async def delete_pipeline_batch(self, batch_id: BatchId) -> Response:
        """Deletes a batch that has ended, with its items and their runs."""
        await self._batches.delete(batch_id)
        return Response(status_code=204)

    async def _policy(self, spec: BatchSpec) -> "DataPolicy.ValueType":
        """Data policy for fetching the items' URLs: the stricter of the request and its pipeline or run."""
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
    return StreamingResponse(batch_results.buffered(content), headers=headers, media_type=media_type)

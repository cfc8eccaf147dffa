"""Routes of runs, their records and verifications, and of conversations, which are chains of runs.

A conversation has the id of its first run.
"""

import asyncio
import re
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Request
from pydantic import WithJsonSchema
from starlette.responses import Response
from starlette.types import Receive

from gateway.auth.identity import CallerFactory
from gateway.core.conversations import MAX_PAGE_SIZE, ConversationOperations
from gateway.core.pipelines import PipelineOperations
from gateway.core.run_stream import RunEventFeed
from gateway.core.runs import RunOperations
from gateway.core.validation import RequestValidator
from gateway.http.json_body import JSON_BYTES, json_response, read_limited
from gateway.http.run_request import RunRequest, RunRequestReader
from gateway.http.sse import MEDIA_TYPE, EventStream, LastEventId, disconnected
from gateway.json_decoder import decode
from gateway.json_encoder import encode, enum_names
from gateway.json_text import loads
from gateway.openapi import examples, operations
from gateway.openapi.schemas import record_schema
from gateway.provenance import run_account
from gateway.provenance.record import record
from gateway.provenance.verification import Verifier
from protos.hugginggpt.run_state import ENDED_RUN_STATES
from protos.hugginggpt.v1 import gateway_pb2 as pb
from protos.hugginggpt.v1.caller_pb2 import DataPolicy
from protos.hugginggpt.v1.run_pb2 import ON_DISCONNECT_CANCEL, Run, RunState
from services.common.call_context import current, use_caller
from services.common.errors import InvalidRequest, ServiceError

MAX_WAIT_SECONDS = 3600

_WAIT = re.compile(r'(?:^|,)\s*wait\s*=\s*"?(\d{1,9})', re.IGNORECASE)
_NUMBER = re.compile(r"[0-9]{1,18}")

RunId = Annotated[str, Path(description="Id of the run.", examples=["run_19a2b3c4d5e6f708192a3b4"])]
States = Annotated[
    list[str] | None,
    Query(
        description="Only runs in these states, such as `running`.",
        json_schema_extra={"items": {"enum": list(enum_names(RunState.DESCRIPTOR).values())}},
    ),
]


class RunRoutes:
    """Starts, lists, shows, streams, cancels, approves and deletes runs."""

    def __init__(
        self,
        runs: RunOperations,
        pipelines: PipelineOperations,
        request_reader: RunRequestReader,
        validator: RequestValidator,
        callers: CallerFactory,
    ) -> None:
        self._runs = runs
        self._pipelines = pipelines
        self._request_reader = request_reader
        self._validator = validator
        self._callers = callers

    def router(self) -> APIRouter:
        router = APIRouter(prefix="/v1/runs", tags=["runs"], default_response_class=Response)
        add = router.add_api_route
        add("", self.create_run, methods=["POST"], **operations.CREATE_RUN)
        add("", self.list_runs, methods=["GET"], **operations.LIST_RUNS)
        add("/{run_id}", self.get_run, methods=["GET"], **operations.GET_RUN)
        add("/{run_id}", self.delete_run, methods=["DELETE"], **operations.NO_CONTENT)
        add("/{run_id}/events", self.stream_run_events, methods=["GET"], **operations.STREAM_RUN_EVENTS)
        add("/{run_id}/cancel", self.cancel_run, methods=["POST"], **operations.NO_CONTENT)
        add("/{run_id}/approve", self.approve_plan, methods=["POST"], **operations.APPROVE_PLAN)
        return router

    async def create_run(
        self,
        request: Request,
        accept: Annotated[str, Header(description="`text/event-stream` streams the run's events.")] = "",
        prefer: Annotated[
            list[str] | None,
            WithJsonSchema({"type": "string"}),  # unknown preferences are ignored (RFC 7240)
            Header(description="`wait=30` waits up to 30 seconds for the run to end."),
        ] = None,
        idempotency_key: Annotated[
            str, Header(description="For 24 hours, the same key with the same request returns the same run.")
        ] = "",
    ) -> Response:
        """Starts a run.

        Uploaded files become the inputs `file1`, `file2`, … in upload order, to which a plan can refer. The run
        continues if the client disconnects, unless `on_disconnect` is `cancel`.
        """
        run_request = await self._request_reader.read(request)
        with use_caller(self._callers.create(current().request_id, await self._policy(run_request))):
            await self._request_reader.resolve_files(run_request)
            spec = await self._validator.validate_run(run_request.spec, run_request.files, idempotency_key)
            streams, wait = MEDIA_TYPE in accept.lower(), _WAIT.search(",".join(prefer or ()))
            if spec.on_disconnect == ON_DISCONNECT_CANCEL and not streams and not wait:
                raise InvalidRequest(
                    "on_disconnect=cancel requires a connection that stays open until the run ends",
                    remedy="send Accept: text/event-stream or Prefer: wait=N",
                    port="on_disconnect",
                )
            feed = await self._runs.start(spec)
        headers = {"location": f"/v1/runs/{feed.run_id}", "x-run-id": feed.run_id}
        if streams:
            return EventStream(feed, headers)
        seconds = min(int(wait[1]), MAX_WAIT_SECONDS) if wait else 0
        run = await self._wait_until_ended(feed, seconds, request.receive)
        if wait:
            headers["preference-applied"] = f"wait={seconds}"
        return json_response(encode(run), 200 if wait and run.state in ENDED_RUN_STATES else 202, headers)

    async def list_runs(
        self,
        state: States = None,
        conversation_id: Annotated[str, Query(description="Only runs of this conversation.")] = "",
        page_size: Annotated[int, Query(ge=0, le=1000, description="0 means 50.")] = 0,
        page_token: Annotated[str, Query(description="`next_page_token` of the previous page.")] = "",
    ) -> Response:
        """Lists runs, newest first, without their tasks and answers."""
        parameters = {"states": state or [], "conversation_id": conversation_id}
        request = decode(pb.ListRunsRequest, {**parameters, "page_size": page_size, "page_token": page_token})
        page = await self._runs.list(request)
        more = {"next_page_token": page.next_page_token} if page.next_page_token else {}
        return json_response({"object": "list", "data": [encode(run) for run in page.runs], **more})

    async def get_run(self, run_id: RunId) -> Response:
        """Returns the current state of a run."""
        return json_response(encode(await self._runs.get(run_id)))

    async def stream_run_events(
        self,
        run_id: RunId,
        after: Annotated[int, Query(ge=0, lt=2**63, description="Sequence number of the last event received.")] = 0,
        last_event_id: LastEventId = "",
    ) -> Response:
        """Streams a run's events as server-sent events, from the first or after a sequence number, until the run ends.

        Returns 204 if the run has ended and no event follows.
        """
        if last_event_id and not _NUMBER.fullmatch(last_event_id):
            message = "Last-Event-ID is not a number"
            raise InvalidRequest(
                message, remedy="send the id of the last event received, or leave it out", port="Last-Event-ID"
            )
        feed = await self._runs.watch(run_id, max(after, int(last_event_id or 0)))
        if feed.ended:
            feed.stop()
            return Response(status_code=204)  # EventSource clients then do not reconnect
        return EventStream(feed)

    async def cancel_run(self, run_id: RunId) -> Response:
        """Requests cancellation of a run. Its last event reports the end; results of completed tasks are kept."""
        await self._runs.cancel(run_id)
        return Response(status_code=204)

    async def approve_plan(self, run_id: RunId, request: Request) -> Response:
        """Approves the plan of a waiting run, or replaces it with the plan sent."""
        content = await read_limited(request.stream(), JSON_BYTES, "the body")
        body = decode(pb.ApproveRunRequest, {**_object(content), "run_id": run_id})
        await self._validator.normalize_plan(body.plan)
        await self._runs.approve(run_id, body.plan if body.HasField("plan") else None)
        return Response(status_code=204)

    async def delete_run(self, run_id: RunId) -> Response:
        """Deletes a run that has ended."""
        await self._runs.delete(run_id)
        return Response(status_code=204)

    async def _policy(self, run_request: RunRequest) -> "DataPolicy.ValueType":
        """Data policy for fetching the request's URLs: the strictest of request, pipeline and parent run."""
        policy = run_request.policy
        if run_request.file_references and run_request.spec.HasField("pipeline"):
            policy = await self._pipelines.policy(run_request.spec.pipeline, policy)
        if run_request.file_references and run_request.spec.parent_run_id:
            policy = await self._runs.policy(run_request.spec.parent_run_id, policy)
        return policy

    async def _wait_until_ended(self, feed: RunEventFeed, seconds: int, receive: Receive) -> Run:
        """Waits until the run ends, the time is over or the client disconnects, and returns the current state."""
        ending, disconnection = asyncio.create_task(_read_to_end(feed)), asyncio.create_task(disconnected(receive))
        try:
            await asyncio.wait((ending, disconnection), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ending.cancel()
            disconnection.cancel()
            feed.stop()
        return await self._runs.get(feed.run_id)


async def _read_to_end(feed: RunEventFeed) -> None:
    try:
        while await feed.read() is not None:
            pass
    except ServiceError:
        return  # the caller reads the run's state in any case


def _object(content: bytes) -> dict[str, Any]:
    body = loads(content or b"{}")
    if not isinstance(body, dict):
        raise InvalidRequest("the body is not a JSON object", remedy='send an object such as {"plan": […]}')
    return body


AgainId = Annotated[str, Path(description="Id of the rerun.", examples=[examples.AGAIN_ID])]


class RecordRoutes:
    """Serves the record of a run, and reruns its deterministic tasks for verification."""

    def __init__(self, runs: RunOperations, verifier: Verifier) -> None:
        self._runs = runs
        self._verifier = verifier

    def router(self) -> APIRouter:
        router = APIRouter(prefix="/v1", tags=["runs"], default_response_class=Response)
        add = router.add_api_route
        add("/runs/{run_id}/record", self.get_run_record, methods=["GET"], **operations.GET_RUN_RECORD)
        add("/runs/{run_id}/verify", self.verify_run, methods=["POST"], **operations.VERIFY_RUN)
        add(
            "/runs/{run_id}/verifications/{again_id}",
            self.get_verification,
            methods=["GET"],
            **operations.GET_VERIFICATION,
        )
        add("/schemas/record", self.get_record_schema, methods=["GET"], **operations.GET_RECORD_SCHEMA)
        return router

    async def get_run_record(self, run_id: RunId) -> Response:
        """Returns the record of a run that has ended: models, commits, parameters, seeds and digests.

        It contains no text, values or file names.
        """
        return json_response(encode(record(await run_account.read(self._runs, run_id))))

    async def verify_run(self, run_id: RunId) -> Response:
        """Reruns the deterministic tasks of a run, with the same model commits and inputs, as a new run.

        The result is at `Location` once that run has ended. It is returned at once if no task can be rerun.
        """
        verification = await self._verifier.start(run_id)
        if verification.ended:
            return json_response(encode(verification))
        return json_response(
            encode(verification), 202, {"location": f"/v1/runs/{run_id}/verifications/{verification.again_run_id}"}
        )

    async def get_verification(self, run_id: RunId, again_id: AgainId) -> Response:
        """Returns the result of a rerun; `ended` is false until it is complete."""
        return json_response(encode(await self._verifier.get_result(run_id, again_id)))

    async def get_record_schema(self) -> Response:
        """Returns the JSON Schema of records."""
        schema: Any = record_schema()
        return json_response(schema)


TITLE_CHARACTERS = 80

ConversationId = Annotated[str, Path(description="Id of the conversation's first run.", examples=[examples.RUN_ID])]


class ConversationRoutes:
    """Lists, shows and deletes conversations."""

    def __init__(self, conversations: ConversationOperations) -> None:
        self._conversations = conversations

    def router(self) -> APIRouter:
        router = APIRouter(prefix="/v1/conversations", tags=["conversations"], default_response_class=Response)
        add = router.add_api_route
        add("", self.list_conversations, methods=["GET"], **operations.LIST_CONVERSATIONS)
        add("/{conversation_id}", self.get_conversation, methods=["GET"], **operations.GET_CONVERSATION)
        add("/{conversation_id}", self.delete_conversation, methods=["DELETE"], **operations.DELETE_CONVERSATION)
        return router

    async def list_conversations(
        self,
        page_size: Annotated[int, Query(ge=0, le=MAX_PAGE_SIZE, description="0 means 50.")] = 0,
        page_token: Annotated[str, Query(description="`next_page_token` of the previous page.")] = "",
    ) -> Response:
        """Lists conversations, most recently started first."""
        page = await self._conversations.list(page_size, page_token)
        more = {"next_page_token": page.next_page_token} if page.next_page_token else {}
        return json_response({"object": "list", "data": [_conversation(run) for run in page.runs], **more})

    async def get_conversation(self, conversation_id: ConversationId) -> Response:
        """Returns a conversation with its runs, oldest first, without their tasks and answers."""
        runs = await self._conversations.runs(conversation_id)
        return json_response({**_conversation(runs[0]), "runs": [encode(run) for run in runs]})

    async def delete_conversation(self, conversation_id: ConversationId) -> Response:
        """Deletes all runs of a conversation; fails if one of them is still active."""
        await self._conversations.delete(conversation_id)
        return json_response({"id": conversation_id, "object": "conversation.deleted", "deleted": True})


def _conversation(first: Run) -> dict[str, Any]:
    return {
        "id": first.conversation_id,
        "object": "conversation",
        "created_at": first.create_time.seconds,
        "metadata": {},
        "title": " ".join(first.spec.request.split())[:TITLE_CHARACTERS],
    }

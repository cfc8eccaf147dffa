"""Runs over HTTP."""

import asyncio
import re
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Request
from starlette.responses import Response
from starlette.types import Receive

from gateway.admission import Admission
from gateway.auth.caller import Callers
from gateway.http.sse import MEDIA_TYPE, EventStream, disconnected
from gateway.json_decoder import decode
from gateway.json_encoder import dumps, encode, enum_names
from gateway.json_text import loads
from gateway.openapi import document
from gateway.pipelines.pipelines import Pipelines
from gateway.run_request import JSON_BYTES, Asked, Intake, limited
from gateway.run_stream import Feed
from gateway.runs import ENDED, Runs
from protos.hugginggpt.v1 import gateway_pb2 as pb
from protos.hugginggpt.v1.caller_pb2 import DataPolicy
from protos.hugginggpt.v1.run_pb2 import ON_DISCONNECT_CANCEL, Run, RunState
from services.common.call_context import current, use_caller
from services.common.errors import InvalidRequest, ServiceError

MAX_WAIT_SECONDS = 3600

_WAIT = re.compile(r'(?:^|,)\s*wait\s*=\s*"?(\d{1,9})', re.IGNORECASE)
_NUMBER = re.compile(r"[0-9]{1,18}")

RunId = Annotated[str, Path(description="The run's id.", examples=["run_19a2b3c4d5e6f708192a3b4"])]
States = Annotated[
    list[str] | None,
    Query(
        description="Only runs in these states, such as `running`.",
        json_schema_extra={"items": {"enum": list(enum_names(RunState.DESCRIPTOR).values())}},
    ),
]
LastEventId = Annotated[
    str, Header(description="The same, as browsers say it.", json_schema_extra={"pattern": "^[0-9]{0,18}$"})
]


def json_response(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(dumps(content), status, headers, "application/json")


class RunRoutes:
    """What one can do with runs."""

    def __init__(
        self, runs: Runs, pipelines: Pipelines, intake: Intake, admission: Admission, callers: Callers
    ) -> None:
        self._runs = runs
        self._pipelines = pipelines
        self._intake = intake
        self._admission = admission
        self._callers = callers

    def router(self) -> APIRouter:
        router = APIRouter(prefix="/v1/runs", tags=["runs"], default_response_class=Response)
        add = router.add_api_route
        add("", self.create, methods=["POST"], **document.CREATE)
        add("", self.index, methods=["GET"], **document.RUNS)
        add("/{run_id}", self.show, methods=["GET"], **document.RUN)
        add("/{run_id}", self.delete, methods=["DELETE"], **document.NOTHING)
        add("/{run_id}/events", self.events, methods=["GET"], **document.EVENTS)
        add("/{run_id}/cancel", self.cancel, methods=["POST"], **document.NOTHING)
        add("/{run_id}/approve", self.approve, methods=["POST"], **document.APPROVE)
        return router

    async def create(
        self,
        request: Request,
        accept: Annotated[str, Header(description="`text/event-stream` streams the events.")] = "",
        prefer: Annotated[
            list[str] | None, Header(description="`wait=30` waits up to so many seconds for the end.")
        ] = None,
        idempotency_key: Annotated[str, Header(description="Same key, same request: same run, for 24 h.")] = "",
    ) -> Response:
        """Starts a run.

        Files become the inputs `file1`, `file2`, … in their order, for a plan to refer to. The run goes on when the
        client leaves, unless `on_disconnect` is `cancel`.
        """
        asked = await self._intake.asked(request)
        with use_caller(self._callers.caller(current().request_id, await self._policy(asked))):
            await self._intake.bring_in(asked)
            spec = await self._admission.admit(asked.spec, asked.files, idempotency_key)
            streams, wait = MEDIA_TYPE in accept.lower(), _WAIT.search(",".join(prefer or ()))
            if spec.on_disconnect == ON_DISCONNECT_CANCEL and not streams and not wait:
                raise InvalidRequest(
                    "on_disconnect=cancel needs a connection to last",
                    remedy="ask for text/event-stream or Prefer: wait=N",
                    port="on_disconnect",
                )
            feed = await self._runs.start(spec)
        headers = {"location": f"/v1/runs/{feed.run_id}", "x-run-id": feed.run_id}
        if streams:
            return EventStream(feed, headers)
        seconds = min(int(wait[1]), MAX_WAIT_SECONDS) if wait else 0
        run = await self._outcome(feed, seconds, request.receive)
        if wait:
            headers["preference-applied"] = f"wait={seconds}"
        return json_response(encode(run), 200 if wait and run.state in ENDED else 202, headers)

    async def index(
        self,
        state: States = None,
        conversation_id: Annotated[str, Query(description="Only runs of this conversation.")] = "",
        page_size: Annotated[int, Query(ge=0, le=1000, description="0 means 50.")] = 0,
        page_token: Annotated[str, Query(description="`next_page_token` of the page before.")] = "",
    ) -> Response:
        """Lists runs, newest first, without tasks and answers."""
        wanted = {"states": state or [], "conversation_id": conversation_id}
        request = decode(pb.ListRunsRequest, {**wanted, "page_size": page_size, "page_token": page_token})
        page = await self._runs.list(request)
        more = {"next_page_token": page.next_page_token} if page.next_page_token else {}
        return json_response({"object": "list", "data": [encode(run) for run in page.runs], **more})

    async def show(self, run_id: RunId) -> Response:
        """A run as it stands."""
        return json_response(encode(await self._runs.get(run_id)))

    async def events(
        self,
        run_id: RunId,
        after: Annotated[int, Query(ge=0, lt=2**63, description="The last number already seen.")] = 0,
        last_event_id: LastEventId = "",
    ) -> Response:
        """Streams a run's events as server-sent events, from the first or after a number, to the run's end.

        Where nothing follows any more there is no stream.
        """
        if last_event_id and not _NUMBER.fullmatch(last_event_id):
            message = "Last-Event-ID is not a number"
            raise InvalidRequest(message, remedy="send the id of an event", port="Last-Event-ID")
        feed = await self._runs.watch(run_id, max(after, int(last_event_id or 0)))
        if feed.ended:
            feed.stop()
            return Response(status_code=204)  # by which a browser knows not to come back
        return EventStream(feed)

    async def cancel(self, run_id: RunId) -> Response:
        """Asks a run to stop; its last event tells when it has. What has finished is kept."""
        await self._runs.cancel(run_id)
        return Response(status_code=204)

    async def approve(self, run_id: RunId, request: Request) -> Response:
        """Lets a waiting plan run, or the one sent instead of it."""
        content = await limited(request.stream(), JSON_BYTES, "the body")
        body = decode(pb.ApproveRunRequest, {**_object(content), "run_id": run_id})
        await self._admission.settle_plan(body.plan)
        await self._runs.approve(run_id, body.plan if body.HasField("plan") else None)
        return Response(status_code=204)

    async def delete(self, run_id: RunId) -> Response:
        """Removes an ended run."""
        await self._runs.delete(run_id)
        return Response(status_code=204)

    async def _policy(self, asked: Asked) -> "DataPolicy.ValueType":
        """Of what comes in: what a pipeline or an earlier run keeps in has no URL asked for outside, either."""
        policy = asked.policy
        if asked.mentions and asked.spec.HasField("pipeline"):
            policy = await self._pipelines.policy(asked.spec.pipeline, policy)
        if asked.mentions and asked.spec.parent_run_id:
            policy = await self._runs.policy(asked.spec.parent_run_id, policy)
        return policy

    async def _outcome(self, feed: Feed, seconds: int, receive: Receive) -> Run:
        """The run once it has ended, the time is over or the client has gone, as it stands then."""
        ending, gone = asyncio.create_task(_end(feed)), asyncio.create_task(disconnected(receive))
        try:
            await asyncio.wait((ending, gone), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ending.cancel()
            gone.cancel()
            feed.stop()
        return await self._runs.get(feed.run_id)


async def _end(feed: Feed) -> None:
    try:
        while await feed.read() is not None:
            pass
    except ServiceError:
        return  # the run itself is asked how it stands


def _object(content: bytes) -> dict[str, Any]:
    body = loads(content or b"{}")
    if not isinstance(body, dict):
        raise InvalidRequest("the body is not a JSON object", remedy='send for instance {"plan": […]}')
    return body

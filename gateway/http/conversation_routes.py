"""Conversations over HTTP: a conversation is the chain of its runs, and has the id of the first."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from gateway.json_encoder import dumps, encode
from gateway.openapi import file_operations
from gateway.runs import ENDED, Runs
from protos.hugginggpt.v1.gateway_pb2 import ListRunsRequest
from protos.hugginggpt.v1.run_pb2 import Run
from services.common.errors import FailedPrecondition, NotFound

TITLE_CHARACTERS = 80

_PAGE = 1_000

ConversationId = Annotated[str, Path(description="The id of its first run.", examples=[file_operations.RUN_ID])]


class ConversationRoutes:
    """What one can do with conversations; one begins with a run and goes on with a run that names a parent."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs

    def router(self) -> APIRouter:
        router = APIRouter(prefix="/v1/conversations", tags=["conversations"], default_response_class=Response)
        add = router.add_api_route
        add("", self.index, methods=["GET"], **file_operations.CONVERSATIONS)
        add("/{conversation_id}", self.show, methods=["GET"], **file_operations.CONVERSATION)
        add("/{conversation_id}", self.delete, methods=["DELETE"], **file_operations.DELETED_CONVERSATION)
        return router

    async def index(
        self,
        page_size: Annotated[int, Query(ge=0, le=_PAGE, description="0 means 50.")] = 0,
        page_token: Annotated[str, Query(description="`next_page_token` of the page before.")] = "",
    ) -> Response:
        """Lists conversations, those begun last first."""
        wanted = ListRunsRequest(page_size=page_size, page_token=page_token, first_turns=True)
        page = await self._runs.list(wanted)
        more = {"next_page_token": page.next_page_token} if page.next_page_token else {}
        return _json({"object": "list", "data": [_object(run) for run in page.runs], **more})

    async def show(self, conversation_id: ConversationId) -> Response:
        """A conversation with its runs, the first one first, without tasks and answers."""
        turns = await self._turns(conversation_id)
        return _json({**_object(turns[0]), "runs": [encode(run) for run in turns]})

    async def delete(self, conversation_id: ConversationId) -> Response:
        """Removes all runs of a conversation. None of them may be under way."""
        turns = await self._turns(conversation_id)
        if busy := next((run.run_id for run in turns if run.state not in ENDED), None):
            remedy = "cancel it, or wait for its end"
            raise FailedPrecondition(f"run {busy} of it is under way", reason="RUNNING", remedy=remedy)
        for run in reversed(turns):  # what is left if this is cut off is still a conversation
            await self._runs.delete(run.run_id)
        return _json({"id": conversation_id, "object": "conversation.deleted", "deleted": True})

    async def _turns(self, conversation_id: str) -> list[Run]:
        """Its runs, oldest first."""
        wanted, turns = ListRunsRequest(conversation_id=conversation_id, page_size=_PAGE), list[Run]()
        while page := await self._runs.list(wanted):
            turns += page.runs
            if not page.next_page_token:
                break
            wanted.page_token = page.next_page_token
        if not conversation_id or not turns:
            remedy = "check the id; GET /v1/conversations lists them"
            raise NotFound(f"there is no conversation {conversation_id}", reason="CONVERSATION", remedy=remedy)
        return turns[::-1]


def _object(first: Run) -> dict[str, Any]:
    return {
        "id": first.conversation_id,
        "object": "conversation",
        "created_at": first.create_time.seconds,
        "metadata": {},
        "title": " ".join(first.spec.request.split())[:TITLE_CHARACTERS],
    }


def _json(content: Any) -> Response:
    return Response(dumps(content), media_type="application/json")

"""Routes of /v1/conversations. A conversation is a chain of runs and has the id of the first run."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from gateway.core.runs import RunService
from gateway.json_encoder import dumps, encode
from gateway.openapi import file_operations
from protos.hugginggpt.run_state import ENDED_RUN_STATES
from protos.hugginggpt.v1.gateway_pb2 import ListRunsRequest
from protos.hugginggpt.v1.run_pb2 import Run
from services.common.errors import FailedPrecondition, NotFound

TITLE_CHARACTERS = 80

_PAGE = 1_000

ConversationId = Annotated[
    str, Path(description="Id of the conversation's first run.", examples=[file_operations.RUN_ID])
]


class ConversationRoutes:
    """Lists, shows and deletes conversations; a run that names a parent run continues its conversation."""

    def __init__(self, runs: RunService) -> None:
        self._runs = runs

    def router(self) -> APIRouter:
        router = APIRouter(prefix="/v1/conversations", tags=["conversations"], default_response_class=Response)
        add = router.add_api_route
        add("", self.list_conversations, methods=["GET"], **file_operations.CONVERSATIONS)
        add("/{conversation_id}", self.get_conversation, methods=["GET"], **file_operations.CONVERSATION)
        add("/{conversation_id}", self.delete_conversation, methods=["DELETE"], **file_operations.DELETED_CONVERSATION)
        return router

    async def list_conversations(
        self,
        page_size: Annotated[int, Query(ge=0, le=_PAGE, description="0 means 50.")] = 0,
        page_token: Annotated[str, Query(description="`next_page_token` of the previous page.")] = "",
    ) -> Response:
        """Lists conversations, most recently started first."""
        request = ListRunsRequest(page_size=page_size, page_token=page_token, first_turns=True)
        page = await self._runs.list(request)
        more = {"next_page_token": page.next_page_token} if page.next_page_token else {}
        return _json({"object": "list", "data": [_object(run) for run in page.runs], **more})

    async def get_conversation(self, conversation_id: ConversationId) -> Response:
        """Returns a conversation with its runs, oldest first, without their tasks and answers."""
        runs = await self._runs_of(conversation_id)
        return _json({**_object(runs[0]), "runs": [encode(run) for run in runs]})

    async def delete_conversation(self, conversation_id: ConversationId) -> Response:
        """Deletes all runs of a conversation; fails if one of them is still active."""
        runs = await self._runs_of(conversation_id)
        if busy := next((run.run_id for run in runs if run.state not in ENDED_RUN_STATES), None):
            remedy = "cancel it, or wait until it has ended"
            raise FailedPrecondition(f"run {busy} of the conversation is still active", reason="RUNNING", remedy=remedy)
        for run in reversed(runs):  # newest first: if interrupted, the remaining runs still form a conversation
            await self._runs.delete(run.run_id)
        return _json({"id": conversation_id, "object": "conversation.deleted", "deleted": True})

    async def _runs_of(self, conversation_id: str) -> list[Run]:
        """Returns the runs of a conversation, oldest first."""
        request, runs = ListRunsRequest(conversation_id=conversation_id, page_size=_PAGE), list[Run]()
        while page := await self._runs.list(request):
            runs += page.runs
            if not page.next_page_token:
                break
            request.page_token = page.next_page_token
        if not conversation_id or not runs:
            remedy = "check the id; GET /v1/conversations lists them"
            raise NotFound(f"there is no conversation {conversation_id}", reason="CONVERSATION", remedy=remedy)
        return runs[::-1]


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

"""Routes of /v1/conversations."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from gateway.core.conversations import MAX_PAGE_SIZE, ConversationService
from gateway.json_encoder import dumps, encode
from gateway.openapi import examples, operations
from protos.hugginggpt.v1.run_pb2 import Run

TITLE_CHARACTERS = 80

ConversationId = Annotated[str, Path(description="Id of the conversation's first run.", examples=[examples.RUN_ID])]


class ConversationRoutes:
    """Lists, shows and deletes conversations."""

    def __init__(self, conversations: ConversationService) -> None:
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
        return _json({"object": "list", "data": [_object(run) for run in page.runs], **more})

    async def get_conversation(self, conversation_id: ConversationId) -> Response:
        """Returns a conversation with its runs, oldest first, without their tasks and answers."""
        runs = await self._conversations.runs(conversation_id)
        return _json({**_object(runs[0]), "runs": [encode(run) for run in runs]})

    async def delete_conversation(self, conversation_id: ConversationId) -> Response:
        """Deletes all runs of a conversation; fails if one of them is still active."""
        await self._conversations.delete(conversation_id)
        return _json({"id": conversation_id, "object": "conversation.deleted", "deleted": True})


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

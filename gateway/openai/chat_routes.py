"""POST /v1/chat/completions."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Header, Request
from starlette.responses import Response

from gateway.http.run_routes import json_response
from gateway.openai import controllers, conversation_input, links, response_format, unsupported_parameters
from gateway.openai.chat_completion import Completion
from gateway.openai.owned_run_stream import followed
from gateway.openai.request_body import body
from gateway.openai.request_options import Terms
from gateway.openai.run_adapter import House
from gateway.openai.streams import CompletionStream
from gateway.openapi import openai_operations
from protos.hugginggpt.v1.run_pb2 import ON_DISCONNECT_CANCEL
from services.common.call_context import current, use_caller

LEFT = 499
"""The status nobody reads."""


class ChatRoutes:
    """Chat completions, each a run that lives as long as its connection."""

    def __init__(self, house: House) -> None:
        self._house = house

    def router(self) -> APIRouter:
        router = APIRouter(prefix="/v1/chat", tags=["openai"], default_response_class=Response)
        router.add_api_route("/completions", self.create, methods=["POST"], **openai_operations.CHAT)
        return router

    async def create(
        self,
        request: Request,
        idempotency_key: Annotated[str, Header(description="Same key, same request: same run, for 24 h.")] = "",
    ) -> Response:
        """Answers a chat, as OpenAI's clients ask for it.

        The user's last message is the request, those before it are the history. Files come as `image_url`,
        `input_audio` or `file` parts. How the work goes is told as `reasoning_content`; what was made stands in the
        answer as pictures and links. The run ends when the client leaves.
        """
        sent = await body(request)
        model = controllers.checked(sent.text("model"))
        unsupported_parameters.check(sent)
        form = await asyncio.to_thread(response_format.of_chat, sent)
        terms = Terms(model=model, form=form, store=sent.flag("store") is not False)
        streams, usage = sent.flag("stream"), sent.map("stream_options").flag("include_usage")
        with use_caller(controllers.on_behalf_of(current(), model)):
            spec = await conversation_input.of_messages([*sent.maps("messages")], self._house.parts)
            spec.on_disconnect = ON_DISCONNECT_CANCEL
            source = await self._house.attended(spec, terms, idempotency_key)
        headers = {"x-run-id": source.run_id}
        completion = Completion(links.site(request), usage=bool(usage))
        if streams:
            return CompletionStream(source, completion, headers)
        if not await followed(source, completion.take, request.receive):
            return Response(status_code=LEFT)
        return json_response(completion.whole(), headers=headers)

"""POST /v1/chat/completions."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Header, Request
from starlette.responses import Response

from gateway.http.run_routes import json_response
from gateway.openai import controllers, conversation_input, links, response_format, unsupported_parameters
from gateway.openai.chat_completion import Completion
from gateway.openai.owned_run_stream import read_until_end
from gateway.openai.request_body import body
from gateway.openai.request_options import RequestOptions
from gateway.openai.run_adapter import RunAdapter
from gateway.openai.streams import CompletionStream
from gateway.openapi import openai_operations
from protos.hugginggpt.v1.run_pb2 import ON_DISCONNECT_CANCEL
from services.common.call_context import current, use_caller

CLIENT_CLOSED_REQUEST = 499
"""Status in the log after the client has disconnected, as in nginx."""


class ChatRoutes:
    """Chat completions. Each is a run that is cancelled when its connection closes."""

    def __init__(self, adapter: RunAdapter) -> None:
        self._adapter = adapter

    def router(self) -> APIRouter:
        router = APIRouter(prefix="/v1/chat", tags=["openai"], default_response_class=Response)
        router.add_api_route("/completions", self.create, methods=["POST"], **openai_operations.CHAT)
        return router

    async def create(
        self,
        request: Request,
        idempotency_key: Annotated[
            str, Header(description="Requests with the same key and body start one run only, for 24 hours.")
        ] = "",
    ) -> Response:
        """Creates a chat completion, compatible with OpenAI's API.

        The last user message is the request, the messages before it are the history. Files are sent as `image_url`,
        `input_audio` or `file` parts. Progress is reported as `reasoning_content`; output files are images and links
        in the answer. The run is cancelled when the client disconnects.
        """
        sent = await body(request)
        model = controllers.require_controller(sent.text("model"))
        unsupported_parameters.check(sent)
        form = await asyncio.to_thread(response_format.of_chat, sent)
        options = RequestOptions(model=model, form=form, store=sent.flag("store") is not False)
        streams, usage = sent.flag("stream"), sent.map("stream_options").flag("include_usage")
        with use_caller(controllers.with_controller_policy(current(), model)):
            spec = await conversation_input.of_messages([*sent.maps("messages")], self._adapter.parts)
            spec.on_disconnect = ON_DISCONNECT_CANCEL
            source = await self._adapter.start_owned(spec, options, idempotency_key)
        headers = {"x-run-id": source.run_id}
        completion = Completion(links.site(request), usage=bool(usage))
        if streams:
            return CompletionStream(source, completion, headers)
        if not await read_until_end(source, completion.take, request.receive):
            return Response(status_code=CLIENT_CLOSED_REQUEST)
        return json_response(completion.completion(), headers=headers)

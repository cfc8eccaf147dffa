"""One model at a provider or an endpoint, as a RemoteHandler."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from experts.endpoints import prompts
from experts.endpoints.data_policy import check_data_policy
from experts.endpoints.endpoint_health import EndpointHealth
from experts.endpoints.http_errors import PaymentRequired
from experts.endpoints.media import prepare_image
from experts.endpoints.retry import RetryPolicy
from experts.host.handler import Call, Inputs, Media, Outputs, Parameters, RemoteHandler, UnavailableReason
from experts.remote import hub_internals
from experts.remote.answers import RemoteCall
from experts.remote.blocking_calls import run_in_thread
from experts.remote.errors import REPLY_ERRORS, invalid_reply, translate_errors
from experts.remote.methods import METHODS
from experts.remote.model_listing import CHAT
from experts.remote.routes import HF, Route, Target
from experts.remote.settings import RemoteSettings

if TYPE_CHECKING:
    from huggingface_hub import AsyncInferenceClient as Client

POLICY_REMEDY = "allow the data policy open for this request, or use an internal model"


class RemoteModel(RemoteHandler):
    """Called on the event loop, or on a thread if the client polls the provider for the result."""

    def __init__(self, task: str, route: Route, health: EndpointHealth, settings: RemoteSettings) -> None:
        self._task, self._route, self._health, self._settings = task, route, health, settings
        self._retry = RetryPolicy()

    @property
    def unavailable_reason(self) -> UnavailableReason | None:
        return self._health.unavailable_reason

    def prepare(self, inputs: Inputs, parameters: Parameters) -> RemoteCall:
        """Checks that the call may be sent, and prepares its arguments."""
        check_data_policy(self._route.model_id, POLICY_REMEDY)
        self._health.check()
        if self._uses_chat:
            return RemoteCall(
                prompts.build_prompt(self._task, inputs, parameters), inputs, parameters, self._route.model_id
            )
        method = METHODS[self._task]
        method.check(parameters)
        parameters = method.complete(inputs, parameters, self._route.languages)
        return RemoteCall(None, _prepare_inputs(inputs), parameters, self._route.model_id)

    async def infer(self, item: RemoteCall, _build_call: Call) -> RemoteCall:
        check_data_policy(self._route.model_id, POLICY_REMEDY)  # checked again directly before the data is sent
        try:
            answer = await self._retry.run(lambda: self._send(item))
        except PaymentRequired as error:
            self._health.mark_unavailable(error.message, error.remedy, seconds=self._settings.payment_retry_seconds)
            raise
        return replace(item, answer=answer)

    def finish(self, raw: RemoteCall) -> Outputs:
        if self._uses_chat:
            return prompts.parse_reply(self._task, raw.answer, raw.inputs, raw.parameters)
        try:
            return METHODS[self._task].convert(raw)
        except REPLY_ERRORS as error:
            raise invalid_reply(raw.model_id) from error

    @property
    def _uses_chat(self) -> bool:
        return self._route.provider_task == CHAT

    async def _send(self, item: RemoteCall) -> Any:
        with translate_errors(self._route):
            target = await self._route.target()
            work = partial(self._send_to, item, target)
            if target.provider != HF and not self._uses_chat:
                return await run_in_thread(work)
            async with asyncio.timeout(self._settings.timeout_seconds):
                return await work()

    async def _send_to(self, item: RemoteCall, target: Target) -> Any:
        async with self._client(target.provider, target.model) as client:
            return await self._build_call(item)(client)

    def _client(self, provider: str, model: str) -> "Client":
        from httpx2 import Timeout
        from huggingface_hub import AsyncInferenceClient

        from experts.endpoints.http_client import CONNECT_SECONDS

        token = self._settings.token.get_secret_value() or None
        limits: Any = Timeout(self._settings.timeout_seconds, connect=CONNECT_SECONDS)  # passed through unchanged
        return AsyncInferenceClient(model, provider=provider, token=token, timeout=limits)  # type: ignore[arg-type]  # typed as a list of known names

    def _build_call(self, item: RemoteCall) -> "Callable[[Client], Awaitable[Any]]":
        if not self._uses_chat:
            return lambda client: METHODS[self._task].call(client, item.inputs, item.parameters)
        prompt: prompts.Prompt = item.answer

        async def chat(client: "Client") -> str:
            options = {"max_tokens": prompt.max_tokens, "temperature": prompt.temperature, "seed": prompt.seed}
            reply = await client.chat_completion(prompt.messages, **options)  # type: ignore[call-overload]  # options as typed there
            return reply.choices[0].message.content or ""

        return chat


def _prepare_inputs(inputs: Inputs) -> Mapping[str, Any]:
    """Returns the inputs with re-encoded images, and media types where the client looks for them."""
    prepared = dict(inputs)
    for port, value in inputs.items():
        if isinstance(value, Media) and port in ("image", "audio"):
            media = prepare_image(value) if port == "image" else value
            prepared[port] = replace(media, content=hub_internals.attach_media_type(media))
    return prepared

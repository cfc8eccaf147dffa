"""One model at a provider or at an endpoint of one's own, as the host serves it."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from experts.endpoints import prompts
from experts.endpoints.data_policy import check_may_leave
from experts.endpoints.endpoint_health import Standing
from experts.endpoints.http_errors import PaidOut
from experts.endpoints.media import sendable
from experts.endpoints.retry import Patience
from experts.host.handler import Call, Inputs, Media, Outputs, Parameters, Trouble
from experts.remote import hub_internals
from experts.remote.answers import Made
from experts.remote.blocking_calls import apart
from experts.remote.errors import NONSENSE, explained, nonsense
from experts.remote.methods import METHODS
from experts.remote.model_listing import CHAT
from experts.remote.settings import RemoteSettings
from experts.remote.targets import HF, Route, Target

if TYPE_CHECKING:
    from huggingface_hub import AsyncInferenceClient as Client

STAYS = "allow the data policy open for this request, or take a model of the house"


class RemoteModel:
    """Asked on the loop, or beside it where the client waits for a result that is fetched."""

    def __init__(self, task: str, route: Route, standing: Standing, settings: RemoteSettings) -> None:
        self._task, self._route, self._standing, self._settings = task, route, standing, settings
        self._patience = Patience()

    @property
    def trouble(self) -> Trouble | None:
        return self._standing.trouble

    def prepare(self, inputs: Inputs, parameters: Parameters) -> Made:
        """Refuses what must not or cannot be sent, and makes ready what can."""
        check_may_leave(self._route.model_id, STAYS)
        self._standing.check()
        if self._chats:
            return Made(prompts.asked(self._task, inputs, parameters), inputs, parameters, self._route.model_id)
        method = METHODS[self._task]
        method.check(parameters)
        parameters = method.complete(inputs, parameters, self._route.languages)
        return Made(None, _ready(inputs), parameters, self._route.model_id)

    def cost(self, _item: Made) -> float:
        return 1.0

    async def ask(self, item: Made, _call: Call) -> Made:
        check_may_leave(self._route.model_id, STAYS)  # once more: nothing else stands between here and the network
        try:
            answer = await self._patience.asking(lambda: self._asked(item))
        except PaidOut as error:
            self._standing.failed(error.message, error.remedy, seconds=self._settings.paid_out_seconds)
            raise
        return replace(item, answer=answer)

    def finish(self, raw: Made) -> Outputs:
        if self._chats:
            return prompts.read(self._task, raw.answer, raw.inputs, raw.parameters)
        try:
            return METHODS[self._task].write(raw)
        except NONSENSE as error:
            raise nonsense(raw.model_id) from error

    @property
    def _chats(self) -> bool:
        return self._route.via == CHAT

    async def _asked(self, item: Made) -> Any:
        with explained(self._route):
            target = await self._route.target()
            work = partial(self._answered, item, target)
            if target.provider != HF and not self._chats:
                return await apart(work)
            async with asyncio.timeout(self._settings.timeout_seconds):
                return await work()

    async def _answered(self, item: Made, target: Target) -> Any:
        async with self._client(target.provider, target.model) as client:
            return await self._call(item)(client)

    def _client(self, provider: str, model: str) -> "Client":
        from httpx2 import Timeout
        from huggingface_hub import AsyncInferenceClient

        from experts.endpoints.http_client import CONNECT_SECONDS

        token = self._settings.token.get_secret_value() or None
        limits: Any = Timeout(self._settings.timeout_seconds, connect=CONNECT_SECONDS)  # handed on as it is
        return AsyncInferenceClient(model, provider=provider, token=token, timeout=limits)  # type: ignore[arg-type]  # it names those it knows

    def _call(self, item: Made) -> "Callable[[Client], Awaitable[Any]]":
        if not self._chats:
            return lambda client: METHODS[self._task].call(client, item.inputs, item.parameters)
        prompt: prompts.Prompt = item.answer

        async def chat(client: "Client") -> str:
            wishes = {"max_tokens": prompt.max_tokens, "temperature": prompt.temperature, "seed": prompt.seed}
            reply = await client.chat_completion(prompt.messages, **wishes)  # type: ignore[call-overload]  # as it takes them
            return reply.choices[0].message.content or ""

        return chat


def _ready(inputs: Inputs) -> Mapping[str, Any]:
    """Pictures alone, and their media type where the client looks for it."""
    ready = dict(inputs)
    for port, value in inputs.items():
        if isinstance(value, Media) and port in ("image", "audio"):
            media = sendable(value) if port == "image" else value
            ready[port] = replace(media, content=hub_internals.typed(media))
    return ready

"""The served expert: models on existing servers, as named in one file."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

import structlog

from experts.endpoints.endpoint_health import EndpointHealth
from experts.endpoints.prompts import CHAT_TASKS, VISION_TASKS
from experts.host.expert import Expert, Offer, build_offers
from experts.host.handler import Loader
from experts.served.backend import Backend
from experts.served.config import Config, Model, Server, read_config
from experts.served.model import ServedModel, update_health
from experts.served.oip_server import OipServer
from experts.served.openai_server import OpenAIServer
from experts.served.settings import ServedSettings
from protos.hugginggpt.tasks import standard_tasks
from protos.hugginggpt.v1.model_pb2 import MODEL_LOCATION_EXTERNAL, MODEL_LOCATION_INTERNAL, ModelCard
from services.common.errors import FailedPrecondition
from services.common.supervision import supervise

log = structlog.get_logger(__name__)

_INVALID_ID_CHARACTERS = re.compile(r"[^A-Za-z0-9._/-]+")


@dataclass
class ServerState:
    """A server and the health of its models."""

    server: Server
    backend: Backend
    healths: dict[str, EndpointHealth] = field(default_factory=dict)

    @property
    def is_checked(self) -> bool:
        """Whether it is checked periodically: an external server only after a call to it has failed."""
        return self.server.location == "internal" or any(health.unavailable_reason for health in self.healths.values())

    async def check(self) -> None:
        """Checks whether its models are ready, if it is to be checked."""
        if not self.is_checked:
            return
        update_health(self.healths, self.healths, await self.backend.check_models())

    async def check_periodically(self, seconds: float) -> None:
        while True:
            await asyncio.sleep(seconds)
            await self.check()


def EXPERT(name: str, version: str) -> Expert:  # noqa: N802  # a part of the expert, as TASKS is of others
    """Returns the expert with the models that the file names; none without a file."""
    settings = ServedSettings()
    if settings.served is None:
        log.warning(
            "no servers configured",
            remedy="name a YAML or JSON file in EXPERT_SERVED; experts/served/README.md shows its format",
        )
    config = read_config(settings.served) if settings.served else Config(servers=())
    states = [_make_state(server) for server in config.servers]
    offers = _check_distinct([offer for state in states for offer in _build_offers(state)])

    @asynccontextmanager
    async def connections(changed: Callable[[], None]) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for state in states:
                await stack.enter_async_context(state.backend.open())
                for health in state.healths.values():
                    health.changed = changed
            await asyncio.gather(*(state.check() for state in states))
            checks = [
                asyncio.create_task(
                    supervise(partial(state.check_periodically, settings.check_seconds), name="model checks")
                )
                for state in states
            ]
            try:
                yield
            finally:
                for check in checks:
                    check.cancel()
                await asyncio.gather(*checks, return_exceptions=True)

    preload = tuple(dict.fromkeys(offer.card.id for offer in offers))
    return Expert(name, offers, preload, version, connections=connections)


def _make_state(server: Server) -> ServerState:
    backend: Backend = OpenAIServer(server) if server.kind == "openai" else OipServer(server)
    return ServerState(server, backend, {model.name: EndpointHealth() for model in server.models})


def _build_offers(state: ServerState) -> list[Offer]:
    offers: list[Offer] = []
    for model in state.server.models:
        for task in model.tasks:
            card, loader = _build_card(state.server, model, task), _loader(state, model, task)
            offers += build_offers([card], standard_tasks(), {task: loader})
    return offers


def _loader(state: ServerState, model: Model, task: str) -> Loader:
    served = ServedModel(state.server, model, task, state.backend, state.healths[model.name])
    return lambda _id, _device: served


def _build_card(server: Server, model: Model, task: str) -> ModelCard:
    by_prompt = task in CHAT_TASKS and server.kind == "openai"
    method = ", by prompt" + (" with the image" if task in VISION_TASKS else "") if by_prompt else ""
    return ModelCard(
        id=model.id or _INVALID_ID_CHARACTERS.sub("-", f"{server.name}/{model.name}"),
        revision=model.version,
        task=task,
        description=model.description or f"Runs on the server {server.name}{method}.",
        license=model.license,
        languages=model.languages,
        region=server.region,
        location=MODEL_LOCATION_INTERNAL if server.location == "internal" else MODEL_LOCATION_EXTERNAL,
    )


def _check_distinct(offers: list[Offer]) -> tuple[Offer, ...]:
    seen: set[tuple[str, str]] = set()
    for offer in offers:
        key = (offer.card.task, offer.card.id)
        if key in seen:
            message = f"EXPERT_SERVED: {offer.card.id} is named twice for {offer.card.task}"
            raise FailedPrecondition(message, remedy="give one of them another id")
        seen.add(key)
    return tuple(offers)

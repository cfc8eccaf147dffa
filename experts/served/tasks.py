"""The served expert: models at servers that run already, as one file names them."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

import structlog

from experts.endpoints.endpoint_health import Standing
from experts.endpoints.prompts import CHATS, SEEING
from experts.host.expert import Expert, Offer, offered
from experts.host.handler import Loader
from experts.served.backend import Backend
from experts.served.config import Config, Model, Server, read
from experts.served.model import ServedModel, judge
from experts.served.oip_server import OipServer
from experts.served.openai_server import OpenAIServer
from experts.served.settings import ServedSettings
from protos.hugginggpt.tasks import standard_tasks
from protos.hugginggpt.v1.model_pb2 import MODEL_LOCATION_EXTERNAL, MODEL_LOCATION_INTERNAL, ModelCard
from services.common.errors import FailedPrecondition
from services.common.supervision import supervise

log = structlog.get_logger(__name__)

_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9._/-]+")


@dataclass
class Running:
    """A server, and how its models are."""

    server: Server
    backend: Backend
    standings: dict[str, Standing] = field(default_factory=dict)

    @property
    def is_watched(self) -> bool:
        """Whether it is asked though no call is for it: outside the house only once a call there has failed."""
        return self.server.reach == "internal" or any(standing.trouble for standing in self.standings.values())

    async def check(self) -> None:
        """Asks it whether its models are ready, if it may be."""
        if not self.is_watched:
            return
        judge(self.standings, self.standings, await self.backend.problems())

    async def keep_checking(self, seconds: float) -> None:
        while True:
            await asyncio.sleep(seconds)
            await self.check()


def EXPERT(name: str, version: str) -> Expert:  # noqa: N802  # a part of the expert, as TASKS is of others
    """What the file names; without a file nothing."""
    settings = ServedSettings()
    if settings.served is None:
        log.warning(
            "no server is named", remedy="name a YAML or JSON file in EXPERT_SERVED; README.md shows its format"
        )
    config = read(settings.served) if settings.served else Config(servers=())
    running = [_running(server) for server in config.servers]
    offers = _distinct([offer for one in running for offer in _offers(one)])

    @asynccontextmanager
    async def beside(changed: Callable[[], None]) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for one in running:
                await stack.enter_async_context(one.backend.open())
                for standing in one.standings.values():
                    standing.changed = changed
            await asyncio.gather(*(one.check() for one in running))
            checks = [
                asyncio.create_task(supervise(partial(one.keep_checking, settings.check_seconds), name="model checks"))
                for one in running
            ]
            try:
                yield
            finally:
                for check in checks:
                    check.cancel()
                await asyncio.gather(*checks, return_exceptions=True)

    preload = tuple(dict.fromkeys(offer.card.id for offer in offers))
    return Expert(name, offers, preload, version, beside=beside)


def _running(server: Server) -> Running:
    backend: Backend = OpenAIServer(server) if server.kind == "openai" else OipServer(server)
    return Running(server, backend, {model.name: Standing() for model in server.models})


def _offers(running: Running) -> list[Offer]:
    found: list[Offer] = []
    for model in running.server.models:
        for task in model.tasks:
            card, loader = _card(running.server, model, task), _loader(running, model, task)
            found += offered([card], standard_tasks(), {task: loader})
    return found


def _loader(running: Running, model: Model, task: str) -> Loader:
    served = ServedModel(running.server, model, task, running.backend, running.standings[model.name])
    return lambda _id, _device: served


def _card(server: Server, model: Model, task: str) -> ModelCard:
    by_prompt = task in CHATS and server.kind == "openai"
    how = ", asked by prompt" + (" with the picture" if task in SEEING else "") if by_prompt else ""
    return ModelCard(
        id=model.id or _NOT_IN_IDS.sub("-", f"{server.name}/{model.name}"),
        revision=model.version,
        task=task,
        description=model.description or f"Runs on the server {server.name}{how}.",
        license=model.license,
        languages=model.languages,
        region=server.region,
        location=MODEL_LOCATION_INTERNAL if server.reach == "internal" else MODEL_LOCATION_EXTERNAL,
    )


def _distinct(offers: list[Offer]) -> tuple[Offer, ...]:
    seen: set[tuple[str, str]] = set()
    for offer in offers:
        key = (offer.card.task, offer.card.id)
        if key in seen:
            what = f"EXPERT_SERVED: {offer.card.id} stands there twice for {offer.card.task}"
            raise FailedPrecondition(what, remedy="give one of them another id")
        seen.add(key)
    return tuple(offers)

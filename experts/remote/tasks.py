"""The remote expert: what Hugging Face's Inference Providers run, endpoints of one's own there, and the house's LLM."""

from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import structlog

from experts.endpoints.endpoint_health import Standing
from experts.host.expert import Expert, Offer, offered
from experts.host.handler import Loader
from experts.remote import llm
from experts.remote.connections import opened
from experts.remote.methods import METHODS
from experts.remote.model import RemoteModel
from experts.remote.model_facts import Fact
from experts.remote.model_listing import CHAT, SOURCES, facts
from experts.remote.settings import Endpoint, RemoteSettings
from experts.remote.targets import Route
from protos.hugginggpt.tasks import standard_tasks
from protos.hugginggpt.v1.model_pb2 import MODEL_LOCATION_EXTERNAL, ModelCard
from services.common.errors import FailedPrecondition
from services.llm.settings import LlmSettings

log = structlog.get_logger(__name__)

NO_TOKEN = "set HF_TOKEN to a token that may use Inference Providers, or REMOTE_ENDPOINTS, or LLM_BASE_URL"  # noqa: S105  # how to get one
OFFLINE = "unset HF_HUB_OFFLINE, or take a model of the house"

Entry = tuple[ModelCard, Loader]


def EXPERT(name: str, version: str) -> Expert:  # noqa: N802  # a part of the expert, as TASKS is of others
    """What can be asked with this configuration; without any, its cards say what is missing."""
    settings, configured = RemoteSettings(), LlmSettings.of("remote")
    standings: defaultdict[str, Standing] = defaultdict(Standing)
    entries = [_at_endpoint(endpoint, settings, standings[endpoint.url]) for endpoint in settings.endpoints]
    entries += _at_providers(settings, standings)
    line = llm.Line(configured) if configured.base_url else None
    entries += [_by_llm(task, line) for task in llm.TASKS] if line else []
    known: dict[tuple[str, str], Entry] = {}
    for card, loader in entries:  # the operator's own come first
        known.setdefault((card.task, card.id), (card, loader))
    offers = tuple(_offer(card, loader) for card, loader in known.values())

    @asynccontextmanager
    async def beside(changed: Callable[[], None]) -> AsyncIterator[None]:
        for standing in standings.values():
            standing.changed = changed
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(opened(settings))
            if line:
                await stack.enter_async_context(line.open())
            yield

    preload = tuple(dict.fromkeys(offer.card.id for offer in offers))
    return Expert(name, offers, preload, version, beside=beside)


def _at_providers(settings: RemoteSettings, standings: defaultdict[str, Standing]) -> Iterator[Entry]:
    """The Hub's models; without a token they are there to be seen, and in trouble."""
    closed = _closed(settings)
    for fact in facts(settings):
        standing = closed or standings[fact.provider or fact.id]
        model = RemoteModel(fact.task, Route(fact, settings), standing, settings)
        yield _card(fact), lambda _id, _device, model=model: model  # type: ignore[misc]  # bound now
    if closed and closed.trouble:
        log.warning("no provider can be asked", because=closed.trouble.message, remedy=closed.trouble.remedy)


def _closed(settings: RemoteSettings) -> Standing | None:
    """How all providers stand where none can be asked, for as long as the expert runs."""
    standing = Standing()
    if settings.offline:
        standing.failed("this house is offline", OFFLINE)
    elif not settings.token.get_secret_value():
        standing.failed("there is no token for Inference Providers", NO_TOKEN)
    return standing if standing.trouble else None


def _at_endpoint(endpoint: Endpoint, settings: RemoteSettings, standing: Standing) -> Entry:
    if endpoint.task not in METHODS and endpoint.task != CHAT:
        known = ", ".join(sorted({*METHODS, CHAT}))
        what = f"REMOTE_ENDPOINTS names the task {endpoint.task}, which no endpoint is asked for"
        raise FailedPrecondition(what, remedy=f"the tasks are {known}")
    model = RemoteModel(endpoint.task, Route.to(endpoint, settings), standing, settings)
    card = ModelCard(
        id=endpoint.id,
        task=endpoint.task,
        description=endpoint.description or "Runs at an endpoint of the operator's.",
        license=endpoint.license,
        region=endpoint.region,
        location=MODEL_LOCATION_EXTERNAL,
    )
    return card, lambda _id, _device: model


def _by_llm(task: str, line: llm.Line) -> Entry:
    card = ModelCard(
        id=llm.model_id(line.settings),
        task=task,
        description=f"The general language model {line.settings.model}, asked by prompt. Knows many languages; slower "
        "than a small model made for the task, and its scores are its own guess.",
        location=MODEL_LOCATION_EXTERNAL,
    )
    return card, lambda _id, _device: llm.Writer(task, line)


def _card(fact: Fact) -> ModelCard:
    where = f"by the provider {fact.provider}" if fact.provider else "by a provider the Hub names when it is asked"
    how = ", asked by prompt as a model that chats" if fact.via == CHAT and fact.task != CHAT else ""
    return ModelCard(
        id=fact.id,
        task=fact.task,
        description=f"Run outside the house, {where}{how}.",
        downloads=fact.downloads,
        likes=fact.likes,
        license=fact.license,
        languages=fact.languages,
        location=MODEL_LOCATION_EXTERNAL,
    )


def _offer(card: ModelCard, loader: Any) -> Offer:
    """One, checked as those of any other expert."""
    (offer,) = offered([card], standard_tasks(), {card.task: loader})
    return offer


TASKS = tuple(SOURCES)
"""Those that have a provider at all."""

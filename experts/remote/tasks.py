"""The remote expert: models of Hugging Face's Inference Providers and of dedicated endpoints."""

from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import structlog

from experts.endpoints.endpoint_health import EndpointHealth
from experts.host.expert import Expert, Offer, build_offers
from experts.host.handler import Loader
from experts.remote.http_clients import open_connections
from experts.remote.methods import METHODS
from experts.remote.model import RemoteModel
from experts.remote.model_listing import CHAT, SOURCES, ListedModel, list_models
from experts.remote.routes import Route
from experts.remote.settings import Endpoint, RemoteSettings
from protos.hugginggpt.tasks import standard_tasks
from protos.hugginggpt.v1.model_pb2 import MODEL_LOCATION_EXTERNAL, ModelCard
from services.common.errors import FailedPrecondition

log = structlog.get_logger(__name__)

NO_TOKEN = "set HF_TOKEN to a token that may use Inference Providers, or REMOTE_ENDPOINTS"  # noqa: S105  # a remedy
OFFLINE = "unset HF_HUB_OFFLINE, or use an internal model"

Entry = tuple[ModelCard, Loader]


def EXPERT(name: str, version: str) -> Expert:  # noqa: N802  # a part of the expert, as TASKS is of others
    """Returns the expert for this configuration; the cards of unavailable models state what is missing."""
    settings = RemoteSettings()
    healths: defaultdict[str, EndpointHealth] = defaultdict(EndpointHealth)
    entries = [_endpoint_entry(endpoint, settings, healths[endpoint.url]) for endpoint in settings.endpoints]
    entries += _provider_entries(settings, healths)
    entries_by_model: dict[tuple[str, str], Entry] = {}
    for card, loader in entries:  # the operator's endpoints take precedence
        entries_by_model.setdefault((card.task, card.id), (card, loader))
    offers = tuple(_build_offer(card, loader) for card, loader in entries_by_model.values())

    @asynccontextmanager
    async def connections(changed: Callable[[], None]) -> AsyncIterator[None]:
        for health in healths.values():
            health.changed = changed
        async with open_connections(settings):
            yield

    preload = tuple(dict.fromkeys(offer.card.id for offer in offers))
    return Expert(name, offers, preload, version, connections=connections)


def _provider_entries(settings: RemoteSettings, healths: defaultdict[str, EndpointHealth]) -> Iterator[Entry]:
    """Yields the Hub's models; without a token they are listed as unavailable."""
    disabled = _disabled_health(settings)
    for listed in list_models(settings):
        health = disabled or healths[listed.provider or listed.id]
        model = RemoteModel(listed.task, Route(listed, settings), health, settings)
        yield _build_card(listed), lambda _id, _device, model=model: model  # type: ignore[misc]  # bound now
    if disabled and disabled.unavailable_reason:
        log.warning(
            "no provider is available",
            reason=disabled.unavailable_reason.message,
            remedy=disabled.unavailable_reason.remedy,
        )


def _disabled_health(settings: RemoteSettings) -> EndpointHealth | None:
    """Returns the health of all providers if the configuration permits no calls to them."""
    health = EndpointHealth()
    if settings.offline:
        health.mark_unavailable("this deployment is offline", OFFLINE)
    elif not settings.token.get_secret_value():
        health.mark_unavailable("there is no token for Inference Providers", NO_TOKEN)
    return health if health.unavailable_reason else None


def _endpoint_entry(endpoint: Endpoint, settings: RemoteSettings, health: EndpointHealth) -> Entry:
    if endpoint.task not in METHODS and endpoint.task != CHAT:
        supported = ", ".join(sorted({*METHODS, CHAT}))
        message = f"REMOTE_ENDPOINTS names the task {endpoint.task}, which endpoints do not support"
        raise FailedPrecondition(message, remedy=f"use one of {supported}")
    model = RemoteModel(endpoint.task, Route.for_endpoint(endpoint, settings), health, settings)
    card = ModelCard(
        id=endpoint.id,
        task=endpoint.task,
        description=endpoint.description or "Runs at a dedicated endpoint.",
        license=endpoint.license,
        region=endpoint.region,
        location=MODEL_LOCATION_EXTERNAL,
    )
    return card, lambda _id, _device: model


def _build_card(listed: ListedModel) -> ModelCard:
    provider = f"by the provider {listed.provider}" if listed.provider else "by a provider that the Hub selects"
    method = ", by prompt as a chat model" if listed.provider_task == CHAT and listed.task != CHAT else ""
    return ModelCard(
        id=listed.id,
        task=listed.task,
        description=f"Run outside the deployment, {provider}{method}.",
        downloads=listed.downloads,
        likes=listed.likes,
        license=listed.license,
        languages=listed.languages,
        location=MODEL_LOCATION_EXTERNAL,
    )


def _build_offer(card: ModelCard, loader: Any) -> Offer:
    """Builds one offer, with the checks of other experts."""
    (offer,) = build_offers([card], standard_tasks(), {card.task: loader})
    return offer


TASKS = tuple(SOURCES)
"""Tasks that providers support."""

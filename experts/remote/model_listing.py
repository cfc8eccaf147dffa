"""Models that providers run, from the Hub's API: by task, most downloaded first."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Any

import structlog

from experts.remote import hub_internals
from experts.remote.model_facts import Fact, cached, keep, shipped
from experts.remote.settings import RemoteSettings
from services.common.errors import CorruptData

if TYPE_CHECKING:
    from httpx2 import Client

log = structlog.get_logger(__name__)

CHAT = "conversational"
_SIGHT = ("image-text-to-text", CHAT)

SOURCES: Mapping[str, Sequence[tuple[str, str]]] = {
    task: ((task, task),)
    for task in (
        "text-classification",
        "zero-shot-classification",
        "token-classification",
        "question-answering",
        "table-question-answering",
        "summarization",
        "translation",
        "fill-mask",
        "feature-extraction",
        "sentence-similarity",
        "image-classification",
        "zero-shot-image-classification",
        "object-detection",
        "image-segmentation",
        "image-to-image",
        "automatic-speech-recognition",
        "audio-classification",
        "text-to-speech",
        "audio-to-audio",
        "text-to-image",
        "text-to-video",
        "image-to-video",
    )
} | {
    "conversational": (("text-generation", CHAT),),
    "text-generation": (("text-generation", "text-generation"), ("text-generation", CHAT)),
    "image-to-text": (("image-to-text", "image-to-text"), _SIGHT),
    "visual-question-answering": (("visual-question-answering", "visual-question-answering"), _SIGHT),
    "document-question-answering": (("document-question-answering", "document-question-answering"), _SIGHT),
}
"""By task: the Hub's tag of its models, and what a provider must run them as."""

_AT_A_TIME = 6
_LIST_BYTES = 8 * 1024 * 1024
_MORE = 8
"""So many times the models wanted are listed: not every one has a provider that will do."""
_EXPANDED = ("downloads", "likes", "tags", "inferenceProviderMapping")
_LANGUAGE = re.compile(r"[a-z]{2,3}")
_NONSENSE = (ValueError, TypeError, KeyError, AttributeError, RecursionError)


def facts(settings: RemoteSettings) -> list[Fact]:
    """The models to offer; without a token, or offline, nothing is asked."""
    wanted = f"{settings.hub} {settings.providers} {settings.per_task}"
    if known := cached(settings.cache, wanted, hours=settings.refresh_hours):
        return known
    if settings.offline or not settings.token.get_secret_value():
        return cached(settings.cache, wanted, hours=float("inf")) or shipped()
    if listed := _listed(settings):
        keep(settings.cache, wanted, listed)
        return listed
    log.warning("the Hub gave no list of models", remedy="see that HF_ENDPOINT is reachable; older cards are used")
    return cached(settings.cache, wanted, hours=float("inf")) or shipped()


def _listed(settings: RemoteSettings) -> list[Fact]:
    tags = {tag for sources in SOURCES.values() for tag, _ in sources}
    with hub(settings) as client, ThreadPoolExecutor(_AT_A_TIME) as pool:
        asked = partial(_models, client, settings, Event())
        by_tag = dict(zip(tags, pool.map(asked, tags), strict=True))
    return [fact for task in SOURCES for fact in _best(task, by_tag, settings)]


def _models(client: "Client", settings: RemoteSettings, away: Event, tag: str) -> list[dict[str, Any]]:
    """As the Hub lists them; none if it does not, and once it is away it is not asked for more."""
    from httpx2 import HTTPError, InvalidURL, TransportError

    if away.is_set():
        return []

    where = ",".join(settings.preferred) or "all"
    params = {"pipeline_tag": tag, "inference_provider": where, "sort": "downloads", "expand": list(_EXPANDED)}
    try:
        reply = client.get("/api/models", params={**params, "limit": settings.per_task * _MORE})
        reply.raise_for_status()
        models: list[dict[str, Any]] = reply.json()
    except (HTTPError, InvalidURL, CorruptData, *_NONSENSE) as error:
        if isinstance(error, TransportError):
            away.set()
        log.warning("a list of models is missing", tag=tag, error=type(error).__name__)
        return []
    return models if isinstance(models, list) else []


def _best(task: str, by_tag: Mapping[str, list[dict[str, Any]]], settings: RemoteSettings) -> list[Fact]:
    found: dict[str, Fact] = {}
    for tag, via in SOURCES[task]:
        for model in by_tag.get(tag, ()):
            try:
                fact = _fact(model, task, via, settings)
            except _NONSENSE:
                continue
            if fact:
                found.setdefault(fact.id, fact)
    return sorted(found.values(), key=lambda fact: -fact.downloads)[: settings.per_task]


def _fact(model: Mapping[str, Any], task: str, via: str, settings: RemoteSettings) -> Fact | None:
    """The model, if a provider runs it as wanted."""
    live = [one for one in mappings(model) if one["status"] == "live" and one["task"] == via]
    chosen = preferred(live, via, settings.preferred)
    if not chosen:
        return None
    tags = [str(tag) for tag in model.get("tags") or ()]
    return Fact(
        id=str(model["id"]),
        task=task,
        via=via,
        provider=chosen["provider"],
        provider_id=chosen["providerId"],
        downloads=int(model.get("downloads") or 0),
        likes=int(model.get("likes") or 0),
        license=next((tag.removeprefix("license:") for tag in tags if tag.startswith("license:")), ""),
        languages=tuple(_languages(tags)),
    )


def hub(settings: RemoteSettings) -> "Client":
    """To the Hub, or its mirror; it follows no redirect."""
    from httpx2 import Client

    from experts.endpoints import http_client

    token, habits = settings.token.get_secret_value(), http_client.habits()
    return Client(
        base_url=settings.hub.rstrip("/"),
        timeout=settings.listing_seconds,
        event_hooks={"response": [partial(http_client.limit, reply_bytes=_LIST_BYTES)]},
        cookies=habits["cookies"],
        headers={**habits["headers"], **({"authorization": f"Bearer {token}"} if token else {})},
    )


def mappings(model: Mapping[str, Any]) -> list[dict[str, str]]:
    """Who runs it, as what, under which name; the Hub says so in either of two shapes."""
    said = model.get("inferenceProviderMapping") or []
    if isinstance(said, dict):
        said = [{**value, "provider": provider} for provider, value in said.items()]
    return list(said)


def preferred(live: Iterable[Mapping[str, str]], via: str, wanted: Sequence[str]) -> Mapping[str, str] | None:
    """The mapping of the provider to ask, among those that the client knows for this."""
    known = [one for one in live if hub_internals.does(one["provider"], via)]
    if not wanted:
        return next(iter(known), None)
    ranked = [one for one in known if one["provider"] in wanted]
    return min(ranked, key=lambda one: wanted.index(one["provider"]), default=None)


def _languages(tags: Iterable[str]) -> Iterator[str]:
    """Hub tags of two letters are languages; three-letter ones are not told from others."""
    return (tag for tag in tags if _LANGUAGE.fullmatch(tag) and len(tag) == 2)  # noqa: PLR2004

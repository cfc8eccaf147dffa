"""Lists models that inference providers run: from the Hub's API, from a cache of its replies, or as bundled here."""

import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import structlog

from experts.remote import hub_internals
from experts.remote.settings import RemoteSettings
from services.common.errors import CorruptData

if TYPE_CHECKING:
    from httpx2 import Client

log = structlog.get_logger(__name__)

CHAT = "conversational"
_VISION_CHAT = ("image-text-to-text", CHAT)

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
    "image-to-text": (("image-to-text", "image-to-text"), _VISION_CHAT),
    "visual-question-answering": (("visual-question-answering", "visual-question-answering"), _VISION_CHAT),
    "document-question-answering": (("document-question-answering", "document-question-answering"), _VISION_CHAT),
}
"""By task: the Hub's tags of its models, each with the task that a provider must run them as."""

_CONCURRENT_QUERIES = 6
_LIST_BYTES = 8 * 1024 * 1024
_OVERSAMPLING = 8
"""How many times more models than needed are queried, as not every one has a suitable provider."""
_EXPANDED = ("downloads", "likes", "tags", "inferenceProviderMapping")
_LANGUAGE = re.compile(r"[a-z]{2,3}")
_REPLY_ERRORS = (ValueError, TypeError, KeyError, AttributeError, RecursionError)
_SECONDS_PER_HOUR = 3600


@dataclass(frozen=True)
class ListedModel:
    """One model for one task at one provider."""

    id: str
    task: str
    """Standard task that it is offered for."""
    provider_task: str
    """Task that the provider runs it as: the same, or conversational."""
    provider: str = ""
    """Empty if unknown: then it is looked up on the Hub before the first call."""
    provider_id: str = ""
    """Name of the model at the provider."""
    downloads: int = 0
    likes: int = 0
    license: str = ""
    languages: tuple[str, ...] = ()


def list_models(settings: RemoteSettings) -> list[ListedModel]:
    """Returns the models to offer; without a token, or offline, from the cache or the package instead of the Hub."""
    key = f"{settings.hub} {settings.providers} {settings.models_per_task}"
    if cached := read_cache(settings.cache, key, hours=settings.refresh_hours):
        return cached
    if settings.offline or not settings.token.get_secret_value():
        return read_cache(settings.cache, key, hours=float("inf")) or read_bundled_models()
    if listed := _query_all(settings):
        write_cache(settings.cache, key, listed)
        return listed
    log.warning("the Hub listed no models: older cards are used", remedy="check that HF_ENDPOINT is reachable")
    return read_cache(settings.cache, key, hours=float("inf")) or read_bundled_models()


def _query_all(settings: RemoteSettings) -> list[ListedModel]:
    tags = {tag for sources in SOURCES.values() for tag, _ in sources}
    with open_hub_client(settings) as client, ThreadPoolExecutor(_CONCURRENT_QUERIES) as pool:
        query = partial(_query_models, client, settings, Event())
        by_tag = dict(zip(tags, pool.map(query, tags), strict=True))
    return [model for task in SOURCES for model in _select_best(task, by_tag, settings)]


def _query_models(client: "Client", settings: RemoteSettings, is_unreachable: Event, tag: str) -> list[dict[str, Any]]:
    """Queries the Hub's models of a tag; none after an error, and no query once the Hub is unreachable."""
    from httpx2 import HTTPError, InvalidURL, TransportError

    if is_unreachable.is_set():
        return []

    providers = ",".join(settings.preferred_providers) or "all"
    params = {"pipeline_tag": tag, "inference_provider": providers, "sort": "downloads", "expand": list(_EXPANDED)}
    try:
        reply = client.get("/api/models", params={**params, "limit": settings.models_per_task * _OVERSAMPLING})
        reply.raise_for_status()
        models: list[dict[str, Any]] = reply.json()
    except (HTTPError, InvalidURL, CorruptData, *_REPLY_ERRORS) as error:
        if isinstance(error, TransportError):
            is_unreachable.set()
        log.warning("models not listed", tag=tag, error=type(error).__name__)
        return []
    return models if isinstance(models, list) else []


def _select_best(task: str, by_tag: Mapping[str, list[dict[str, Any]]], settings: RemoteSettings) -> list[ListedModel]:
    models: dict[str, ListedModel] = {}
    for tag, provider_task in SOURCES[task]:
        for entry in by_tag.get(tag, ()):
            try:
                model = _parse_model(entry, task, provider_task, settings)
            except _REPLY_ERRORS:
                continue
            if model:
                models.setdefault(model.id, model)
    return sorted(models.values(), key=lambda model: -model.downloads)[: settings.models_per_task]


def _parse_model(
    model: Mapping[str, Any], task: str, provider_task: str, settings: RemoteSettings
) -> ListedModel | None:
    """Returns the model if a suitable provider runs it."""
    live = [
        mapping for mapping in read_mappings(model) if mapping["status"] == "live" and mapping["task"] == provider_task
    ]
    chosen = choose_mapping(live, provider_task, settings.preferred_providers)
    if not chosen:
        return None
    tags = [str(tag) for tag in model.get("tags") or ()]
    return ListedModel(
        id=str(model["id"]),
        task=task,
        provider_task=provider_task,
        provider=chosen["provider"],
        provider_id=chosen["providerId"],
        downloads=int(model.get("downloads") or 0),
        likes=int(model.get("likes") or 0),
        license=next((tag.removeprefix("license:") for tag in tags if tag.startswith("license:")), ""),
        languages=tuple(_find_languages(tags)),
    )


def open_hub_client(settings: RemoteSettings) -> "Client":
    """Returns a client of the Hub or its mirror; it follows no redirects."""
    from httpx2 import Client

    from experts.endpoints import http_client

    token, common_options = settings.token.get_secret_value(), http_client.common_options()
    return Client(
        base_url=settings.hub.rstrip("/"),
        timeout=settings.listing_seconds,
        event_hooks={"response": [partial(http_client.limit_body, reply_bytes=_LIST_BYTES)]},
        cookies=common_options["cookies"],
        headers={**common_options["headers"], **({"authorization": f"Bearer {token}"} if token else {})},
    )


def read_mappings(model: Mapping[str, Any]) -> list[dict[str, str]]:
    """Returns the providers of a model with its task and name there, from either format of the Hub's reply."""
    reply = model.get("inferenceProviderMapping") or []
    if isinstance(reply, dict):
        reply = [{**value, "provider": provider} for provider, value in reply.items()]
    return list(reply)


def choose_mapping(
    live: Iterable[Mapping[str, str]], provider_task: str, providers: Sequence[str]
) -> Mapping[str, str] | None:
    """Returns the mapping of the most preferred provider that the client supports for a task; any if none is named."""
    supported = [mapping for mapping in live if hub_internals.supports(mapping["provider"], provider_task)]
    if not providers:
        return next(iter(supported), None)
    ranked = [mapping for mapping in supported if mapping["provider"] in providers]
    return min(ranked, key=lambda mapping: providers.index(mapping["provider"]), default=None)


def _find_languages(tags: Iterable[str]) -> Iterator[str]:
    """Yields the language tags: Hub tags of two letters; three-letter ones are ambiguous."""
    return (tag for tag in tags if _LANGUAGE.fullmatch(tag) and len(tag) == 2)  # noqa: PLR2004


# ---------------------------------------------------------------- cache and bundled models


def read_bundled_models() -> list[ListedModel]:
    """Returns a few well-known models of each task."""
    return _parse_models(json.loads((files(__package__) / "bundled_models.json").read_text(encoding="utf-8")))


def read_cache(file: Path, key: str, *, hours: float) -> list[ListedModel] | None:
    """Returns the cached models, if the file has the same key and is not too old."""
    try:
        stored = json.loads(file.read_text(encoding="utf-8"))
        models, age_seconds = _parse_models(stored), time.time() - stored["time"]
        is_usable = stored["key"] == key and 0 <= age_seconds <= hours * _SECONDS_PER_HOUR
    except FileNotFoundError:
        return None
    except (OSError, *_REPLY_ERRORS) as error:
        log.warning("cannot read cached cards", file=str(file), error=type(error).__name__)
        return None
    return models if is_usable else None


def write_cache(file: Path, key: str, models: Iterable[ListedModel]) -> None:
    """Writes the models to a file atomically; an error is only logged."""
    text = json.dumps({"key": key, "time": time.time(), "models": [asdict(model) for model in models]}, indent=1)
    temporary = file.with_suffix(".new")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(file)
    except OSError as error:
        log.warning("cannot cache cards", file=str(file), error=error.strerror)


def _parse_models(stored: Mapping[str, Any]) -> list[ListedModel]:
    return [ListedModel(**{**entry, "languages": tuple(entry.get("languages", ()))}) for entry in stored["models"]]

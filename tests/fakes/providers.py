"""The Hub and its Inference Providers: the routes that the remote expert calls."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.fakes.llm.http import Request
from tests.fakes.web import Answer, Web

MODELS: dict[str, tuple[str, str, str]] = {
    "acme/mood": ("text-classification", "hf-inference", "text-classification"),
    "acme/mood-small": ("text-classification", "together", "text-classification"),
    "acme/summary": ("summarization", "hf-inference", "summarization"),
    "acme/tongues": ("translation", "hf-inference", "translation"),
    "acme/names": ("token-classification", "hf-inference", "token-classification"),
    "acme/likeness": ("sentence-similarity", "hf-inference", "sentence-similarity"),
    "acme/vector": ("feature-extraction", "hf-inference", "feature-extraction"),
    "acme/boxes": ("object-detection", "hf-inference", "object-detection"),
    "acme/masks": ("image-segmentation", "hf-inference", "image-segmentation"),
    "acme/ears": ("automatic-speech-recognition", "hf-inference", "automatic-speech-recognition"),
    "acme/brush": ("text-to-image", "hf-inference", "text-to-image"),
    "acme/brush-two": ("text-to-image", "nscale", "text-to-image"),
    "acme/chat": ("text-generation", "novita", "conversational"),
    "acme/eyes": ("image-text-to-text", "together", "conversational"),
}
"""Models by id: pipeline tag and providers; in descending order of downloads."""


@asynccontextmanager
async def providers() -> AsyncIterator[Web]:
    """Lists MODELS; tests set the models' answers with `says("/models/acme/mood", …)`."""
    async with Web.serving() as web:
        web.answers["/api/models"] = _list
        yield web


def _list(request: Request) -> Answer:
    query = parse_qs(urlsplit(request.path).query)
    listed = [
        _model(name, position) for position, name in enumerate(MODELS) if MODELS[name][0] == query["pipeline_tag"][0]
    ]
    return Answer(listed)


def _model(name: str, position: int) -> dict[str, Any]:
    _, provider, task = MODELS[name]
    mapping = {"provider": provider, "providerId": f"{provider}-{name}", "status": "live", "task": task}
    return {
        "id": name,
        "downloads": 1000 - position,
        "likes": 10,
        "tags": ["license:mit", "en", "pytorch"],
        "inferenceProviderMapping": [mapping],
    }

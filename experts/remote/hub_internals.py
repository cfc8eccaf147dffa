"""What huggingface_hub does not promise and cannot be done without: everything of that kind is here, and nowhere else.

The client looks up a provider's name of a model by a request of its own that stops the event loop, and knows the type
of a file only by its path. tests/unit/test_remote_hub_internals.py says what has changed when the library has.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

from experts.host.handler import Media

if TYPE_CHECKING:
    from httpx2 import AsyncClient, Client


def router(provider: str) -> str:
    """The address under which Hugging Face passes calls on to a provider."""
    from huggingface_hub.constants import INFERENCE_PROXY_TEMPLATE

    return INFERENCE_PROXY_TEMPLATE.format(provider=provider)


def does(provider: str, task: str) -> bool:
    """Whether the client can ask a provider for a task."""
    from huggingface_hub.inference._providers import PROVIDERS

    return task in PROVIDERS.get(provider, {})  # type: ignore[call-overload]  # any name


def teach(provider: str, model_id: str, name: str, task: str) -> None:
    """Tells the client what a provider calls a model, so that it asks nobody."""
    from huggingface_hub.hf_api import InferenceProviderMapping
    from huggingface_hub.inference._providers._common import HARDCODED_MODEL_INFERENCE_MAPPING

    facts: dict[str, Any] = {"hf_model_id": model_id, "providerId": name, "task": task, "status": "live"}
    known = HARDCODED_MODEL_INFERENCE_MAPPING.setdefault(provider, {})
    known[model_id] = InferenceProviderMapping(provider=provider, **facts)  # type: ignore[no-untyped-call]


def typed(media: Media) -> bytes:
    """The bytes of a file, with its media type where the client looks for it."""
    from huggingface_hub.inference._common import MimeBytes

    return MimeBytes(media.content, media.media_type)


def ask_through(
    asynchronous: "Callable[[], AbstractAsyncContextManager[AsyncClient]]", synchronous: "Callable[[], Client]"
) -> None:
    """Has the client, and what it fetches beside, go through connections of ours."""
    from huggingface_hub import set_async_client_factory, set_client_factory

    set_async_client_factory(asynchronous)  # type: ignore[arg-type]  # it enters and leaves it, nothing else
    set_client_factory(synchronous)


def ask_as_usual() -> None:
    """Undoes ask_through."""
    from huggingface_hub import set_async_client_factory, set_client_factory
    from huggingface_hub.utils._http import default_async_client_factory, default_client_factory

    set_async_client_factory(default_async_client_factory)
    set_client_factory(default_client_factory)

"""All uses of undocumented parts of huggingface_hub.

The client resolves a provider's name of a model with a request that blocks the event loop, and derives the type of a
file only from its path. tests/unit/test_remote_hub_internals.py fails when these parts of the library change.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

from experts.host.handler import Media

if TYPE_CHECKING:
    from httpx2 import AsyncClient, Client


def router_url(provider: str) -> str:
    """Returns the URL at which Hugging Face routes calls to a provider."""
    from huggingface_hub.constants import INFERENCE_PROXY_TEMPLATE

    return INFERENCE_PROXY_TEMPLATE.format(provider=provider)


def supports(provider: str, task: str) -> bool:
    """Whether the client can call a provider for a task."""
    from huggingface_hub.inference._providers import PROVIDERS

    return task in PROVIDERS.get(provider, {})  # type: ignore[call-overload]  # any name


def set_provider_id(provider: str, model_id: str, name: str, task: str) -> None:
    """Registers a provider's name of a model with the client, so that it does not query the Hub."""
    from huggingface_hub.hf_api import InferenceProviderMapping
    from huggingface_hub.inference._providers._common import HARDCODED_MODEL_INFERENCE_MAPPING

    mapping: dict[str, Any] = {"hf_model_id": model_id, "providerId": name, "task": task, "status": "live"}
    known = HARDCODED_MODEL_INFERENCE_MAPPING.setdefault(provider, {})
    known[model_id] = InferenceProviderMapping(provider=provider, **mapping)  # type: ignore[no-untyped-call]


def attach_media_type(media: Media) -> bytes:
    """Returns the bytes of a file with its media type where the client looks for it."""
    from huggingface_hub.inference._common import MimeBytes

    return MimeBytes(media.content, media.media_type)


def use_clients(
    asynchronous: "Callable[[], AbstractAsyncContextManager[AsyncClient]]", synchronous: "Callable[[], Client]"
) -> None:
    """Sets the HTTP clients that huggingface_hub uses for calls and for fetching results."""
    from huggingface_hub import set_async_client_factory, set_client_factory

    set_async_client_factory(asynchronous)  # type: ignore[arg-type]  # only used as a context manager
    set_client_factory(synchronous)


def reset_clients() -> None:
    """Undoes `use_clients`."""
    from huggingface_hub import set_async_client_factory, set_client_factory
    from huggingface_hub.utils._http import default_async_client_factory, default_client_factory

    set_async_client_factory(default_async_client_factory)
    set_client_factory(default_client_factory)

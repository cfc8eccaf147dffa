"""What the remote expert needs of huggingface_hub beyond its public API; a failure shows what has changed."""

import inspect
from contextlib import nullcontext
from pathlib import Path

import pytest
from huggingface_hub import AsyncInferenceClient, get_async_session, get_session
from huggingface_hub.inference._providers import get_provider_helper

from experts.host.handler import Media
from experts.remote import hub_internals
from experts.remote.model_listing import SOURCES

REMOTE = Path(inspect.getfile(hub_internals)).parent


def test_only_hub_internals_imports_private_modules() -> None:
    users = {path.name for path in REMOTE.glob("*.py") if "huggingface_hub.inference._" in path.read_text()}
    assert users == {"hub_internals.py"}


def test_router_url_names_the_provider() -> None:
    assert hub_internals.router("novita").startswith("https://")
    assert hub_internals.router("novita").endswith("/novita")


@pytest.mark.parametrize("task", sorted({via for sources in SOURCES.values() for _, via in sources}))
def test_every_task_is_supported_by_some_provider(task: str) -> None:
    assert hub_internals.supports("hf-inference", task) or any(
        hub_internals.supports(provider, task)
        for provider in ("fal-ai", "replicate", "novita", "together", "deepinfra")
    )


def test_unknown_provider_or_task_is_not_supported() -> None:
    assert not hub_internals.supports("unknown", "text-to-image")
    assert not hub_internals.supports("novita", "mind-reading")


def test_client_uses_the_registered_provider_id() -> None:
    hub_internals.set_provider_id("novita", "acme/told", "told-there", "conversational")
    helper = get_provider_helper("novita", "conversational", "acme/told")
    asked = helper.prepare_request(inputs=[], parameters={}, headers={}, model="acme/told", api_key="hf_x")
    assert asked.model == "told-there"
    assert asked.url.startswith(hub_internals.router("novita"))


def test_client_sends_a_file_with_its_media_type() -> None:
    helper = get_provider_helper("hf-inference", "automatic-speech-recognition", "http://127.0.0.1/asr")
    inputs = hub_internals.with_media_type(Media(b"RIFF", "audio/wav", "a.wav"))
    asked = helper.prepare_request(
        inputs=inputs, parameters={}, headers={}, model="http://127.0.0.1/asr", api_key="hf_x"
    )
    assert asked.data == b"RIFF"
    assert asked.headers["content-type"] == "audio/wav"


async def test_client_uses_the_given_connections_until_reset() -> None:
    async with AsyncInferenceClient("http://127.0.0.1/x", token="hf_x") as client:  # of no use
        usual = type(get_session())
        ours, fetching = object(), usual()
        hub_internals.use_clients(lambda: nullcontext(ours), lambda: fetching)  # type: ignore[arg-type]  # told apart by identity
        try:
            assert await client._get_async_client() is ours
            assert get_session() is fetching
        finally:
            hub_internals.reset_clients()
    assert get_session() is not fetching
    await get_async_session().aclose()

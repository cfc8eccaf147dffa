"""Private parts of huggingface_hub on which the remote expert depends; a failure shows which part has changed."""

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
    assert hub_internals.router_url("novita").startswith("https://")
    assert hub_internals.router_url("novita").endswith("/novita")


@pytest.mark.parametrize("task", sorted({task for sources in SOURCES.values() for _, task in sources}))
def test_every_task_is_supported_by_some_provider(task: str) -> None:
    assert hub_internals.supports("hf-inference", task) or any(
        hub_internals.supports(provider, task)
        for provider in ("fal-ai", "replicate", "novita", "together", "deepinfra")
    )


def test_unknown_provider_or_task_is_not_supported() -> None:
    assert not hub_internals.supports("unknown", "text-to-image")
    assert not hub_internals.supports("novita", "mind-reading")


def test_client_uses_the_registered_provider_id() -> None:
    hub_internals.set_provider_id("novita", "acme/model", "provider-model", "conversational")
    helper = get_provider_helper("novita", "conversational", "acme/model")
    request = helper.prepare_request(inputs=[], parameters={}, headers={}, model="acme/model", api_key="hf_x")
    assert request.model == "provider-model"
    assert request.url.startswith(hub_internals.router_url("novita"))


def test_client_sends_a_file_with_its_media_type() -> None:
    helper = get_provider_helper("hf-inference", "automatic-speech-recognition", "http://127.0.0.1/asr")
    inputs = hub_internals.attach_media_type(Media(b"RIFF", "audio/wav", "a.wav"))
    request = helper.prepare_request(
        inputs=inputs, parameters={}, headers={}, model="http://127.0.0.1/asr", api_key="hf_x"
    )
    assert request.data == b"RIFF"
    assert request.headers["content-type"] == "audio/wav"


async def test_client_uses_the_given_connections_until_reset() -> None:
    async with AsyncInferenceClient("http://127.0.0.1/x", token="hf_x") as inference_client:
        default_class = type(get_session())
        client, result_client = object(), default_class()
        hub_internals.use_clients(lambda: nullcontext(client), lambda: result_client)  # type: ignore[arg-type]    # compared by identity
        try:
            assert await inference_client._get_async_client() is client
            assert get_session() is result_client
        finally:
            hub_internals.reset_clients()
    assert get_session() is not result_client
    await get_async_session().aclose()

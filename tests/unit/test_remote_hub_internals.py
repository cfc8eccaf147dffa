"""What the remote expert needs of huggingface_hub beyond what that promises: a failure here says what has changed."""

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


def test_only_one_module_reaches_into_the_library() -> None:
    users = {path.name for path in REMOTE.glob("*.py") if "huggingface_hub.inference._" in path.read_text()}
    assert users == {"hub_internals.py"}


def test_providers_are_passed_calls_by_the_router() -> None:
    assert hub_internals.router("novita").startswith("https://")
    assert hub_internals.router("novita").endswith("/novita")


@pytest.mark.parametrize("task", sorted({via for sources in SOURCES.values() for _, via in sources}))
def test_every_kind_of_call_has_a_provider_that_the_client_knows(task: str) -> None:
    assert hub_internals.does("hf-inference", task) or any(
        hub_internals.does(provider, task) for provider in ("fal-ai", "replicate", "novita", "together", "deepinfra")
    )


def test_a_provider_or_a_kind_of_call_that_nobody_knows_is_no_error() -> None:
    assert not hub_internals.does("nobody", "text-to-image")
    assert not hub_internals.does("novita", "mind-reading")


def test_the_client_believes_what_it_is_told_a_provider_calls_a_model() -> None:
    hub_internals.teach("novita", "acme/told", "told-there", "conversational")
    helper = get_provider_helper("novita", "conversational", "acme/told")
    asked = helper.prepare_request(inputs=[], parameters={}, headers={}, model="acme/told", api_key="hf_x")
    assert asked.model == "told-there"
    assert asked.url.startswith(hub_internals.router("novita"))


def test_the_client_sends_a_file_with_the_type_it_was_given() -> None:
    helper = get_provider_helper("hf-inference", "automatic-speech-recognition", "http://127.0.0.1/asr")
    inputs = hub_internals.typed(Media(b"RIFF", "audio/wav", "a.wav"))
    asked = helper.prepare_request(
        inputs=inputs, parameters={}, headers={}, model="http://127.0.0.1/asr", api_key="hf_x"
    )
    assert (asked.data, asked.headers["content-type"]) == (b"RIFF", "audio/wav")


async def test_the_client_asks_through_connections_of_ours_until_that_is_undone() -> None:
    async with AsyncInferenceClient("http://127.0.0.1/x", token="hf_x") as client:  # of no use
        usual = type(get_session())
        ours, fetching = object(), usual()
        hub_internals.ask_through(lambda: nullcontext(ours), lambda: fetching)  # type: ignore[arg-type]  # told apart by identity
        try:
            assert await client._get_async_client() is ours
            assert get_session() is fetching
        finally:
            hub_internals.ask_as_usual()
    assert get_session() is not fetching
    await get_async_session().aclose()

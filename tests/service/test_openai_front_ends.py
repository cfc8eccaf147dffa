"""Requests of Open WebUI and LibreChat."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.openai_clients import EVENTS, OpenAIGateway, start_openai_gateway
from tests.support.samples import DATA

QUESTION = "When does the exhibition open?"
TITLE = "When does the exhibition open"


@pytest.fixture
async def openai_gateway(tmp_path: Path) -> AsyncIterator[OpenAIGateway]:
    async with start_openai_gateway(tmp_path, EVENTS) as openai_gateway:
        yield openai_gateway


async def send(openai_gateway: OpenAIGateway, name: str) -> str:
    """Sends a request of a front end; returns the answer."""
    body = json.loads((DATA / "chat_front_ends" / f"{name}.json").read_text())
    reply = await openai_gateway.client.chat.completions.create(**body)
    return reply.choices[0].message.content or ""


@pytest.mark.parametrize("name", ["open_webui_retrieval", "open_webui_retrieval_with_query_tag"])
async def test_retrieved_passages_become_files_of_the_question(openai_gateway: OpenAIGateway, name: str) -> None:
    await send(openai_gateway, name)
    spec = openai_gateway.last().spec
    files = [each.value.artifact for each in spec.inputs]
    assert spec.request == QUESTION
    assert [file.name for file in files] == ["museum.pdf.txt", "map.txt"]
    content = (await openai_gateway.gateway.store.get("default", files[0].sha256)).decode()
    assert content.startswith("The museum will open its new wing on 3 September 2024.\n\nEntry is free on Sundays.")


async def test_retrieval_in_instructions_becomes_a_file(openai_gateway: OpenAIGateway) -> None:
    await send(openai_gateway, "librechat_retrieval")
    spec = openai_gateway.last().spec
    (file,) = [each.value.artifact for each in spec.inputs]
    assert spec.request == QUESTION
    content = (await openai_gateway.gateway.store.get("default", file.sha256)).decode()
    assert content == "The museum will open its new wing on 3 September 2024."


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("open_webui_title", {"title": TITLE}),
        ("open_webui_tags", {"tags": ["General"]}),
        ("open_webui_follow_ups", {"follow_ups": []}),
    ],
)
async def test_json_prompts_are_answered_without_a_run(
    openai_gateway: OpenAIGateway, name: str, answer: object
) -> None:
    assert json.loads(await send(openai_gateway, name)) == answer
    assert not openai_gateway.orchestrator.runs


@pytest.mark.parametrize(
    ("name", "answer"),
    [("librechat_title", TITLE), ("librechat_title_with_language", TITLE), ("open_webui_emoji", "💬")],
)
async def test_text_prompts_are_answered_without_a_run(openai_gateway: OpenAIGateway, name: str, answer: str) -> None:
    assert await send(openai_gateway, name) == answer
    assert not openai_gateway.orchestrator.runs

"""OpenAI's routes with a real orchestrator."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from protos.hugginggpt.v1.artifact_pb2 import Value
from protos.hugginggpt.v1.expert_pb2 import InferRequest
from services.orchestrator.__main__ import orchestrator as serve_orchestrator
from services.orchestrator.settings import Settings
from tests.support.api_keys import KeyedGateway, start_keyed_gateway
from tests.support.orchestrator import END, ScriptedPeers, task

REQUEST: Any = {"model": "hugginggpt", "input": "Summarise it."}
CHAT: Any = {"model": "hugginggpt", "messages": [{"role": "user", "content": "Summarise it."}]}


@pytest.fixture
async def keyed_gateway(peers: ScriptedPeers, settings: Settings, tmp_path: Path) -> AsyncIterator[KeyedGateway]:
    peers.plan(task(1), END)
    async with serve_orchestrator(settings) as running:
        own = {"orchestrator": f"127.0.0.1:{running.port}", "ARTIFACTS_URL": settings.artifacts_url}
        async with start_keyed_gateway(tmp_path, own) as keyed_gateway:
            yield keyed_gateway


@pytest.fixture
async def one(keyed_gateway: KeyedGateway) -> AsyncIterator[AsyncOpenAI]:
    async with await client(keyed_gateway, "a") as client_:
        yield client_


@pytest.fixture
async def other(keyed_gateway: KeyedGateway) -> AsyncIterator[AsyncOpenAI]:
    async with await client(keyed_gateway, "b") as client_:
        yield client_


async def client(keyed_gateway: KeyedGateway, tenant: str) -> AsyncOpenAI:
    base = f"http://127.0.0.1:{keyed_gateway.gateway.http_port}/v1"
    return AsyncOpenAI(base_url=base, api_key=await keyed_gateway.token(tenant), max_retries=0, timeout=20)


@pytest.fixture
def endless(peers: ScriptedPeers) -> asyncio.Event:
    """Makes the model run until cancelled; the event is set when it has started."""
    started = asyncio.Event()

    async def forever(_: InferRequest) -> dict[str, Value]:
        started.set()
        await asyncio.Event().wait()
        return {}

    peers.infer["model"] = forever
    return started


async def test_responses_of_other_tenants_are_not_found(one: AsyncOpenAI, other: AsyncOpenAI) -> None:
    response = await one.responses.create(**REQUEST)
    assert response.status == "completed"
    assert response.output_text == "so it is"
    with pytest.raises(openai.NotFoundError):
        await other.responses.retrieve(response.id)
    with pytest.raises(openai.NotFoundError):
        await other.responses.retrieve(response.id, stream=True)
    with pytest.raises(openai.NotFoundError):
        await other.responses.cancel(response.id)
    with pytest.raises(openai.NotFoundError):
        await other.responses.delete(response.id)
    with pytest.raises(openai.NotFoundError):
        await other.responses.input_items.list(response.id)
    with pytest.raises((openai.NotFoundError, openai.BadRequestError)):
        await other.responses.create(**REQUEST, previous_response_id=response.id)
    assert response.conversation
    with pytest.raises(openai.NotFoundError):
        await other.responses.create(**REQUEST, conversation=response.conversation.id)
    assert (await one.responses.retrieve(response.id)).output == response.output


async def test_previous_response_is_history(one: AsyncOpenAI, peers: ScriptedPeers) -> None:
    first = await one.responses.create(**REQUEST)
    second = await one.responses.create(model="hugginggpt", input="And now in French", previous_response_id=first.id)
    assert [turn.text for turn in peers.planned[-1].conversation] == ["Summarise it.", "so it is", "And now in French"]
    third = await one.responses.create(**REQUEST, conversation=first.conversation.id if first.conversation else "")
    assert third.previous_response_id == second.id


async def test_chat_messages_are_history(one: AsyncOpenAI, peers: ScriptedPeers) -> None:
    messages: Any = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hello!"},
        *CHAT["messages"],
    ]
    completion = await one.chat.completions.create(model="hugginggpt", messages=messages)
    assert completion.choices[0].message.content == "so it is"
    assert [turn.text for turn in peers.planned[-1].conversation] == ["Be brief.", "Hello", "Hello!", "Summarise it."]


@pytest.mark.parametrize("background", [True, False])
async def test_response_is_cancelled(one: AsyncOpenAI, endless: asyncio.Event, background: bool) -> None:
    stream = await one.responses.create(**REQUEST, stream=True, background=background)
    created: Any = await anext(stream)
    await asyncio.wait_for(endless.wait(), 10)
    found = await one.responses.cancel(created.response.id)
    assert found.status == "cancelled"
    kinds = [event.type async for event in stream]
    assert kinds[-1] == "response.incomplete"


@pytest.mark.parametrize("stored", [True, False])
async def test_foreground_run_is_cancelled_on_disconnect(
    one: AsyncOpenAI, endless: asyncio.Event, stored: bool
) -> None:
    stream = await one.responses.create(**REQUEST, stream=True, store=stored)
    created: Any = await anext(stream)
    await asyncio.wait_for(endless.wait(), 10)
    await stream.close()
    async with asyncio.timeout(10):
        if stored:
            rest = await one.responses.retrieve(created.response.id, stream=True)
            events: Any = [event async for event in rest]
            assert events[-1].response.status == "cancelled"
        else:
            with pytest.raises(openai.NotFoundError):
                while True:
                    await one.responses.retrieve(created.response.id)


async def test_response_without_store_is_deleted(one: AsyncOpenAI) -> None:
    response = await one.responses.create(**REQUEST, store=False)
    assert response.output_text == "so it is"
    with pytest.raises(openai.NotFoundError):
        await one.responses.retrieve(response.id)


async def test_repeatedly_killed_client_sees_every_event_once(one: AsyncOpenAI) -> None:
    created = await one.responses.create(**REQUEST, background=True)
    seen: list[Any] = []
    while not seen or seen[-1].type != "response.completed":
        last = seen[-1].sequence_number if seen else -1
        stream = await one.responses.retrieve(created.id, stream=True, starting_after=last)
        seen.append(await anext(stream))
        await stream.close()
    whole: list[Any] = [event async for event in await one.responses.retrieve(created.id, stream=True)]
    assert seen == whole
    assert [each.sequence_number for each in whole] == list(range(len(whole)))
    assert [item.type for item in whole[-1].response.output] == ["reasoning", "message"]


async def test_answer_options_reach_the_responder(one: AsyncOpenAI, peers: ScriptedPeers) -> None:
    form: Any = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}
    await one.chat.completions.create(**CHAT, stop=["END"], response_format=form)
    assert list(peers.answered[-1].options.stop) == ["END"]
    assert peers.answered[-1].options.json_schema == '{"type":"object"}'

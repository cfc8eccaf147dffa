"""OpenAI's routes with tenants, limits, files, replicas and proxies."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from gateway.openai.chat import Completion, CompletionStream
from gateway.openai.streams import EventSource, RecordedEvents
from protos.hugginggpt.v1.event_pb2 import RunEvent
from services.common.errors import ModelFailed, Overloaded
from tests.fakes import ScriptedOrchestrator
from tests.support.api_keys import KeyedGateway, start_keyed_gateway
from tests.support.gateway import GatewayUnderTest, start_gateway
from tests.support.openai_clients import EVENTS, OpenAIGateway, start_openai_gateway

RESPOND: Any = {"model": "hugginggpt", "input": "Is this good news?"}
CHAT: Any = {"model": "hugginggpt", "messages": [{"role": "user", "content": "Is this good news?"}]}
TITLE = """### Task:
Generate a concise, 3-5 word title summarizing the chat history.
### Output:
JSON format: { "title": "your concise title here" }
### Chat History:
<chat_history>
USER: Read this aloud
ASSISTANT: Done.
</chat_history>"""


@pytest.fixture
async def openai_gateway(tmp_path: Path) -> AsyncIterator[OpenAIGateway]:
    async with start_openai_gateway(tmp_path, EVENTS) as openai_gateway:
        yield openai_gateway


@pytest.fixture
async def keyed_gateway(tmp_path: Path) -> AsyncIterator[KeyedGateway]:
    async with start_keyed_gateway(tmp_path) as keyed_gateway:
        yield keyed_gateway


def client(gateway: GatewayUnderTest, token: str) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"http://127.0.0.1:{gateway.http_port}/v1", api_key=token, max_retries=0, timeout=15)


async def test_tenants_cannot_access_files_of_others(keyed_gateway: KeyedGateway) -> None:
    async with (
        client(keyed_gateway.gateway, await keyed_gateway.token("a")) as one,
        client(keyed_gateway.gateway, await keyed_gateway.token("b")) as other,
    ):
        file = await one.files.create(file=("a.txt", b"secret"), purpose="user_data")
        made = await keyed_gateway.gateway.store.put("a", b"secret", media_type="text/plain", name="a.txt")
        part = {"type": "file", "file": {"file_id": file.id}}
        messages: Any = [{"role": "user", "content": [{"type": "text", "text": "Read it"}, part]}]
        await one.chat.completions.create(model="hugginggpt", messages=messages)
        with pytest.raises(openai.NotFoundError):
            await other.chat.completions.create(model="hugginggpt", messages=messages)
        link: Any = [{"role": "user", "content": f"Read /v1/artifacts/{made.sha256}"}]
        for each in (one, other):
            await each.chat.completions.create(model="hugginggpt", messages=link)
    runs = list(keyed_gateway.gateway.orchestrator.runs.values())
    assert [(run.caller.tenant, len(run.spec.inputs)) for run in runs] == [("a", 1), ("a", 1), ("b", 0)]


async def test_response_belongs_to_tenant_of_key(keyed_gateway: KeyedGateway) -> None:
    async with client(keyed_gateway.gateway, await keyed_gateway.token("a")) as one:
        await one.responses.create(**RESPOND)
    assert [each.tenant for each in keyed_gateway.gateway.orchestrator.callers] == ["a"]


async def test_authentication_and_rate_limit_raise_openai_errors(keyed_gateway: KeyedGateway) -> None:
    async with client(keyed_gateway.gateway, "wrong") as unauthorized:
        with pytest.raises(openai.AuthenticationError) as unknown:
            await unauthorized.chat.completions.create(**CHAT)
        assert unknown.value.body
    token = await keyed_gateway.token("a", limits={"requests_per_minute": 1})
    async with client(keyed_gateway.gateway, token) as keen:
        await keen.models.list()
        with pytest.raises(openai.RateLimitError) as raised:
            await keen.responses.create(**RESPOND)
    assert int(raised.value.response.headers["retry-after"]) > 0
    assert "x-ratelimit-remaining-requests" in raised.value.response.headers


async def test_overload_is_reported(tmp_path: Path) -> None:
    orchestrator = ScriptedOrchestrator(refusal=Overloaded("too many runs", remedy="come back"))
    async with start_gateway(tmp_path, orchestrator) as gateway, client(gateway, "none") as openai_client:
        with pytest.raises(openai.RateLimitError, match="too many runs"):
            await openai_client.chat.completions.create(**CHAT, stream=True)


async def test_titles_are_answered_without_a_run(openai_gateway: OpenAIGateway) -> None:
    messages: Any = [{"role": "user", "content": TITLE}]
    whole = await openai_gateway.client.chat.completions.create(model="hugginggpt", messages=messages)
    assert json.loads(whole.choices[0].message.content or "") == {"title": "Read this aloud"}
    chunks = await openai_gateway.client.chat.completions.create(model="hugginggpt", messages=messages, stream=True)
    text = "".join([chunk.choices[0].delta.content or "" async for chunk in chunks])
    assert json.loads(text) == {"title": "Read this aloud"}
    assert json.loads((await openai_gateway.client.responses.create(model="hugginggpt", input=TITLE)).output_text)
    assert not openai_gateway.orchestrator.runs


async def test_conversation_is_continued(openai_gateway: OpenAIGateway) -> None:
    first = await openai_gateway.client.responses.create(**RESPOND)
    assert first.conversation
    await openai_gateway.client.responses.create(**RESPOND, conversation=first.conversation.id)
    assert openai_gateway.last().spec.parent_run_id == "run_1"
    with pytest.raises(openai.BadRequestError):
        await openai_gateway.client.responses.create(**RESPOND, conversation="run_1", previous_response_id="resp_1")


async def test_same_idempotency_key_is_same_run(openai_gateway: OpenAIGateway) -> None:
    for _ in range(2):
        await openai_gateway.client.responses.create(**RESPOND, extra_headers={"Idempotency-Key": "k"})
    assert len(openai_gateway.orchestrator.runs) == 1


async def test_any_gateway_reads_any_response(tmp_path: Path) -> None:
    """Two gateways share an orchestrator: each serves responses that the other started."""
    (tmp_path / "other").mkdir()
    async with (
        start_openai_gateway(tmp_path, EVENTS) as first,
        start_gateway(tmp_path / "other", first.orchestrator) as second,
    ):
        stream = await first.client.responses.create(**RESPOND, background=True, stream=True)
        first_events = [await anext(stream) for _ in range(4)]
        await stream.close()
        async with client(second, "none") as other_client:
            rest: Any = await other_client.responses.retrieve("resp_1", stream=True, starting_after=3)
            numbers = [each.sequence_number for each in first_events] + [each.sequence_number async for each in rest]
            assert numbers == list(range(len(numbers)))
            assert (await other_client.responses.retrieve("resp_1")).status == "completed"


class Silent:
    """A run without events, whose stream fails when the test sets `go`."""

    run_id = "run_1"
    ended = False

    def __init__(self) -> None:
        self.go = asyncio.Event()

    async def read(self) -> RunEvent | None:
        await self.go.wait()
        raise ModelFailed("it broke")

    async def close(self) -> None:
        """Does nothing: no connection is open."""


async def sent(source: EventSource, beats: int = 0) -> bytes:
    """Content of a stream; a silent run fails after a number of heartbeats."""
    content, comments = b"", 0
    stream = CompletionStream(source, Completion(""), {}, heartbeat_seconds=0.01)

    async def send(message: Any) -> None:
        nonlocal content, comments
        content += message.get("body", b"")
        comments += message.get("body", b"").startswith(b": heartbeat")
        if comments == beats and isinstance(source, Silent):
            source.go.set()

    async def receive() -> Any:
        await asyncio.Event().wait()

    async with asyncio.timeout(5):
        await stream({"type": "http"}, receive, send)
    return content


async def test_heartbeats_keep_stream_alive_without_ending_events() -> None:
    content = await sent(Silent(), beats=3)
    assert content.startswith(b": accepted\n" + b": heartbeat\n" * 3)
    assert b"\n\n" not in content.partition(b"data: ")[0]
    assert json.loads(content.partition(b"data: ")[2])["error"]["message"] == "it broke"


async def test_chunks_end_with_done() -> None:
    events = [RunEvent(run_id="run_1", sequence=number) for number in range(1, len(EVENTS) + 1)]
    for event, sent_event in zip(events, EVENTS, strict=True):
        event.MergeFrom(sent_event)
    content = await sent(RecordedEvents(events))
    assert content.endswith(b"\n\ndata: [DONE]\n\n")

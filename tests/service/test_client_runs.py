"""Runs and events in the Python client, synchronous and asyncio, over connections that are cut."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gateway.client import (
    AsyncHuggingGPT,
    Event,
    HuggingGPT,
    InvalidRequest,
    NoGateway,
    NotFound,
    RateLimited,
    ServerError,
    Unreachable,
)
from protos.hugginggpt.v1.event_pb2 import AnswerChunk, RunEnded, RunEvent
from protos.hugginggpt.v1.run_pb2 import RUN_STATE_COMPLETED
from services.common.errors import Overloaded, Unavailable
from tests.fakes import ANSWERED, ScriptedOrchestrator
from tests.support.cut_connection import CutPosition, after_first_event, cutting_proxy, within_second_event
from tests.support.gateway import GatewayUnderTest, start_gateway

CHUNKS = 100
LONG = (
    *(RunEvent(answer_chunk=AnswerChunk(text=f"{number} ")) for number in range(CHUNKS)),
    RunEvent(run_ended=RunEnded(state=RUN_STATE_COMPLETED)),
)


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HUGGINGGPT_URL", "HUGGINGGPT_API_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[GatewayUnderTest]:
    async with start_gateway(tmp_path, ScriptedOrchestrator(LONG)) as opened:
        yield opened


def url(gateway: GatewayUnderTest) -> str:
    return f"http://127.0.0.1:{gateway.http_port}"


async def streamed(address: str, *, waiting: bool) -> list[Event]:
    """Events of a new run, read with the synchronous or the asyncio client."""
    if waiting:

        def stream() -> list[Event]:
            with HuggingGPT(address) as client:
                return list(client.stream("count"))

        return await asyncio.to_thread(stream)
    async with AsyncHuggingGPT(address) as client:
        return [event async for event in client.stream("count")]


@pytest.mark.parametrize("waiting", [True, False], ids=["waiting", "asyncio"])
@pytest.mark.parametrize("due", [after_first_event, within_second_event])
async def test_stream_cut_at_every_event_yields_each_event_once(
    gateway: GatewayUnderTest, due: CutPosition, waiting: bool
) -> None:
    async with cutting_proxy(gateway.http_port, due) as proxy:
        events = await streamed(proxy.url, waiting=waiting)
    assert [event.sequence for event in events] == list(range(1, CHUNKS + 3))
    assert proxy.cuts >= CHUNKS
    assert len(gateway.orchestrator.runs) == 1
    assert events[1].body == {"text": "0 "}


async def test_connection_cut_before_reply_starts_no_second_run(gateway: GatewayUnderTest) -> None:
    async with cutting_proxy(gateway.http_port, lambda seen: 0, times=2) as proxy, AsyncHuggingGPT(proxy.url) as client:
        run = await client.start("count")
        assert (await client.get(run.run_id)).run_id == run.run_id
    assert proxy.cuts == 2
    assert len(gateway.orchestrator.runs) == 1


async def test_ask_returns_run_with_answer(gateway: GatewayUnderTest) -> None:
    async with AsyncHuggingGPT(url(gateway)) as client:
        run = await client.ask("count", budget={"wall_time": 5.5}, metadata={"by": "me"}, mode="results")
        assert run.is_completed
        assert run.answer.split()[-1] == "99"
        assert run.spec["budget"]["wall_time"] == 5.5
        assert (await client.wait(run.run_id)) == run
        assert [event.sequence async for event in client.watch(run.run_id, CHUNKS)] == [CHUNKS + 1, CHUNKS + 2]
        assert [event async for event in client.watch(run.run_id, CHUNKS + 2)] == []
    requests = gateway.orchestrator.runs[run.run_id].spec
    assert requests.budget.wall_time.ToMilliseconds() == 5500
    assert requests.metadata["by"] == "me"


async def test_runs_are_listed_in_pages_continued_cancelled_and_deleted(gateway: GatewayUnderTest) -> None:
    async with AsyncHuggingGPT(url(gateway)) as client:
        first = await client.ask("count")
        second = await client.ask("and again", conversation=first)
        assert second.conversation_id == first.run_id
        talk = await client.conversation(first.run_id)
        third = await client.ask("once more", conversation=talk)
        assert gateway.orchestrator.runs[third.run_id].spec.parent_run_id == second.run_id
        page = await client.runs(page_size=2)
        assert [run.run_id for run in page] == [third.run_id, second.run_id]
        assert page.next == "more"
        assert [run.run_id for run in await client.runs(states=["completed"], conversation_id=first.run_id)]
        assert [each.id for each in await client.conversations()] == [first.run_id]
        await client.cancel(first.run_id)
        await client.approve(first.run_id, [{"id": 1, "task": "summarization", "arguments": {"text": "a"}}])
        assert gateway.orchestrator.approved[0][1].tasks[0].task == "summarization"
        await client.delete(third.run_id)
        with pytest.raises(NotFound) as raised:
            await client.get(third.run_id)
    assert raised.value.status == 404
    assert raised.value.code == "RUN"
    assert gateway.orchestrator.cancelled == [first.run_id]


async def test_invalid_requests_name_cause_and_remedy(gateway: GatewayUnderTest) -> None:
    async with AsyncHuggingGPT(url(gateway)) as client:
        with pytest.raises(InvalidRequest) as raised:
            await client.ask("  ")
    assert raised.value.code == "EMPTY"
    assert raised.value.status == 400
    assert raised.value.remedy in str(raised.value)
    assert raised.value.request_id


class Moody(ScriptedOrchestrator):
    """Rejects the first requests."""

    def __init__(self, moods: Sequence[Exception]) -> None:
        super().__init__(ANSWERED)
        self.moods = list(moods)
        self.requests = 0

    async def CreateRun(self, request: Any, context: Any) -> None:  # type: ignore[override]  # stubs only know generators
        self.requests += 1
        if self.moods:
            raise self.moods.pop(0)
        await super().CreateRun(request, context)


async def test_temporary_errors_are_retried(tmp_path: Path) -> None:
    orchestrator = Moody([Overloaded("too many", reason="RATE_LIMIT", remedy="wait")] * 2)
    async with start_gateway(tmp_path, orchestrator) as gateway, AsyncHuggingGPT(url(gateway)) as client:
        assert (await client.start("hello")).run_id
    assert orchestrator.requests == 3


async def test_permanent_errors_are_raised(tmp_path: Path) -> None:
    orchestrator = Moody([Unavailable("not now", remedy="wait")] * 99)
    async with start_gateway(tmp_path, orchestrator) as gateway, AsyncHuggingGPT(url(gateway)) as client:
        with pytest.raises(ServerError, match="not now"):
            await client.ask("hello")


async def test_long_retry_after_is_not_waited_for(tmp_path: Path) -> None:
    error = Overloaded("the day's tokens are used", reason="QUOTA", remedy="wait", retry_after=timedelta(hours=1))
    orchestrator = Moody([error])
    async with start_gateway(tmp_path, orchestrator) as gateway, AsyncHuggingGPT(url(gateway)) as client:
        with pytest.raises(RateLimited) as raised:
            await client.start("hello")
    assert raised.value.retry_after == 3600
    assert orchestrator.requests == 1


def test_unreachable_and_other_server_are_distinct_errors() -> None:
    with HuggingGPT("http://127.0.0.1:9") as client, pytest.raises(Unreachable, match="hugginggpt up"):
        client.tasks()
    with pytest.raises(InvalidRequest, match="is not a valid gateway URL"):
        HuggingGPT("localhost:8080")
    with pytest.raises(InvalidRequest, match="API key"):
        HuggingGPT(api_key="a\nb")


async def test_other_web_server_is_not_a_gateway(gateway: GatewayUnderTest) -> None:
    async with AsyncHuggingGPT(f"{url(gateway)}/docs") as client:
        with pytest.raises(NoGateway):
            await client.greet()
    async with AsyncHuggingGPT(url(gateway)) as client:
        await client.greet()
        with pytest.raises(NoGateway):
            await client.fetch("/docs")

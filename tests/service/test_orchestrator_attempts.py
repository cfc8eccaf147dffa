"""Asking experts that come and go."""

import asyncio
from datetime import timedelta
from typing import Any

import grpc
import pytest

from protos.hugginggpt.tasks import standard_tasks
from protos.hugginggpt.v1.expert_pb2 import InferRequest, InferResponse
from protos.hugginggpt.v1.types_pb2 import Candidate, Endpoint, RunEvent, TaskResult, Value
from services.orchestrator.attempts import Attempts
from services.runtime.errors import Overloaded
from tests.fakes import FakeExpert, card

SPEC = standard_tasks()["summarization"]


async def infer(attempts: Attempts, *addresses: str) -> tuple[TaskResult, list[str]]:
    """The result, and what was told on the way."""
    endpoints = [Endpoint(address=address) for address in addresses]
    events: list[RunEvent] = []
    request = InferRequest(task=SPEC.name, inputs={"text": Value(text="hello")})
    candidate = Candidate(model_id="model", expert="fake", endpoints=endpoints)
    async with asyncio.timeout(10):
        result = await attempts.infer(1, request, [candidate], SPEC, events.append)
    return result, [event.WhichOneof("event") or "" for event in events]


@pytest.fixture
def fake() -> FakeExpert:
    return FakeExpert("fake", [card("model", SPEC.name)])


async def test_a_channel_to_an_address_that_is_gone_is_not_kept(
    fake: FakeExpert, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.orchestrator.attempts.TRIES", 2)
    async with Attempts(5) as attempts:
        async with fake.serving() as address:
            result, _ = await infer(attempts, address)
            assert result.outputs["text"].text == "hello"
            assert list(attempts._lines) == [address]
        result, told = await infer(attempts, address)
        assert (result.failure.code, result.failure.message) == ("UNAVAILABLE", "the server does not answer")
        assert told == ["task_started", "attempt_failed", "task_started"]
        assert not attempts._lines


async def test_an_expert_that_comes_back_is_reached_again(fake: FakeExpert) -> None:
    async with Attempts(5) as attempts:
        async with fake.serving() as address:
            await infer(attempts, address)
        asking = asyncio.create_task(infer(attempts, address))
        async with fake.serving(listen=address):
            result, _ = await asking
        assert result.outputs["text"].text == "hello"


async def test_the_other_place_of_an_expert_is_asked_when_one_is_gone(fake: FakeExpert) -> None:
    async with Attempts(5) as attempts, fake.serving() as address:
        result, told = await infer(attempts, "127.0.0.1:1", address)
        assert (result.attempt, result.by.endpoints[0].address) == (2, address)
        assert told == ["task_started", "attempt_failed", "task_started"]


async def test_an_overload_is_waited_out_when_nobody_else_is_left(
    fake: FakeExpert, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.orchestrator.attempts.TRIES", 2)
    refusals = iter([Overloaded("full", retry_after=timedelta(milliseconds=1))] * 4)

    async def answer(request: InferRequest) -> dict[str, Value]:
        if refusal := next(refusals, None):
            raise refusal
        return {"text": request.inputs["text"]}

    fake.answer = answer
    async with Attempts(5) as attempts, fake.serving() as address:
        result, told = await infer(attempts, address)
    assert (result.attempt, result.outputs["text"].text) == (5, "hello")
    assert told.count("attempt_failed") == 4


async def test_a_call_that_a_server_drops_is_made_again() -> None:
    class Dropping(FakeExpert):
        async def Infer(self, request: InferRequest, context: Any) -> InferResponse:
            if not self.asked:
                self.asked.append(request)
                await context.abort(grpc.StatusCode.CANCELLED, "too many")
            return await super().Infer(request, context)

    async with Attempts(5) as attempts, Dropping("fake", [card("model", SPEC.name)]).serving() as address:
        result, told = await infer(attempts, address)
    assert result.attempt == 2
    assert told == ["task_started", "attempt_failed", "task_started"]


async def test_a_call_under_way_does_not_lose_its_channel_to_another_that_fails() -> None:
    under_way, go = asyncio.Event(), asyncio.Event()

    class Torn(FakeExpert):
        async def Infer(self, request: InferRequest, context: Any) -> InferResponse:
            self.asked.append(request)
            if len(self.asked) == 1:
                under_way.set()
                await go.wait()
            if len(self.asked) == 2:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "not now")
            return InferResponse(outputs=request.inputs)

    async with Attempts(5) as attempts, Torn("fake", [card("model", SPEC.name)]).serving() as address:
        first = asyncio.create_task(infer(attempts, address))
        await under_way.wait()
        second, told = await infer(attempts, address)
        assert (second.attempt, told.count("attempt_failed")) == (2, 1)
        go.set()
        result, _ = await first
        assert result.attempt == 1

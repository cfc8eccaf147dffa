"""Calls for items of batches that share a call of InferBatch: what they share, and what each item keeps for itself."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from protos.hugginggpt.v1.artifact_pb2 import Value
from protos.hugginggpt.v1.caller_pb2 import PRIORITY_BATCH, PRIORITY_INTERACTIVE
from protos.hugginggpt.v1.expert_pb2 import (
    InferBatchRequest,
    InferBatchResponse,
    InferBatchResult,
    InferRequest,
    InferResponse,
)
from protos.hugginggpt.v1.run_pb2 import TaskResult
from services.common import call_context
from services.common.errors import InvalidRequest, ServiceError, Unavailable, Unimplemented, to_failure
from services.orchestrator.experts.client import ExpertClient
from services.orchestrator.experts.combined_calls import MAX_ITEMS
from tests.fakes import FakeExpert, card
from tests.support.expert_calls import SPEC, SimulatedRun, TaskOutcome, candidate, open_client

ITEMS = 20


class BatchingExpert(FakeExpert):
    """An expert whose calls take so many milliseconds for each item, as it says, and whose InferBatch may fail.

    Args:
        milliseconds: reported for each item.
        tokens: reported for each call.
        error: of InferBatch as a whole.
    """

    def __init__(self, *, milliseconds: int = 1, tokens: int = 0, error: ServiceError | None = None) -> None:
        super().__init__("fake", [card("model", SPEC.name)], answer=self.echo)
        self.batches: list[InferBatchRequest] = []
        self.batch_callers: list[str] = []
        self.is_cancelled = asyncio.Event()
        self.hold: asyncio.Event | None = None
        """If given, InferBatch waits for it."""
        self.has_batch = asyncio.Event()
        self._milliseconds, self._tokens, self._error = milliseconds, tokens, error

    async def echo(self, request: InferRequest) -> dict[str, Value]:
        if request.inputs["text"].text == "broken":
            raise InvalidRequest("the text is broken", remedy="send another", port="text")
        return {"text": request.inputs["text"]}

    async def Infer(self, request: InferRequest, context: Any) -> InferResponse:
        reply = await super().Infer(request, context)
        reply.usage.busy.FromMilliseconds(self._milliseconds)
        reply.usage.output_tokens = self._tokens
        return reply

    async def InferBatch(self, request: InferBatchRequest, context: Any) -> InferBatchResponse:
        self.batches.append(request)
        self.batch_callers.append(call_context.current().run_id)
        self.has_batch.set()
        if self.hold:
            try:
                await self.hold.wait()
            except asyncio.CancelledError:
                self.is_cancelled.set()
                raise
        if self._error:
            raise self._error
        reply = InferBatchResponse(revision="1")
        for item in request.items:
            try:
                outputs = await self.echo(InferRequest(inputs=item.inputs))
            except InvalidRequest as error:
                reply.results.append(InferBatchResult(failure=to_failure(error)))
            else:
                reply.results.append(InferBatchResult(outputs=outputs))
        reply.usage.busy.FromMilliseconds(self._milliseconds * len(request.items))
        reply.usage.pool_seconds["cpu"] = len(request.items)
        return reply


Infer = Callable[[str], Coroutine[Any, Any, TaskOutcome]]


def caller_of(client: ExpertClient, address: str, priority: int = PRIORITY_BATCH) -> Infer:
    """Makes calls, each for a run of its own, named after its text."""

    async def infer(text: str) -> TaskOutcome:
        return await SimulatedRun(client, text, priority=priority).infer(candidate(address), text=text)

    return infer


async def infer_all(infer: Infer, texts: Sequence[str]) -> list[TaskResult]:
    """Makes a call alone, which shows how long the model takes, and then all others at the same time."""
    await infer("first")
    return [outcome.result for outcome in await asyncio.gather(*map(infer, texts))]


NAMES = [f"item {number}" for number in range(ITEMS)]


async def test_items_that_wait_at_the_same_time_share_a_call() -> None:
    expert = BatchingExpert()
    async with expert.serving() as address, open_client() as client:
        results = await infer_all(caller_of(client, address), NAMES)
    assert [result.outputs["text"].text for result in results] == NAMES
    assert [len(batch.items) for batch in expert.batches] == [ITEMS]


async def test_call_names_no_run_of_its_items() -> None:
    expert = BatchingExpert()
    async with expert.serving() as address, open_client() as client:
        await infer_all(caller_of(client, address), NAMES)
    assert expert.batch_callers == [""]


async def test_shared_call_has_a_limited_number_of_items() -> None:
    expert = BatchingExpert()
    async with expert.serving() as address, open_client() as client:
        await infer_all(caller_of(client, address), [str(number) for number in range(3 * MAX_ITEMS)])
    assert [len(batch.items) for batch in expert.batches] == [MAX_ITEMS] * 3


async def test_items_of_a_model_that_takes_longer_share_smaller_calls() -> None:
    expert = BatchingExpert(milliseconds=20)
    async with expert.serving() as address, open_client() as client:
        await infer_all(caller_of(client, address), NAMES)
    assert [len(batch.items) for batch in expert.batches] == [5] * 4


async def test_usage_of_a_shared_call_is_divided_among_its_items() -> None:
    async with BatchingExpert().serving() as address, open_client() as client:
        results = await infer_all(caller_of(client, address), NAMES)
    assert {result.usage.busy.ToMilliseconds() for result in results} == {1}
    assert {result.usage.pool_seconds["cpu"] for result in results} == {1.0}


async def test_broken_item_of_a_shared_call_fails_alone() -> None:
    async with BatchingExpert().serving() as address, open_client() as client:
        results = await infer_all(caller_of(client, address), [*NAMES, "broken"])
    assert [result.HasField("failure") for result in results] == [False] * ITEMS + [True]
    assert results[-1].failure == to_failure(InvalidRequest("the text is broken", remedy="send another", port="text"))


async def test_items_are_called_alone_after_their_shared_call_has_failed() -> None:
    expert = BatchingExpert(error=Unavailable("the expert restarts"))
    async with expert.serving() as address, open_client() as client:
        results = await infer_all(caller_of(client, address), ["a", "b"])
    assert [result.outputs["text"].text for result in results] == ["a", "b"]
    assert [result.attempt for result in results] == [2, 2]
    assert [len(batch.items) for batch in expert.batches] == [2]


async def test_items_are_called_alone_in_the_same_attempt_if_the_expert_has_no_batches() -> None:
    expert = BatchingExpert(error=Unimplemented("the server does not implement this method"))
    async with expert.serving() as address, open_client() as client:
        infer = caller_of(client, address)
        results = [*await infer_all(infer, NAMES), *await infer_all(infer, NAMES)]
    assert {result.attempt for result in results} == {1}
    assert len(expert.batches) == 1


@pytest.mark.parametrize(
    ("expert", "priority"),
    [
        (BatchingExpert(), PRIORITY_INTERACTIVE),
        (BatchingExpert(milliseconds=60), PRIORITY_BATCH),
        (BatchingExpert(milliseconds=0), PRIORITY_BATCH),
        (BatchingExpert(tokens=1), PRIORITY_BATCH),
    ],
    ids=["interactive", "slow model", "model of unknown speed", "model that counts tokens"],
)
async def test_call_is_made_alone(expert: BatchingExpert, priority: int) -> None:
    async with expert.serving() as address, open_client() as client:
        results = await infer_all(caller_of(client, address, priority), NAMES)
    assert [result.outputs["text"].text for result in results] == NAMES
    assert expert.batches == []


async def test_call_is_made_alone_if_shared_calls_do_not_return(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.orchestrator.experts.combined_calls.MAX_WAIT_SECONDS", 0.01)
    expert = BatchingExpert(milliseconds=50)
    expert.hold = asyncio.Event()
    async with expert.serving() as address, open_client() as client:
        infer = caller_of(client, address)
        await infer("first")
        held = [asyncio.create_task(infer(name)) for name in NAMES[:4]]  # two calls of two items
        await expert.has_batch.wait()
        alone = await infer("alone")
        assert alone.result.outputs["text"].text == "alone"
        assert not any(task.done() for task in held)
        expert.hold.set()
        assert [outcome.result.attempt for outcome in await asyncio.gather(*held)] == [1] * 4


async def test_shared_call_is_cancelled_with_the_last_of_its_items() -> None:
    expert = BatchingExpert()
    expert.hold = asyncio.Event()
    async with expert.serving() as address, open_client() as client:
        infer = caller_of(client, address)
        await infer("first")
        calls = [asyncio.create_task(infer(name)) for name in NAMES]
        await expert.has_batch.wait()
        for call in calls:
            call.cancel()
        await expert.is_cancelled.wait()
        await asyncio.wait(calls)
    assert all(call.cancelled() for call in calls)


async def test_other_items_of_a_shared_call_end_if_one_is_cancelled() -> None:
    expert = BatchingExpert()
    expert.hold = asyncio.Event()
    async with expert.serving() as address, open_client() as client:
        infer = caller_of(client, address)
        await infer("first")
        cancelled, *others = [asyncio.create_task(infer(name)) for name in NAMES]
        await expert.has_batch.wait()
        cancelled.cancel()
        await asyncio.wait([cancelled])
        expert.hold.set()
        outcomes = await asyncio.gather(*others)
    assert [outcome.result.outputs["text"].text for outcome in outcomes] == NAMES[1:]

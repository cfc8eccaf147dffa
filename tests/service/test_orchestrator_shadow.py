"""Shadow models: their calls, and what becomes of their results."""

import asyncio
import math
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any

import pytest
from structlog.testing import capture_logs

from protos.hugginggpt.internal.v1.selector_pb2 import SelectedCandidate
from protos.hugginggpt.v1 import expert_pb2
from protos.hugginggpt.v1.artifact_pb2 import Value
from protos.hugginggpt.v1.caller_pb2 import DATA_POLICY_LOCAL, PRIORITY_BATCH, Caller
from protos.hugginggpt.v1.event_pb2 import RunEvent
from protos.hugginggpt.v1.model_pb2 import CANDIDATE_ROLE_SHADOW, MODEL_LOCATION_EXTERNAL
from protos.hugginggpt.v1.run_pb2 import TaskResult
from services.common import call_context
from services.common.errors import ModelFailed
from services.orchestrator.deadline import Deadline
from services.orchestrator.experts.attempts import RetryBudget, TaskRequest
from services.orchestrator.experts.client import ExpertClient
from services.orchestrator.experts.shadow import ShadowRunner
from tests.fakes import FakeExpert, card
from tests.support.expert_calls import SPEC, candidate, no_candidates, open_client

CALLER = Caller(tenant="tenant", policy=DATA_POLICY_LOCAL, run_id="run")


class ShadowExpert(FakeExpert):
    """An expert with a shadow model; it signals the start of a call, and answers once it may."""

    def __init__(self, text: str = "hello") -> None:
        super().__init__("trial", [card("new", SPEC.name)], answer=self._answer)
        self.text = text
        self.started, self.may_answer = asyncio.Event(), asyncio.Event()
        self.caller = Caller()
        self.may_answer.set()

    async def _answer(self, request: expert_pb2.InferRequest) -> Mapping[str, Value]:
        self.caller = call_context.current()
        self.started.set()
        await self.may_answer.wait()
        if not self.text:
            raise ModelFailed("it broke")
        return {"text": Value(text=self.text)}


def primary_expert() -> FakeExpert:
    return FakeExpert("own", [card("model", SPEC.name)])


def task_request(*candidates: SelectedCandidate, events: list[RunEvent]) -> TaskRequest:
    request = expert_pb2.InferRequest(task=SPEC.name, inputs={"text": Value(text="hello")})
    return TaskRequest(1, request, SPEC, candidates, events.append, RetryBudget(), no_candidates, Deadline(math.inf))


async def infer_with_shadows(client: ExpertClient, task: TaskRequest) -> TaskResult:
    """Returns the result of the primary model, and starts the shadows."""
    with call_context.use_caller(CALLER):
        result = await client.infer(task)
        client.run_shadows(task, result)
    return result


async def outcome(logs: list[Any]) -> Any:
    async with asyncio.timeout(5):
        while not (ended := [entry for entry in logs if entry["event"] == "shadow call ended"]):  # noqa: ASYNC110  # a log has no event to wait for
            await asyncio.sleep(0)
    return ended[0]


@pytest.mark.parametrize(("text", "expected"), [("hello", "same"), ("goodbye", "different"), ("", "failed")])
async def test_result_of_a_shadow_is_compared_and_logged_only(text: str, expected: str) -> None:
    shadow_expert, events = ShadowExpert(text), list[RunEvent]()
    with capture_logs() as logs:
        async with open_client() as client, shadow_expert.serving() as one, primary_expert().serving() as two:
            shadow = candidate(one, model="new", expert="trial", role=CANDIDATE_ROLE_SHADOW)
            result = await infer_with_shadows(client, task_request(candidate(two), shadow, events=events))
            entry = await outcome(logs)
    assert entry["outcome"] == expected
    assert entry["model"] == "model"
    assert entry["shadow"] == "new"
    assert "hello" not in str(entry)
    assert result.by.model_id == "model"
    assert [event.WhichOneof("event") for event in events] == ["task_started"]
    assert shadow_expert.caller.tenant == "tenant"
    assert shadow_expert.caller.priority == PRIORITY_BATCH


async def test_neither_task_nor_shutdown_waits_for_a_shadow() -> None:
    shadow_expert = ShadowExpert()
    shadow_expert.may_answer.clear()
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(shadow_expert.serving())
        two = await stack.enter_async_context(primary_expert().serving())
        async with asyncio.timeout(5), open_client() as client:
            shadow = candidate(one, model="new", expert="trial", role=CANDIDATE_ROLE_SHADOW)
            result = await infer_with_shadows(client, task_request(candidate(two), shadow, events=[]))
            assert result.outputs["text"].text == "hello"
            await shadow_expert.started.wait()
        shadow_expert.may_answer.set()


async def test_external_shadow_gets_no_data_under_a_local_policy() -> None:
    shadow_expert = ShadowExpert()
    with capture_logs() as logs:
        async with open_client() as client, shadow_expert.serving() as one, primary_expert().serving() as two:
            shadow = candidate(one, model="new", role=CANDIDATE_ROLE_SHADOW, location=MODEL_LOCATION_EXTERNAL)
            await infer_with_shadows(client, task_request(candidate(two), shadow, events=[]))
            assert (await outcome(logs))["outcome"] == "failed"
    assert not shadow_expert.requests


async def test_shadow_calls_beyond_the_limit_are_skipped() -> None:
    calls, may_answer = list[TaskRequest](), asyncio.Event()

    async def infer(task: TaskRequest) -> TaskResult:
        calls.append(task)
        await may_answer.wait()
        return TaskResult()

    shadows = ShadowRunner(infer, at_once=2)
    for _ in range(5):
        shadows.start(task_request(candidate("x:1", role=CANDIDATE_ROLE_SHADOW), events=[]), TaskResult())
    await asyncio.sleep(0)
    assert len(calls) == 2
    await shadows.close()

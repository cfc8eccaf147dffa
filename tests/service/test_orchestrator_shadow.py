"""A model on trial: it does what another has done, and nobody waits for it or sees its results."""

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
from services.orchestrator.experts.attempts import RetryBudget
from services.orchestrator.experts.client import ExpertClient, TaskRequest
from services.orchestrator.experts.shadow import ShadowRunner
from tests.fakes import FakeExpert, card
from tests.support.expert_calls import SPEC, asking, candidate, nobody_new

WHO = Caller(tenant="tenant", policy=DATA_POLICY_LOCAL, run_id="run")


class Tried(FakeExpert):
    """An expert on trial that says when it has been asked, and waits until it may answer."""

    def __init__(self, text: str = "hello") -> None:
        super().__init__("trial", [card("new", SPEC.name)], answer=self._answer)
        self.text = text
        self.begun, self.may_answer = asyncio.Event(), asyncio.Event()
        self.caller = Caller()
        self.may_answer.set()

    async def _answer(self, request: expert_pb2.InferRequest) -> Mapping[str, Value]:
        self.caller = call_context.current()
        self.begun.set()
        await self.may_answer.wait()
        if not self.text:
            raise ModelFailed("it broke")
        return {"text": Value(text=self.text)}


def own() -> FakeExpert:
    return FakeExpert("own", [card("model", SPEC.name)])


def job(*candidates: SelectedCandidate, told: list[RunEvent]) -> TaskRequest:
    request = expert_pb2.InferRequest(task=SPEC.name, inputs={"text": Value(text="hello")})
    return TaskRequest(1, request, SPEC, candidates, told.append, RetryBudget(), nobody_new, Deadline(math.inf))


async def followed(attempts: ExpertClient, wanted: TaskRequest) -> TaskResult:
    """The result of the one chosen; its shadows are on their way."""
    with call_context.use_caller(WHO):
        result = await attempts.infer(wanted)
        attempts.run_shadows(wanted, result)
    return result


async def outcome(logs: list[Any]) -> Any:
    async with asyncio.timeout(5):
        while not (told := [entry for entry in logs if entry["event"] == "shadow call ended"]):  # noqa: ASYNC110  # a log tells nobody that it has grown
            await asyncio.sleep(0)
    return told[0]


@pytest.mark.parametrize(("says", "expected"), [("hello", "same"), ("goodbye", "different"), ("", "failed")])
async def test_what_a_shadow_makes_of_it_is_compared_and_logged_and_nothing_else(says: str, expected: str) -> None:
    trial, events = Tried(says), list[RunEvent]()
    with capture_logs() as logs:
        async with asking() as attempts, trial.serving() as one, own().serving() as two:
            shadow = candidate(one, model="new", expert="trial", role=CANDIDATE_ROLE_SHADOW)
            result = await followed(attempts, job(candidate(two), shadow, told=events))
            entry = await outcome(logs)
    assert (entry["outcome"], entry["model"], entry["shadow"]) == (expected, "model", "new")
    assert "hello" not in str(entry)
    assert result.by.model_id == "model"
    assert [event.WhichOneof("event") for event in events] == ["task_started"]
    assert (trial.caller.tenant, trial.caller.priority) == ("tenant", PRIORITY_BATCH)


async def test_the_run_does_not_wait_and_the_end_of_the_house_does_not_either() -> None:
    trial = Tried()
    trial.may_answer.clear()
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(trial.serving())
        two = await stack.enter_async_context(own().serving())
        async with asyncio.timeout(5), asking() as attempts:
            shadow = candidate(one, model="new", expert="trial", role=CANDIDATE_ROLE_SHADOW)
            assert (await followed(attempts, job(candidate(two), shadow, told=[]))).outputs["text"].text == "hello"
            await trial.begun.wait()
        trial.may_answer.set()


async def test_a_shadow_outside_the_house_sees_nothing_that_must_stay() -> None:
    trial = Tried()
    with capture_logs() as logs:
        async with asking() as attempts, trial.serving() as one, own().serving() as two:
            shadow = candidate(one, model="new", role=CANDIDATE_ROLE_SHADOW, location=MODEL_LOCATION_EXTERNAL)
            await followed(attempts, job(candidate(two), shadow, told=[]))
            assert (await outcome(logs))["outcome"] == "failed"
    assert not trial.asked


async def test_trials_beyond_a_number_are_left_out() -> None:
    asked, may_answer = list[TaskRequest](), asyncio.Event()

    async def infer(wanted: TaskRequest) -> TaskResult:
        asked.append(wanted)
        await may_answer.wait()
        return TaskResult()

    shadows = ShadowRunner(infer, at_once=2)
    for _ in range(5):
        shadows.start(job(candidate("x:1", role=CANDIDATE_ROLE_SHADOW), told=[]), TaskResult())
    await asyncio.sleep(0)
    assert len(asked) == 2
    await shadows.close()

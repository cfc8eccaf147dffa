"""Retries of expert calls: experts that restart, refuse, fail or hang."""

import asyncio
import math
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import grpc
import pytest
from google.rpc import code_pb2

from protos.hugginggpt.internal.v1.selector_pb2 import Avoid, Endpoint, SelectedCandidate
from protos.hugginggpt.v1.artifact_pb2 import Artifact, Value
from protos.hugginggpt.v1.caller_pb2 import DATA_POLICY_OPEN, PRIORITY_BATCH
from protos.hugginggpt.v1.expert_pb2 import InferRequest, InferResponse
from protos.hugginggpt.v1.model_pb2 import CANDIDATE_ROLE_SHADOW, MODEL_LOCATION_EXTERNAL
from services.common.errors import InvalidRequest, ModelFailed, Overloaded, Unavailable
from services.orchestrator.experts.retry import MAX_BATCH_CALLS, MAX_CALLS
from tests.fakes import FakeExpert, card
from tests.support.expert_calls import SPEC, SimulatedRun, TaskOutcome, candidate, open_circuit, open_client

CLOSED_ADDRESS = "127.0.0.1:1"
"""No server listens there."""

pytestmark = pytest.mark.timeout(20)


def fake_expert(answer: Any = None) -> FakeExpert:
    expert = FakeExpert("fake", [card("model", SPEC.name), card("other", SPEC.name)])
    if answer:
        expert.answer = answer
    return expert


async def hang(_: InferRequest) -> dict[str, Value]:
    return await asyncio.Event().wait()  # type: ignore[return-value]  # it never does


# ---------------------------------------------------------------- addresses


async def test_task_fails_when_its_only_expert_has_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.orchestrator.experts.health.MAX_PROBE_WAIT_SECONDS", 0.0)
    async with open_client() as client:
        async with fake_expert().serving() as address:
            outcome = await SimulatedRun(client).infer(candidate(address))
            assert outcome.result.outputs["text"].text == "hello"
        outcome = await SimulatedRun(client).infer(candidate(address))
        failure = outcome.result.failure
        assert failure.code == code_pb2.UNAVAILABLE
        assert failure.reason == "CIRCUIT_OPEN"
        assert "fake" in failure.message
        assert "fake" in failure.remedy
        assert outcome.event_kinds.count("task_started") == 3
        assert outcome.result.attempt == 3


async def test_restarted_expert_is_called_again() -> None:
    async with open_client() as client:
        async with fake_expert().serving() as address:
            await SimulatedRun(client).infer(candidate(address))
        waiting = asyncio.create_task(SimulatedRun(client).infer(candidate(address)))
        async with fake_expert().serving(listen=address):
            assert (await waiting).result.outputs["text"].text == "hello"


async def test_task_outlasts_a_restart_by_probes_at_growing_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.orchestrator.experts.circuit_breaker.COOL_DOWN_SECONDS", 0.03)
    outcome, sixth = TaskOutcome(), asyncio.Event()

    class Events(list[Any]):
        def append(self, event: Any) -> None:
            super().append(event)
            if outcome.event_kinds.count("task_started") == 6:
                sixth.set()

    outcome.events = Events()
    async with open_client() as client, fake_expert().serving() as address:
        pass
    async with open_client() as client:
        waiting = asyncio.create_task(SimulatedRun(client).infer(candidate(address), outcome=outcome))
        await sixth.wait()
        assert [avoid.address for avoid in client.health.avoid()] == [address]
        async with fake_expert().serving(listen=address):
            assert (await waiting).result.outputs["text"].text == "hello"
        assert not client.health.avoid()
    assert outcome.event_kinds.count("task_waiting") == 1
    assert outcome.result.attempt <= 8


async def test_second_address_is_called_when_the_first_is_closed() -> None:
    async with open_client() as client, fake_expert().serving() as address:
        both = candidate(Endpoint(address=CLOSED_ADDRESS, loaded=True), Endpoint(address=address))
        outcome = await SimulatedRun(client).infer(both)
        assert outcome.result.attempt == 2
        assert outcome.result.outputs["text"].text == "hello"
        assert outcome.event_kinds == ["task_started", "attempt_failed", "task_started"]


async def test_concurrent_calls_move_to_the_second_address_when_the_first_closes() -> None:
    calls, started = 60, 0
    all_started, fine = asyncio.Event(), fake_expert()

    async def count(_: InferRequest) -> dict[str, Value]:
        nonlocal started
        started += 1
        if started == calls:
            all_started.set()
        return await hang(_)

    async with open_client() as client, fine.serving() as other:
        async with fake_expert(count).serving() as address:
            both = candidate(Endpoint(address=address, loaded=True), Endpoint(address=other, queue=10_000))
            run = SimulatedRun(client)
            waiting = [asyncio.create_task(run.infer(both)) for _ in range(calls)]
            await all_started.wait()
        outcomes = await asyncio.gather(*waiting)
    assert {each.result.outputs["text"].text for each in outcomes} == {"hello"}
    assert len(fine.requests) == calls


async def test_failed_call_does_not_close_the_channel_of_an_active_call() -> None:
    first_started, may_finish = asyncio.Event(), asyncio.Event()

    class FailingSecondCall(FakeExpert):
        async def Infer(self, request: InferRequest, context: Any) -> InferResponse:
            self.requests.append(request)
            if len(self.requests) == 1:
                first_started.set()
                await may_finish.wait()
            if len(self.requests) == 2:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "not now")
            return InferResponse(outputs=request.inputs)

    async with open_client() as client, FailingSecondCall("fake", [card("model", SPEC.name)]).serving() as address:
        first = asyncio.create_task(SimulatedRun(client).infer(candidate(address)))
        await first_started.wait()
        second = await SimulatedRun(client).infer(candidate(address))
        assert second.result.attempt == 2
        assert second.event_kinds.count("attempt_failed") == 1
        may_finish.set()
        assert (await first).result.attempt == 1


async def test_last_candidate_gets_its_current_address_from_the_selector() -> None:
    async with open_client() as client, fake_expert().serving() as address:
        open_circuit(client, candidate(CLOSED_ADDRESS), Unavailable("gone"))

        async def reselect() -> Sequence[SelectedCandidate]:
            return [candidate(address)]

        outcome = await SimulatedRun(client).infer(candidate(CLOSED_ADDRESS), reselect=reselect)
        assert outcome.result.attempt == 1
        assert outcome.result.outputs["text"].text == "hello"


async def test_skipped_candidates_are_retried_before_the_task_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("services.orchestrator.experts.circuit_breaker.COOL_DOWN_SECONDS", 0.1)

    async def broken(_: InferRequest) -> dict[str, Value]:
        raise ModelFailed("nan")

    async with open_client() as client, fake_expert(broken).serving() as one, fake_expert().serving() as two:
        chosen = [candidate(one), candidate(two, expert="another"), candidate(one, model="other")]
        for each, error in zip(chosen, (ModelFailed("down"), Unavailable("down"), ModelFailed("down")), strict=True):
            open_circuit(client, each, error)
        outcome = await SimulatedRun(client).infer(*chosen)
    unavailable, failed = ("UNAVAILABLE", "next_candidate"), ("INTERNAL", "next_candidate")
    assert outcome.failed_attempts == [unavailable, unavailable, failed]
    assert outcome.result.by.expert == "another"


async def test_newly_started_expert_is_called_before_the_task_fails() -> None:
    async def broken(_: InferRequest) -> dict[str, Value]:
        raise ModelFailed("nan")

    async with open_client() as client, fake_expert(broken).serving() as one, fake_expert().serving() as two:

        async def reselect() -> Sequence[SelectedCandidate]:
            return [candidate(one), candidate(two, model="other", expert="another")]

        outcome = await SimulatedRun(client).infer(candidate(one), reselect=reselect)
    assert outcome.result.by.model_id == "other"
    assert outcome.failed_attempts == [("INTERNAL", "next_candidate")]


# ---------------------------------------------------------------- failures


def refusing(times: float, retry_after: float = 0.001) -> FakeExpert:
    """An expert that refuses the first calls as overloaded, and then answers."""
    expert = fake_expert()

    async def answer(request: InferRequest) -> dict[str, Value]:
        if len(expert.requests) <= times:
            raise Overloaded("full", retry_after=timedelta(seconds=retry_after))
        return {"text": request.inputs["text"]}

    expert.answer = answer
    return expert


@pytest.fixture
def _exact_retry_after(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the pause after a refusal exactly its Retry-After."""

    def pause(_refusals: int, retry_after: float, *, batch: bool) -> float:
        return retry_after

    monkeypatch.setattr("services.orchestrator.experts.retry.refusal_backoff", pause)


async def test_refusals_of_the_only_candidate_are_retried() -> None:
    async with open_client() as client, refusing(4).serving() as address:
        outcome = await SimulatedRun(client).infer(candidate(address))
    assert outcome.result.attempt == 5
    assert outcome.result.outputs["text"].text == "hello"
    assert outcome.event_kinds.count("attempt_failed") == 4


@pytest.mark.usefixtures("_exact_retry_after")
async def test_refusals_of_the_only_candidate_end_at_the_attempt_limit() -> None:
    busy = refusing(math.inf)
    async with open_client() as client, busy.serving() as address:
        outcome = await SimulatedRun(client).infer(candidate(address))
    assert len(busy.requests) == MAX_CALLS
    assert outcome.result.failure.reason == "OVERLOADED"
    assert outcome.result.failure.HasField("retry_after")


@pytest.mark.usefixtures("_exact_retry_after")
async def test_refusals_of_the_only_candidate_end_at_the_time_limit() -> None:
    busy = refusing(math.inf, retry_after=0.3)
    async with open_client(overload_seconds=0.5) as client, busy.serving() as address:
        outcome = await SimulatedRun(client).infer(candidate(address))
    assert len(busy.requests) == 2
    assert outcome.result.failure.reason == "OVERLOADED"


async def test_retry_after_beyond_the_time_limit_ends_the_task() -> None:
    busy = refusing(math.inf, retry_after=600.0)
    async with open_client() as client, busy.serving() as address:
        outcome = await SimulatedRun(client).infer(candidate(address))
    assert len(busy.requests) == 1
    assert outcome.result.failure.retry_after.seconds == 600


@pytest.mark.usefixtures("_exact_retry_after")
async def test_next_candidate_is_called_after_two_refusals() -> None:
    busy, idle = refusing(math.inf), fake_expert()
    async with open_client() as client, busy.serving() as one, idle.serving() as two:
        outcome = await SimulatedRun(client).infer(candidate(one), candidate(two, model="other", expert="idle"))
    assert outcome.result.by.model_id == "other"
    assert len(busy.requests) == 2


async def test_next_candidate_is_called_at_once_after_a_long_retry_after() -> None:
    busy, idle = refusing(math.inf, retry_after=600.0), fake_expert()
    async with open_client() as client, busy.serving() as one, idle.serving() as two:
        outcome = await SimulatedRun(client).infer(candidate(one), candidate(two, model="other", expert="idle"))
    assert outcome.result.by.model_id == "other"
    assert len(busy.requests) == 1


@pytest.mark.usefixtures("_exact_retry_after")
async def test_refusing_candidate_is_called_again_once_the_others_have_failed() -> None:
    async def broken(_: InferRequest) -> dict[str, Value]:
        raise ModelFailed("nan")

    async with open_client() as client, refusing(5).serving() as one, fake_expert(broken).serving() as two:
        outcome = await SimulatedRun(client).infer(candidate(one), candidate(two, model="other", expert="broken"))
    assert outcome.result.by.model_id == "model"
    assert outcome.result.outputs["text"].text == "hello"


@pytest.mark.usefixtures("_exact_retry_after")
async def test_refusing_candidate_is_not_called_again_before_its_retry_after() -> None:
    busy_until = 0.0

    async def busy(_: InferRequest) -> dict[str, Value]:
        nonlocal busy_until
        if not busy_until:
            busy_until = time.monotonic() + 1.5
            raise Overloaded("full", retry_after=timedelta(seconds=1.5))
        return {"text": Value(text="late" if time.monotonic() >= busy_until else "early")}

    async def broken(_: InferRequest) -> dict[str, Value]:
        raise ModelFailed("nan")

    async with open_client() as client, fake_expert(busy).serving() as one, fake_expert(broken).serving() as two:
        outcome = await SimulatedRun(client).infer(candidate(one), candidate(two, model="other", expert="broken"))
    assert outcome.result.outputs["text"].text == "late"


@pytest.mark.usefixtures("_exact_retry_after")
async def test_limits_of_refusals_end_a_task_whose_candidates_all_refuse() -> None:
    one, two = refusing(math.inf), refusing(math.inf)
    async with open_client() as client, one.serving() as first, two.serving() as second:
        outcome = await SimulatedRun(client).infer(candidate(first), candidate(second, model="other", expert="another"))
    assert outcome.result.failure.reason == "OVERLOADED"
    assert len(one.requests) <= MAX_CALLS
    assert len(two.requests) == MAX_CALLS


@pytest.mark.usefixtures("_exact_retry_after")
async def test_batch_item_outlasts_more_refusals() -> None:
    async with open_client() as client, refusing(MAX_BATCH_CALLS - 1).serving() as address:
        outcome = await SimulatedRun(client, priority=PRIORITY_BATCH).infer(candidate(address))
    assert outcome.result.attempt == MAX_BATCH_CALLS
    assert outcome.result.outputs["text"].text == "hello"


async def test_each_further_address_adds_one_call_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.orchestrator.experts.retry.MAX_CALLS", 1)
    async with open_client() as client, refusing(math.inf).serving() as one, fake_expert().serving() as two:
        both = candidate(Endpoint(address=one, loaded=True), Endpoint(address=two))
        outcome = await SimulatedRun(client).infer(both)
    assert outcome.result.outputs["text"].text == "hello"


async def test_retry_after_is_not_waited_for_while_another_address_accepts_calls() -> None:
    async def full(_: InferRequest) -> dict[str, Value]:
        raise Overloaded("full", retry_after=timedelta(minutes=10))

    busy, idle = fake_expert(full), fake_expert()
    async with open_client() as client, busy.serving() as one, idle.serving() as two:
        both = candidate(Endpoint(address=one, loaded=True), Endpoint(address=two))
        outcome = await SimulatedRun(client).infer(both)
        assert outcome.result.attempt == 2
        assert len(idle.requests) == 1
        await SimulatedRun(client).infer(both)
        assert len(busy.requests) == 1


async def test_call_dropped_by_the_server_is_retried() -> None:
    class Dropping(FakeExpert):
        async def Infer(self, request: InferRequest, context: Any) -> InferResponse:
            if not self.requests:
                self.requests.append(request)
                await context.abort(grpc.StatusCode.CANCELLED, "too many")
            return await super().Infer(request, context)

    async with open_client() as client, Dropping("fake", [card("model", SPEC.name)]).serving() as address:
        outcome = await SimulatedRun(client).infer(candidate(address))
    assert outcome.result.attempt == 2
    assert outcome.event_kinds == ["task_started", "attempt_failed", "task_started"]


async def test_next_candidate_is_called_after_a_model_failure() -> None:
    async def broken(request: InferRequest) -> dict[str, Value]:
        if request.model == "model":
            raise ModelFailed("nan")
        return {"text": request.inputs["text"]}

    async with open_client() as client, fake_expert(broken).serving() as address:
        outcome = await SimulatedRun(client).infer(candidate(address), candidate(address, model="other"))
    assert outcome.result.by.model_id == "other"
    assert outcome.result.attempt == 2
    assert outcome.failed_attempts == [("INTERNAL", "next_candidate")]


async def test_invalid_request_is_not_sent_to_the_next_candidate() -> None:
    async def picky(_: InferRequest) -> dict[str, Value]:
        raise InvalidRequest("this text is bad", remedy="send a good one", port="text")

    expert = fake_expert(picky)
    async with open_client() as client, expert.serving() as address:
        outcome = await SimulatedRun(client).infer(candidate(address), candidate(address, model="other"))
        assert not client.health.avoid()
    assert outcome.result.failure.port == "text"
    assert outcome.result.attempt == 1
    assert len(expert.requests) == 1


@pytest.mark.parametrize(
    "outputs",
    [
        {},
        {"text": Value()},
        {"text": Value(json="{}")},
        {"text": Value(text="hello"), "audio": Value(text="la")},
        {"text": Value(text="x" * (256 * 1024 + 1))},
    ],
    ids=["missing port", "empty value", "wrong kind", "unknown port", "too large for the journal"],
)
async def test_next_candidate_is_called_after_a_reply_that_breaks_its_ports(outputs: dict[str, Value]) -> None:
    async def corrupt(request: InferRequest) -> dict[str, Value]:
        return outputs if request.model == "model" else {"text": request.inputs["text"]}

    async with open_client() as client, fake_expert(corrupt).serving() as address:
        outcome = await SimulatedRun(client).infer(candidate(address), candidate(address, model="other"))
        alone = await SimulatedRun(client).infer(candidate(address))
    assert outcome.failed_attempts == [("DATA_LOSS", "next_candidate")]
    assert outcome.result.outputs["text"].text == "hello"
    assert alone.result.failure.code == code_pb2.DATA_LOSS
    assert len(alone.result.outputs) == 0
    assert alone.result.failure.remedy


async def test_artifact_reply_may_be_large() -> None:
    artifact = Value(artifact=Artifact(sha256="0" * 64, media_type="text/plain", size_bytes=1_000_000))

    async def answer(_: InferRequest) -> dict[str, Value]:
        return {"text": artifact}

    async with open_client() as client, fake_expert(answer).serving() as address:
        outcome = await SimulatedRun(client).infer(candidate(address))
    assert outcome.result.outputs["text"] == artifact


# ---------------------------------------------------------------- allowed candidates


async def test_external_candidate_is_not_called_under_a_local_policy() -> None:
    external, unstated = fake_expert(), fake_expert()
    async with open_client() as client, external.serving() as one, unstated.serving() as two:
        remote = [candidate(one, location=MODEL_LOCATION_EXTERNAL), candidate(two, location=0)]
        outcome = await SimulatedRun(client).infer(*remote)
        assert outcome.result.failure.code == code_pb2.FAILED_PRECONDITION
        assert outcome.result.failure.reason == "POLICY"
        assert not external.requests
        assert not unstated.requests
        outcome = await SimulatedRun(client, policy=DATA_POLICY_OPEN).infer(*remote)
        assert outcome.result.outputs["text"].text == "hello"


async def test_shadow_candidate_never_gives_the_result() -> None:
    shadow = fake_expert()
    async with open_client() as client, shadow.serving() as one, fake_expert().serving() as two:
        shadow_candidate = candidate(one, role=CANDIDATE_ROLE_SHADOW)
        outcome = await SimulatedRun(client).infer(shadow_candidate, candidate(two, model="other"))
        assert outcome.result.by.model_id == "other"
        outcome = await SimulatedRun(client).infer(candidate(one, role=CANDIDATE_ROLE_SHADOW))
        assert outcome.result.failure.code == code_pb2.NOT_FOUND
    assert not shadow.requests


# ---------------------------------------------------------------- deadlines


async def test_hanging_model_leaves_time_for_the_next_candidate() -> None:
    async with open_client() as client, fake_expert(hang).serving() as one, fake_expert().serving() as two:
        outcome = await SimulatedRun(client, seconds=3.0).infer(candidate(one), candidate(two, model="other"))
    assert outcome.result.by.model_id == "other"
    assert outcome.failed_attempts == [("DEADLINE_EXCEEDED", "next_candidate")]


async def test_second_address_is_called_when_the_first_hangs() -> None:
    idle = fake_expert()
    async with open_client(attempt_seconds=1.0) as client, fake_expert(hang).serving() as one, idle.serving() as two:
        outcome = await SimulatedRun(client).infer(candidate(Endpoint(address=one, loaded=True), Endpoint(address=two)))
    assert len(idle.requests) == 1
    assert outcome.failed_attempts == [("DEADLINE_EXCEEDED", "retry")]


async def test_no_call_is_made_after_the_deadline_of_the_run() -> None:
    expert = fake_expert(hang)
    async with open_client() as client, expert.serving() as address, asyncio.timeout(15):
        outcome = await SimulatedRun(client, seconds=0.9).infer(candidate(address))
        assert outcome.result.failure.code == code_pb2.DEADLINE_EXCEEDED
        assert len(expert.requests) == 1
        assert "model of expert fake did not answer within 0." in outcome.result.failure.message
        assert not client.health.avoid()
        outcome = await SimulatedRun(client, seconds=-1).infer(candidate(address), candidate(address, model="other"))
        assert outcome.result.failure.code == code_pb2.DEADLINE_EXCEEDED
        assert outcome.result.attempt == 0
        assert len(expert.requests) == 1


# ---------------------------------------------------------------- circuits


async def test_open_circuit_of_a_model_leaves_other_models_callable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("services.orchestrator.experts.circuit_breaker.COOL_DOWN_SECONDS", 60.0)

    async def broken(request: InferRequest) -> dict[str, Value]:
        if request.model == "model":
            raise ModelFailed("nan")
        return {"text": request.inputs["text"]}

    expert = fake_expert(broken)
    async with open_client() as client, expert.serving() as address:
        for _ in range(5):
            await SimulatedRun(client).infer(candidate(address), candidate(address, model="other"))
        assert client.health.avoid() == [Avoid(model_id="model", expert="fake")]
        assert [request.model for request in expert.requests].count("model") == 3
        outcome = await SimulatedRun(client).infer(candidate(address))
        assert outcome.result.failure.reason == "CIRCUIT_OPEN"
        assert "model of expert fake keeps failing: nan" in outcome.result.failure.message


async def test_waiting_tasks_send_one_probe_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.orchestrator.experts.circuit_breaker.COOL_DOWN_SECONDS", 0.05)
    down, at_once, most, third = True, 0, 0, asyncio.Event()

    async def answer(request: InferRequest) -> dict[str, Value]:
        nonlocal at_once, most
        if len(expert.requests) == 3:
            third.set()
        at_once += 1
        most = max(most, at_once)
        try:
            if down:
                raise Unavailable("down")
            return {"text": request.inputs["text"]}
        finally:
            at_once -= 1

    expert = fake_expert(answer)
    async with open_client() as client, expert.serving() as address:
        open_circuit(client, candidate(address), Unavailable("down"))
        waiting = [asyncio.create_task(SimulatedRun(client).infer(candidate(address))) for _ in range(50)]
        await third.wait()
        assert most == 1
        down = False
        outcomes = await asyncio.gather(*waiting)
    assert {each.result.outputs["text"].text for each in outcomes} == {"hello"}

"""Asking experts that come and go."""

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
from tests.support.expert_calls import SPEC, Asked, Asker, asking, candidate, open_circuit

GONE = "127.0.0.1:1"
"""Where nobody listens."""

pytestmark = pytest.mark.timeout(20)


def fake(answer: Any = None) -> FakeExpert:
    expert = FakeExpert("fake", [card("model", SPEC.name), card("other", SPEC.name)])
    if answer:
        expert.answer = answer
    return expert


async def forever(_: InferRequest) -> dict[str, Value]:
    return await asyncio.Event().wait()  # type: ignore[return-value]  # it never does


# ---------------------------------------------------------------- addresses


async def test_a_channel_to_an_address_that_is_gone_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.orchestrator.experts.health.MAX_PROBE_WAIT_SECONDS", 0.0)
    async with asking() as attempts:
        async with fake().serving() as address:
            asked = await Asker(attempts).infer(candidate(address))
            assert asked.result.outputs["text"].text == "hello"
        asked = await Asker(attempts).infer(candidate(address))
        failure = asked.result.failure
        assert (failure.code, failure.reason) == (code_pb2.UNAVAILABLE, "CIRCUIT_OPEN")
        assert "fake" in failure.message
        assert "fake" in failure.remedy
        assert asked.told.count("task_started") == asked.result.attempt == 3


async def test_an_expert_that_comes_back_is_reached_again() -> None:
    async with asking() as attempts:
        async with fake().serving() as address:
            await Asker(attempts).infer(candidate(address))
        waiting = asyncio.create_task(Asker(attempts).infer(candidate(address)))
        async with fake().serving(listen=address):
            assert (await waiting).result.outputs["text"].text == "hello"


async def test_a_lone_task_outlasts_a_restart_with_probes_ever_further_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.orchestrator.experts.circuit_breaker.COOL_DOWN_SECONDS", 0.03)
    asked, sixth = Asked(), asyncio.Event()

    class Events(list[Any]):
        def append(self, event: Any) -> None:
            super().append(event)
            if asked.told.count("task_started") == 6:
                sixth.set()

    asked.events = Events()
    async with asking() as attempts, fake().serving() as address:
        pass
    async with asking() as attempts:
        waiting = asyncio.create_task(Asker(attempts).infer(candidate(address), asked=asked))
        await sixth.wait()
        assert [avoid.address for avoid in attempts.health.avoid()] == [address]
        async with fake().serving(listen=address):
            assert (await waiting).result.outputs["text"].text == "hello"
        assert not attempts.health.avoid()
    assert asked.told.count("task_waiting") == 1
    assert asked.result.attempt <= 8


async def test_the_other_place_of_an_expert_is_asked_when_one_is_gone() -> None:
    async with asking() as attempts, fake().serving() as address:
        both = candidate(Endpoint(address=GONE, loaded=True), Endpoint(address=address))
        asked = await Asker(attempts).infer(both)
        assert asked.result.attempt == 2
        assert asked.result.outputs["text"].text == "hello"
        assert asked.told == ["task_started", "attempt_failed", "task_started"]


async def test_calls_that_lose_their_place_at_once_all_find_the_other() -> None:
    calls, there = 60, 0
    all_there, fine = asyncio.Event(), fake()

    async def count(_: InferRequest) -> dict[str, Value]:
        nonlocal there
        there += 1
        if there == calls:
            all_there.set()
        return await forever(_)

    async with asking() as attempts, fine.serving() as other:
        async with fake(count).serving() as address:
            both = candidate(Endpoint(address=address, loaded=True), Endpoint(address=other, queue=10_000))
            asker = Asker(attempts)
            waiting = [asyncio.create_task(asker.infer(both)) for _ in range(calls)]
            await all_there.wait()
        asked = await asyncio.gather(*waiting)
    assert {each.result.outputs["text"].text for each in asked} == {"hello"}
    assert len(fine.asked) == calls


async def test_a_call_under_way_does_not_lose_its_channel_to_another_that_fails() -> None:
    unfinished, go = asyncio.Event(), asyncio.Event()

    class Torn(FakeExpert):
        async def Infer(self, request: InferRequest, context: Any) -> InferResponse:
            self.asked.append(request)
            if len(self.asked) == 1:
                unfinished.set()
                await go.wait()
            if len(self.asked) == 2:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "not now")
            return InferResponse(outputs=request.inputs)

    async with asking() as attempts, Torn("fake", [card("model", SPEC.name)]).serving() as address:
        first = asyncio.create_task(Asker(attempts).infer(candidate(address)))
        await unfinished.wait()
        second = await Asker(attempts).infer(candidate(address))
        assert (second.result.attempt, second.told.count("attempt_failed")) == (2, 1)
        go.set()
        assert (await first).result.attempt == 1


async def test_before_giving_up_the_selector_is_asked_where_the_expert_is_now() -> None:
    async with asking() as attempts, fake().serving() as address:
        open_circuit(attempts, candidate(GONE), Unavailable("gone"))

        async def again() -> Sequence[SelectedCandidate]:
            return [candidate(address)]

        asked = await Asker(attempts).infer(candidate(GONE), again=again)
        assert asked.result.attempt == 1
        assert asked.result.outputs["text"].text == "hello"


async def test_all_who_were_passed_over_have_a_second_chance_before_the_task_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("services.orchestrator.experts.circuit_breaker.COOL_DOWN_SECONDS", 0.1)

    async def broken(_: InferRequest) -> dict[str, Value]:
        raise ModelFailed("nan")

    async with asking() as attempts, fake(broken).serving() as one, fake().serving() as two:
        chosen = [candidate(one), candidate(two, expert="another"), candidate(one, model="other")]
        for each, error in zip(chosen, (ModelFailed("down"), Unavailable("down"), ModelFailed("down")), strict=True):
            open_circuit(attempts, each, error)
        asked = await Asker(attempts).infer(*chosen)
    passed_over, failed = ("UNAVAILABLE", "next_candidate"), ("INTERNAL", "next_candidate")
    assert asked.failures == [passed_over, passed_over, failed]
    assert asked.result.by.expert == "another"


async def test_an_expert_that_came_since_is_asked_before_the_task_fails() -> None:
    async def broken(_: InferRequest) -> dict[str, Value]:
        raise ModelFailed("nan")

    async with asking() as attempts, fake(broken).serving() as one, fake().serving() as two:

        async def again() -> Sequence[SelectedCandidate]:
            return [candidate(one), candidate(two, model="other", expert="another")]

        asked = await Asker(attempts).infer(candidate(one), again=again)
    assert (asked.result.by.model_id, asked.failures) == ("other", [("INTERNAL", "next_candidate")])


# ---------------------------------------------------------------- what a failure leads to


def refusing(times: float, retry_after: float = 0.001) -> FakeExpert:
    """Refuses so many calls as overloaded, then answers."""
    expert = fake()

    async def answer(request: InferRequest) -> dict[str, Value]:
        if len(expert.asked) <= times:
            raise Overloaded("full", retry_after=timedelta(seconds=retry_after))
        return {"text": request.inputs["text"]}

    expert.answer = answer
    return expert


@pytest.fixture
def _pauses_as_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a refusal exactly the time passes that the expert named."""

    def pause(_refusals: int, retry_after: float, *, batch: bool) -> float:
        return retry_after

    monkeypatch.setattr("services.orchestrator.experts.retry.refusal_backoff", pause)


async def test_an_overload_is_waited_out_when_nobody_else_is_left() -> None:
    async with asking() as attempts, refusing(4).serving() as address:
        asked = await Asker(attempts).infer(candidate(address))
    assert (asked.result.attempt, asked.result.outputs["text"].text) == (5, "hello")
    assert asked.told.count("attempt_failed") == 4


@pytest.mark.usefixtures("_pauses_as_named")
async def test_refusals_of_the_only_candidate_end_at_the_attempt_limit() -> None:
    busy = refusing(math.inf)
    async with asking() as attempts, busy.serving() as address:
        asked = await Asker(attempts).infer(candidate(address))
    assert len(busy.asked) == MAX_CALLS
    assert asked.result.failure.reason == "OVERLOADED"
    assert asked.result.failure.HasField("retry_after")


@pytest.mark.usefixtures("_pauses_as_named")
async def test_refusals_of_the_only_candidate_end_at_the_time_limit() -> None:
    busy = refusing(math.inf, retry_after=0.3)
    async with asking(overload_seconds=0.5) as attempts, busy.serving() as address:
        asked = await Asker(attempts).infer(candidate(address))
    assert len(busy.asked) == 2
    assert asked.result.failure.reason == "OVERLOADED"


async def test_a_retry_after_beyond_the_time_limit_is_not_waited_for() -> None:
    busy = refusing(math.inf, retry_after=600.0)
    async with asking() as attempts, busy.serving() as address:
        asked = await Asker(attempts).infer(candidate(address))
    assert len(busy.asked) == 1
    assert asked.result.failure.retry_after.seconds == 600


@pytest.mark.usefixtures("_pauses_as_named")
async def test_the_next_candidate_is_called_after_two_refusals() -> None:
    busy, idle = refusing(math.inf), fake()
    async with asking() as attempts, busy.serving() as one, idle.serving() as two:
        asked = await Asker(attempts).infer(candidate(one), candidate(two, model="other", expert="idle"))
    assert asked.result.by.model_id == "other"
    assert len(busy.asked) == 2


async def test_the_next_candidate_is_called_at_once_when_a_refusal_names_a_long_time() -> None:
    busy, idle = refusing(math.inf, retry_after=600.0), fake()
    async with asking() as attempts, busy.serving() as one, idle.serving() as two:
        asked = await Asker(attempts).infer(candidate(one), candidate(two, model="other", expert="idle"))
    assert asked.result.by.model_id == "other"
    assert len(busy.asked) == 1


@pytest.mark.usefixtures("_pauses_as_named")
async def test_a_candidate_that_refused_is_called_again_once_the_others_have_failed() -> None:
    async def broken(_: InferRequest) -> dict[str, Value]:
        raise ModelFailed("nan")

    async with asking() as attempts, refusing(5).serving() as one, fake(broken).serving() as two:
        asked = await Asker(attempts).infer(candidate(one), candidate(two, model="other", expert="broken"))
    assert asked.result.by.model_id == "model"
    assert asked.result.outputs["text"].text == "hello"


@pytest.mark.usefixtures("_pauses_as_named")
async def test_a_candidate_that_refused_is_not_called_again_before_the_time_it_named() -> None:
    busy_until = 0.0

    async def busy(_: InferRequest) -> dict[str, Value]:
        nonlocal busy_until
        if not busy_until:
            busy_until = time.monotonic() + 1.5
            raise Overloaded("full", retry_after=timedelta(seconds=1.5))
        return {"text": Value(text="late" if time.monotonic() >= busy_until else "early")}

    async def broken(_: InferRequest) -> dict[str, Value]:
        raise ModelFailed("nan")

    async with asking() as attempts, fake(busy).serving() as one, fake(broken).serving() as two:
        asked = await Asker(attempts).infer(candidate(one), candidate(two, model="other", expert="broken"))
    assert asked.result.outputs["text"].text == "late"


@pytest.mark.usefixtures("_pauses_as_named")
async def test_limits_of_refusals_end_a_task_whose_candidates_all_refuse() -> None:
    one, two = refusing(math.inf), refusing(math.inf)
    async with asking() as attempts, one.serving() as first, two.serving() as second:
        asked = await Asker(attempts).infer(candidate(first), candidate(second, model="other", expert="another"))
    assert asked.result.failure.reason == "OVERLOADED"
    assert len(one.asked) <= MAX_CALLS
    assert len(two.asked) == MAX_CALLS


@pytest.mark.usefixtures("_pauses_as_named")
async def test_an_item_of_a_batch_outlasts_more_refusals() -> None:
    async with asking() as attempts, refusing(MAX_BATCH_CALLS - 1).serving() as address:
        asked = await Asker(attempts, priority=PRIORITY_BATCH).infer(candidate(address))
    assert asked.result.attempt == MAX_BATCH_CALLS
    assert asked.result.outputs["text"].text == "hello"


async def test_each_further_address_of_a_candidate_may_refuse_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.orchestrator.experts.retry.MAX_CALLS", 1)
    async with asking() as attempts, refusing(math.inf).serving() as one, fake().serving() as two:
        both = candidate(Endpoint(address=one, loaded=True), Endpoint(address=two))
        asked = await Asker(attempts).infer(both)
    assert asked.result.outputs["text"].text == "hello"


async def test_an_overload_is_not_waited_out_where_another_place_is_free() -> None:
    async def full(_: InferRequest) -> dict[str, Value]:
        raise Overloaded("full", retry_after=timedelta(minutes=10))

    busy, idle = fake(full), fake()
    async with asking() as attempts, busy.serving() as one, idle.serving() as two:
        both = candidate(Endpoint(address=one, loaded=True), Endpoint(address=two))
        asked = await Asker(attempts).infer(both)
        assert asked.result.attempt == 2
        assert len(idle.asked) == 1
        await Asker(attempts).infer(both)
        assert len(busy.asked) == 1


async def test_a_call_that_a_server_drops_is_made_again() -> None:
    class Dropping(FakeExpert):
        async def Infer(self, request: InferRequest, context: Any) -> InferResponse:
            if not self.asked:
                self.asked.append(request)
                await context.abort(grpc.StatusCode.CANCELLED, "too many")
            return await super().Infer(request, context)

    async with asking() as attempts, Dropping("fake", [card("model", SPEC.name)]).serving() as address:
        asked = await Asker(attempts).infer(candidate(address))
    assert asked.result.attempt == 2
    assert asked.told == ["task_started", "attempt_failed", "task_started"]


async def test_the_next_candidate_is_asked_when_a_model_fails() -> None:
    async def broken(request: InferRequest) -> dict[str, Value]:
        if request.model == "model":
            raise ModelFailed("nan")
        return {"text": request.inputs["text"]}

    async with asking() as attempts, fake(broken).serving() as address:
        asked = await Asker(attempts).infer(candidate(address), candidate(address, model="other"))
    assert (asked.result.by.model_id, asked.result.attempt) == ("other", 2)
    assert asked.failures == [("INTERNAL", "next_candidate")]


async def test_nobody_else_is_asked_what_is_wrong_with_the_request() -> None:
    async def picky(_: InferRequest) -> dict[str, Value]:
        raise InvalidRequest("this text is bad", remedy="send a good one", port="text")

    expert = fake(picky)
    async with asking() as attempts, expert.serving() as address:
        asked = await Asker(attempts).infer(candidate(address), candidate(address, model="other"))
        assert not attempts.health.avoid()
    assert (asked.result.failure.port, asked.result.attempt, len(expert.asked)) == ("text", 1, 1)


@pytest.mark.parametrize(
    "outputs",
    [
        {},
        {"text": Value()},
        {"text": Value(json="{}")},
        {"text": Value(text="hello"), "audio": Value(text="la")},
        {"text": Value(text="x" * (256 * 1024 + 1))},
    ],
    ids=["a missing port", "an empty value", "a wrong kind", "an unknown port", "too much for the journal"],
)
async def test_a_reply_that_breaks_its_ports_is_lost_data_and_the_next_is_asked(outputs: dict[str, Value]) -> None:
    async def corrupt(request: InferRequest) -> dict[str, Value]:
        return outputs if request.model == "model" else {"text": request.inputs["text"]}

    async with asking() as attempts, fake(corrupt).serving() as address:
        asked = await Asker(attempts).infer(candidate(address), candidate(address, model="other"))
        alone = await Asker(attempts).infer(candidate(address))
    assert asked.failures == [("DATA_LOSS", "next_candidate")]
    assert asked.result.outputs["text"].text == "hello"
    assert (alone.result.failure.code, len(alone.result.outputs)) == (code_pb2.DATA_LOSS, 0)
    assert alone.result.failure.remedy


async def test_a_reply_may_be_long_where_it_is_an_artifact() -> None:
    kept = Value(artifact=Artifact(sha256="0" * 64, media_type="text/plain", size_bytes=1_000_000))

    async def answer(_: InferRequest) -> dict[str, Value]:
        return {"text": kept}

    async with asking() as attempts, fake(answer).serving() as address:
        asked = await Asker(attempts).infer(candidate(address))
    assert asked.result.outputs["text"] == kept


# ---------------------------------------------------------------- who may be asked


async def test_nothing_leaves_the_house_against_the_policy_whatever_was_selected() -> None:
    outside, said_nothing = fake(), fake()
    async with asking() as attempts, outside.serving() as one, said_nothing.serving() as two:
        remote = [candidate(one, location=MODEL_LOCATION_EXTERNAL), candidate(two, location=0)]
        asked = await Asker(attempts).infer(*remote)
        assert (asked.result.failure.code, asked.result.failure.reason) == (code_pb2.FAILED_PRECONDITION, "POLICY")
        assert not outside.asked
        assert not said_nothing.asked
        asked = await Asker(attempts, policy=DATA_POLICY_OPEN).infer(*remote)
        assert asked.result.outputs["text"].text == "hello"


async def test_a_shadow_never_gives_the_result() -> None:
    shadow = fake()
    async with asking() as attempts, shadow.serving() as one, fake().serving() as two:
        asked = await Asker(attempts).infer(candidate(one, role=CANDIDATE_ROLE_SHADOW), candidate(two, model="other"))
        assert asked.result.by.model_id == "other"
        asked = await Asker(attempts).infer(candidate(one, role=CANDIDATE_ROLE_SHADOW))
        assert asked.result.failure.code == code_pb2.NOT_FOUND
    assert not shadow.asked


# ---------------------------------------------------------------- time


async def test_a_model_that_hangs_leaves_time_for_the_next() -> None:
    async with asking() as attempts, fake(forever).serving() as one, fake().serving() as two:
        asked = await Asker(attempts, seconds=1.0).infer(candidate(one), candidate(two, model="other"))
    assert (asked.result.by.model_id, asked.failures) == ("other", [("DEADLINE_EXCEEDED", "next_candidate")])


async def test_another_place_is_asked_where_one_hangs() -> None:
    idle = fake()
    async with asking(attempt_seconds=0.2) as attempts, fake(forever).serving() as one, idle.serving() as two:
        asked = await Asker(attempts).infer(candidate(Endpoint(address=one, loaded=True), Endpoint(address=two)))
    assert len(idle.asked) == 1
    assert asked.failures == [("DEADLINE_EXCEEDED", "retry")]


async def test_the_time_of_a_run_is_final() -> None:
    expert = fake(forever)
    async with asking() as attempts, expert.serving() as address, asyncio.timeout(15):
        asked = await Asker(attempts, seconds=0.3).infer(candidate(address))
        assert (asked.result.failure.code, len(expert.asked)) == (code_pb2.DEADLINE_EXCEEDED, 1)
        assert "model of expert fake did not answer within 0." in asked.result.failure.message
        assert not attempts.health.avoid()
        asked = await Asker(attempts, seconds=-1).infer(candidate(address), candidate(address, model="other"))
        assert (asked.result.failure.code, asked.result.attempt, len(expert.asked)) == (
            code_pb2.DEADLINE_EXCEEDED,
            0,
            1,
        )


# ---------------------------------------------------------------- circuits


async def test_a_model_that_keeps_failing_is_avoided_and_its_expert_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.orchestrator.experts.circuit_breaker.COOL_DOWN_SECONDS", 60.0)

    async def broken(request: InferRequest) -> dict[str, Value]:
        if request.model == "model":
            raise ModelFailed("nan")
        return {"text": request.inputs["text"]}

    expert = fake(broken)
    async with asking() as attempts, expert.serving() as address:
        for _ in range(5):
            await Asker(attempts).infer(candidate(address), candidate(address, model="other"))
        assert attempts.health.avoid() == [Avoid(model_id="model", expert="fake")]
        assert [request.model for request in expert.asked].count("model") == 3
        asked = await Asker(attempts).infer(candidate(address))
        assert asked.result.failure.reason == "CIRCUIT_OPEN"
        assert "model of expert fake keeps failing: nan" in asked.result.failure.message


async def test_those_who_wait_for_an_expert_send_one_probe_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.orchestrator.experts.circuit_breaker.COOL_DOWN_SECONDS", 0.05)
    down, at_once, most, third = True, 0, 0, asyncio.Event()

    async def answer(request: InferRequest) -> dict[str, Value]:
        nonlocal at_once, most
        if len(expert.asked) == 3:
            third.set()
        at_once += 1
        most = max(most, at_once)
        try:
            if down:
                raise Unavailable("down")
            return {"text": request.inputs["text"]}
        finally:
            at_once -= 1

    expert = fake(answer)
    async with asking() as attempts, expert.serving() as address:
        open_circuit(attempts, candidate(address), Unavailable("down"))
        waiting = [asyncio.create_task(Asker(attempts).infer(candidate(address))) for _ in range(50)]
        await third.wait()
        assert most == 1
        down = False
        asked = await asyncio.gather(*waiting)
    assert {each.result.outputs["text"].text for each in asked} == {"hello"}

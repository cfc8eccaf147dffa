"""An expert of the last release in today's house, asked by a client of the last release."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import httpx
import pytest

from protos.hugginggpt.v1.types_pb2 import (
    DATA_POLICY_OPEN,
    PRIORITY_INTERACTIVE,
    RUN_STATE_CANCELLED,
    RUN_STATE_COMPLETED,
)
from tests.support import previous_release
from tests.support.previous_release import elder
from tests.system.conftest import House, eventually

pytestmark = pytest.mark.slow

REQUEST = 'Whisper the sentence "GOOD MORNING"'
LEARNT_SECONDS = 10.0


@pytest.fixture(scope="module")
def joined(house: House) -> Iterator[previous_release.Expert]:
    def offered() -> bool:
        return previous_release.WHISPERING in house.cli("tasks").out

    expert = previous_release.Expert()
    with previous_release.serving(expert) as address:
        assert house.cli("experts", "add", address).status == 0
        eventually(offered, LEARNT_SECONDS)
        yield expert
    house.cli("experts", "forget", previous_release.NAME)
    eventually(lambda: not offered())


@pytest.fixture
def expert(joined: previous_release.Expert) -> previous_release.Expert:
    joined.whispering = previous_release.whispered
    joined.calls.clear()
    return joined


@pytest.fixture
def gateway(house: House) -> Iterator[Any]:
    with grpc.insecure_channel(house.grpc) as channel:
        yield previous_release.stub("GatewayService", channel)


def asked(gateway: Any, **spec: Any) -> Any:
    """The events of a run as they come, in the words of the last release."""
    return gateway.Ask(elder("AskRequest")(spec={"request": REQUEST, "bypass_memo": True, **spec}), timeout=40)


def named(events: Any, name: str) -> list[Any]:
    return [getattr(event, name) for event in events if event.WhichOneof("event") == name]


def once(does: Callable[[grpc.ServicerContext], None]) -> previous_release.Whispering:
    """Does something in the first call."""
    first = [does]

    def whispering(request: Any, context: grpc.ServicerContext) -> str:
        if first:
            first.pop()(context)
        return previous_release.whispered(request, context)

    return whispering


def test_its_own_kind_of_task_is_planned_selected_and_called(
    house: House, expert: previous_release.Expert, gateway: Any
) -> None:
    events = list(asked(gateway))
    (ended,) = named(events, "task_ended")
    assert ended.result.outputs["text"].text == "good morning"
    assert (ended.result.by.expert, ended.result.by.model_id) == (previous_release.NAME, previous_release.WHISPERER)
    assert events[-1].run_ended.state == RUN_STATE_COMPLETED
    (call,) = expert.calls
    assert (call.request.task, call.request.model, call.request.revision) == (
        previous_release.WHISPERING,
        previous_release.WHISPERER,
        "1",
    )
    assert (call.caller.tenant, call.caller.policy, call.caller.priority, call.caller.run_id) == (
        *("default", DATA_POLICY_OPEN, PRIORITY_INTERACTIVE),
        events[0].run_id,
    )
    assert 0 < call.seconds < 1000


def test_nothing_is_wrong_with_what_it_says_of_itself(
    house: House, expert: previous_release.Expert, gateway: Any
) -> None:
    cards = gateway.ListModels(elder("ListModelsRequest")(task="translation"), timeout=10).models
    assert [card.id for card in cards if card.expert == previous_release.NAME] == ["old-tongues"]
    told = httpx.get(f"{house.url}/v1/experts", trust_env=False).json()["data"]
    assert [one.get("problems", []) for one in told if one["name"] == previous_release.NAME] == [[]]


def test_its_progress_is_told(house: House, expert: previous_release.Expert, gateway: Any) -> None:
    told = threading.Event()
    expert.whispering = once(lambda context: assert_set(told))
    for event in asked(gateway):
        for step in named([event], "task_progress"):
            assert (step.fraction, step.message) == (0.5, "half a breath")
            told.set()
    assert_set(told)


def test_a_run_that_is_cancelled_cancels_its_call(house: House, expert: previous_release.Expert, gateway: Any) -> None:
    entered, left = threading.Event(), threading.Event()

    def stays(context: grpc.ServicerContext) -> None:
        context.add_callback(left.set)
        entered.set()
        assert_set(left)

    expert.whispering = once(stays)
    events = asked(gateway)
    run_id = next(events).run_id
    assert_set(entered)
    gateway.Cancel(elder("CancelRunRequest")(run_id=run_id), timeout=10)
    assert_set(left)
    assert list(events)[-1].run_ended.state == RUN_STATE_CANCELLED


def test_an_overloaded_one_is_asked_again(house: House, expert: previous_release.Expert, gateway: Any) -> None:
    busy = grpc.StatusCode.RESOURCE_EXHAUSTED
    expert.whispering = once(lambda context: previous_release.refuse(context, busy, "OVERLOADED"))
    events = list(asked(gateway))
    (failed,) = named(events, "attempt_failed")
    assert (failed.failure.reason, failed.next) == ("OVERLOADED", "retry")
    assert events[-1].run_ended.state == RUN_STATE_COMPLETED


def test_what_it_refuses_is_told_with_port_and_remedy(
    house: House, expert: previous_release.Expert, gateway: Any
) -> None:
    wrong = grpc.StatusCode.INVALID_ARGUMENT
    expert.whispering = once(
        lambda context: previous_release.refuse(context, wrong, "INVALID", port="text", remedy="say it quietly")
    )
    (ended,) = named(asked(gateway), "task_ended")
    failure = ended.result.failure
    assert (failure.code, failure.port, failure.remedy) == ("INVALID_ARGUMENT", "text", "say it quietly")


def assert_set(event: threading.Event) -> None:
    assert event.wait(previous_release.SECONDS)

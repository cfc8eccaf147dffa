"""The catalogue, told of experts by hand and by a clock that stands still."""

import asyncio
from dataclasses import dataclass

import pytest

from protos.hugginggpt.internal.v1.selector_pb2 import Expert
from protos.hugginggpt.tasks import standard_tasks
from protos.hugginggpt.v1.artifact_pb2 import MODALITY_AUDIO, MODALITY_TEXT
from protos.hugginggpt.v1.expert_pb2 import DescribeResponse, ExpertLoad
from protos.hugginggpt.v1.model_pb2 import (
    MODEL_STATE_DORMANT,
    MODEL_STATE_FAILED,
    MODEL_STATE_LOADABLE,
    MODEL_STATE_READY,
    ModelCard,
)
from protos.hugginggpt.v1.task_pb2 import Port, TaskSpec
from services.common.errors import CorruptData, FailedPrecondition, NotFound
from services.selector import expert_list
from services.selector.catalog import Catalog
from services.selector.replica import ReplicaState
from tests.fakes import card

HERE, THERE = "127.0.0.1:1", "127.0.0.1:2"
OCR = card("ocr", "image-to-text")


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def catalog(clock: Clock) -> Catalog:
    return Catalog(standard_tasks(), forget_seconds=10, clock=clock)


def reply(
    expert: str, *cards: ModelCard, specs: tuple[TaskSpec, ...] = (), scales_to_zero: bool = False, revision: str = "1"
) -> DescribeResponse:
    return DescribeResponse(expert=expert, revision=revision, tasks=specs, models=cards, scales_to_zero=scales_to_zero)


def greeting(modality: "int" = MODALITY_TEXT) -> TaskSpec:
    port = Port(name="text", modality=modality, required=True)  # type: ignore[arg-type]  # an enum's values are ints
    return TaskSpec(name="greeting", description="Greets.", inputs=[port], outputs=[port])


def answers(catalog: Catalog, address: str, described: DescribeResponse) -> None:
    catalog.listed(address)
    catalog.record_reply(address, described)


def row(catalog: Catalog, name: str) -> Expert:
    return {expert.name: expert for expert in expert_list.experts(catalog)}[name]


def test_what_an_expert_describes_can_be_planned_with_the_words_of_the_standard(catalog: Catalog) -> None:
    answers(catalog, HERE, reply("vision", OCR))
    task = catalog.view.tasks["image-to-text"]
    assert task.spec == standard_tasks()["image-to-text"]
    assert list(task.experts) == ["vision"]
    assert not task.dormant


def test_an_unknown_kind_of_task_is_offered_by_its_own_spec(catalog: Catalog) -> None:
    answers(catalog, HERE, reply("polite", card("hello", "greeting"), specs=(greeting(),)))
    assert catalog.view.tasks["greeting"].spec == greeting()


def test_a_spec_that_disagrees_with_the_standard_is_left_out_and_named(catalog: Catalog) -> None:
    wrong = TaskSpec()
    wrong.CopyFrom(standard_tasks()["image-to-text"])
    wrong.inputs[0].modality = MODALITY_AUDIO
    del wrong.outputs[:]
    answers(catalog, HERE, reply("vision", OCR, card("sum", "summarization"), specs=(wrong,)))
    assert list(catalog.view.tasks) == ["summarization"]
    (problem,) = row(catalog, "vision").problems
    assert "image-to-text is left out" in problem
    assert "input image is required audio instead of required image" in problem
    assert "output text is missing" in problem


def test_other_words_about_the_same_ports_are_no_disagreement(catalog: Catalog) -> None:
    same = TaskSpec()
    same.CopyFrom(standard_tasks()["image-to-text"])
    same.description = "Something else."
    answers(catalog, HERE, reply("vision", OCR, specs=(same,)))
    assert "image-to-text" in catalog.view.tasks
    assert not row(catalog, "vision").problems


def test_the_first_spec_of_a_new_kind_wins_while_it_lives(catalog: Catalog, clock: Clock) -> None:
    hello, cry = card("hello", "greeting"), card("cry", "greeting")
    answers(catalog, HERE, reply("first", hello, specs=(greeting(),)))
    answers(catalog, THERE, reply("second", cry, specs=(greeting(MODALITY_AUDIO),)))
    assert list(catalog.view.tasks["greeting"].experts) == ["first"]
    assert "disagrees with the one that came first" in row(catalog, "second").problems[0]
    catalog.record_failure(HERE, "does not answer")
    clock.now += 10
    catalog.expire()
    assert list(catalog.view.tasks["greeting"].experts) == ["second"]
    assert catalog.view.tasks["greeting"].spec == greeting(MODALITY_AUDIO)
    assert not row(catalog, "second").problems


def test_who_answers_late_does_not_come_first(catalog: Catalog) -> None:
    catalog.listed(HERE)
    answers(catalog, THERE, reply("first", card("hello", "greeting"), specs=(greeting(),)))
    answers(catalog, HERE, reply("second", card("cry", "greeting"), specs=(greeting(MODALITY_AUDIO),)))
    assert list(catalog.view.tasks["greeting"].experts) == ["first"]


def test_who_sleeps_lives(catalog: Catalog) -> None:
    answers(catalog, HERE, reply("first", card("hello", "greeting"), specs=(greeting(),), scales_to_zero=True))
    catalog.drop_address(HERE)
    answers(catalog, THERE, reply("second", card("cry", "greeting"), specs=(greeting(MODALITY_AUDIO),)))
    assert list(catalog.view.tasks["greeting"].experts) == ["first"]
    answers(catalog, HERE, reply("first", card("hello", "greeting"), specs=(greeting(),), scales_to_zero=True))
    assert list(catalog.view.tasks["greeting"].experts) == ["first"]


def test_models_without_a_spec_are_named(catalog: Catalog) -> None:
    answers(catalog, HERE, reply("odd", card("m", "nonsense")))
    assert not catalog.view.tasks
    assert "nonsense is left out" in row(catalog, "odd").problems[0]


def test_a_task_whose_models_have_all_failed_cannot_be_planned(catalog: Catalog) -> None:
    broken = card("ocr", "image-to-text", state=MODEL_STATE_FAILED, failure="no such file")
    answers(catalog, HERE, reply("vision", broken))
    assert not catalog.view.tasks
    assert "no such file" in row(catalog, "vision").problems[0]
    assert [model.state for model in catalog.view.models_of("")] == [MODEL_STATE_FAILED]


def test_a_task_whose_models_have_all_failed_is_listed_as_failing(catalog: Catalog) -> None:
    broken = card("ocr", "image-to-text", state=MODEL_STATE_FAILED, failure="no such file")
    answers(catalog, HERE, reply("vision", broken))
    assert list(catalog.view.failing) == ["image-to-text"]
    assert list(catalog.view.failing["image-to-text"].experts) == ["vision"]


def test_a_task_that_another_model_can_run_is_not_failing(catalog: Catalog) -> None:
    broken = card("other", "image-to-text", state=MODEL_STATE_FAILED, failure="no such file")
    answers(catalog, HERE, reply("vision", broken, OCR))
    assert not catalog.view.failing


def test_digest_of_tasks_changes_when_a_task_that_was_never_planned_starts_failing(catalog: Catalog) -> None:
    before = catalog.view.tasks_digest
    broken = card("ocr", "image-to-text", state=MODEL_STATE_FAILED, failure="no such file")
    answers(catalog, HERE, reply("vision", broken))
    assert catalog.view.tasks_digest != before


def test_an_expert_that_is_silent_is_waited_for_and_then_leaves(catalog: Catalog, clock: Clock) -> None:
    answers(catalog, HERE, reply("vision", OCR))
    clock.now += 100
    assert catalog.record_failure(HERE, "does not answer")
    assert not catalog.record_failure(HERE, "does not answer")
    clock.now += 9
    assert catalog.expire() == []
    assert "image-to-text" in catalog.view.tasks
    clock.now += 1
    assert catalog.expire() == ["vision"]
    assert not catalog.view.tasks
    assert list(row(catalog, "vision").problems) == [f"{HERE} does not answer, for 10 s now"]
    assert catalog.expire() == []


def test_one_that_comes_back_in_time_never_left(catalog: Catalog, clock: Clock) -> None:
    answers(catalog, HERE, reply("vision", OCR))
    before = catalog.view.revision
    catalog.record_failure(HERE, "does not answer")
    clock.now += 9
    catalog.record_reply(HERE, reply("vision", OCR))
    clock.now += 9
    assert catalog.expire() == []
    assert catalog.view.revision == before
    assert not row(catalog, "vision").problems


def test_after_a_silence_the_expert_is_asked_anew(catalog: Catalog) -> None:
    answers(catalog, HERE, reply("vision", OCR, revision="7"))
    assert catalog.known_revision(HERE) == "7"
    catalog.record_failure(HERE, "does not answer")
    assert catalog.known_revision(HERE) == ""


def test_an_address_that_is_no_longer_listed_is_forgotten_with_its_expert(catalog: Catalog, clock: Clock) -> None:
    answers(catalog, HERE, reply("vision", OCR))
    catalog.drop_address(HERE)
    assert "image-to-text" in catalog.view.tasks
    clock.now += 10
    catalog.expire()
    assert not catalog.view.tasks
    assert expert_list.experts(catalog) == []


def test_an_address_that_never_answered_is_named(catalog: Catalog, clock: Clock) -> None:
    catalog.listed(HERE)
    catalog.record_failure(HERE, "does not answer")
    clock.now += 100
    assert catalog.expire() == []
    assert list(row(catalog, HERE).problems) == [f"{HERE} does not answer, for 100 s now"]


@pytest.mark.parametrize(
    "said",
    [
        DescribeResponse(models=[OCR]),
        DescribeResponse(unchanged=True),
        *(DescribeResponse(expert=name) for name in (".", "../lite", "a\nb", "x" * 300)),
    ],
)
def test_an_expert_must_say_who_it_is_by_a_name_that_can_be_shown_and_kept(
    catalog: Catalog, said: DescribeResponse
) -> None:
    catalog.listed(HERE)
    with pytest.raises(CorruptData, match="which expert"):
        catalog.record_reply(HERE, said)


def test_replicas_stand_under_one_name(catalog: Catalog) -> None:
    waiting = card("ocr", "image-to-text", state=MODEL_STATE_LOADABLE)
    answers(catalog, HERE, reply("vision", waiting))
    answers(catalog, THERE, reply("vision", OCR))
    offers = catalog.view.offers_of("image-to-text")
    assert offers is not None
    (offer,) = offers.offers
    assert offer.card.state == MODEL_STATE_READY
    assert [replica.address for replica in offer.replicas] == [HERE, THERE]
    assert list(row(catalog, "vision").addresses) == [HERE, THERE]


def test_a_silent_replica_is_not_called_while_another_answers(catalog: Catalog) -> None:
    for address in (HERE, THERE):
        answers(catalog, address, reply("vision", OCR))
    catalog.record_failure(HERE, "does not answer")
    offers = catalog.view.offers_of("image-to-text")
    assert offers is not None
    assert [replica.address for replica in offers.offers[0].replicas] == [THERE]


def test_replicas_with_another_commit_are_another_offer(catalog: Catalog) -> None:
    answers(catalog, HERE, reply("vision", OCR))
    answers(catalog, THERE, reply("vision", card("ocr", "image-to-text", revision="2")))
    offers = catalog.view.offers_of("image-to-text")
    assert offers is not None
    assert [(offer.card.revision, len(offer.replicas)) for offer in offers.offers] == [("1", 1), ("2", 1)]


def test_one_that_may_sleep_stays_asleep(catalog: Catalog, clock: Clock) -> None:
    answers(catalog, HERE, reply("vision", OCR, scales_to_zero=True))
    catalog.record_failure(HERE, "does not answer")
    assert not catalog.view.tasks["image-to-text"].dormant
    clock.now += 10
    catalog.expire()
    assert catalog.view.tasks["image-to-text"].dormant
    assert [model.state for model in catalog.view.models_of("image-to-text")] == [MODEL_STATE_DORMANT]
    sleeping = row(catalog, "vision")
    assert sleeping.dormant
    assert list(sleeping.addresses) == []
    assert list(sleeping.problems) == []


def test_one_that_may_sleep_sleeps_as_soon_as_its_last_address_is_gone(catalog: Catalog) -> None:
    for address in (HERE, THERE):
        answers(catalog, address, reply("vision", OCR, scales_to_zero=True))
    catalog.drop_address(HERE)
    assert [seat.attention for seat in catalog.view.replica_offers] == [ReplicaState.ANSWERS]
    catalog.drop_address(THERE)
    assert row(catalog, "vision").dormant


def test_one_that_wakes_up_elsewhere_is_the_same(catalog: Catalog) -> None:
    catalog.restore(reply("vision", OCR, scales_to_zero=True))
    assert row(catalog, "vision").dormant
    answers(catalog, THERE, reply("vision", card("better", "image-to-text"), scales_to_zero=True))
    assert list(row(catalog, "vision").addresses) == [THERE]
    assert [model.id for model in catalog.view.models_of("")] == ["better"]


def test_what_is_awake_is_not_replaced_by_a_memory(catalog: Catalog) -> None:
    answers(catalog, HERE, reply("vision", OCR, scales_to_zero=True))
    catalog.restore(reply("vision", scales_to_zero=True))
    assert not row(catalog, "vision").dormant


def test_forgetting(catalog: Catalog) -> None:
    with pytest.raises(NotFound) as missing:
        catalog.forget("vision")
    answers(catalog, HERE, reply("vision", OCR, scales_to_zero=True))
    with pytest.raises(FailedPrecondition) as awake:
        catalog.forget("vision")
    assert missing.value.reason == "EXPERT"
    assert awake.value.reason == "EXPERT_RUNNING"
    catalog.drop_address(HERE)
    catalog.forget("vision")
    assert not catalog.view.tasks
    assert expert_list.experts(catalog) == []


def test_load_is_fresh_and_no_news(catalog: Catalog) -> None:
    answers(catalog, HERE, reply("vision", OCR))
    before = catalog.view
    load = ExpertLoad(waiting=2, running=1, loaded=["ocr"], free_bytes=7)
    catalog.record_reply(HERE, DescribeResponse(unchanged=True, load=load))
    assert catalog.view is before
    offers = catalog.view.offers_of("image-to-text")
    assert offers is not None
    endpoint = offers.offers[0].replicas[0].endpoint("ocr")
    assert endpoint.address == HERE
    assert endpoint.loaded
    assert endpoint.queue == 3
    assert endpoint.free_bytes == 7


def test_the_revision_follows_the_content(catalog: Catalog) -> None:
    answers(catalog, HERE, reply("vision", OCR))
    first = catalog.view
    catalog.record_reply(HERE, reply("vision", card("ocr", "image-to-text", state=MODEL_STATE_LOADABLE), revision="2"))
    second = catalog.view
    catalog.record_reply(HERE, reply("vision", OCR, revision="3"))
    assert second.revision != first.revision
    assert second.tasks_digest == first.tasks_digest
    assert catalog.view.revision == first.revision


async def test_a_watcher_wakes_at_a_change(catalog: Catalog) -> None:
    waiting = asyncio.create_task(catalog.wait_for_revision(catalog.view.revision))
    await asyncio.sleep(0)
    assert not waiting.done()
    answers(catalog, HERE, reply("vision", OCR))
    async with asyncio.timeout(10):
        assert await waiting == catalog.view.revision


async def test_watchers_are_sent_away_when_it_closes(catalog: Catalog) -> None:
    waiting = asyncio.create_task(catalog.wait_for_revision(catalog.view.revision))
    await asyncio.sleep(0)
    catalog.close()
    async with asyncio.timeout(10):
        assert await waiting is None

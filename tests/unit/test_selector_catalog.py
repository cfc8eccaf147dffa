"""The catalogue, with replies and a clock set by the test."""

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
from services.selector.catalog import ExpertCatalog
from services.selector.expert_administration import list_experts
from services.selector.replica import ReplicaState
from tests.fakes import card

FIRST, SECOND = "127.0.0.1:1", "127.0.0.1:2"
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
def catalog(clock: Clock) -> ExpertCatalog:
    return ExpertCatalog(standard_tasks(), forget_seconds=10, clock=clock)


def reply(
    expert: str, *cards: ModelCard, specs: tuple[TaskSpec, ...] = (), scales_to_zero: bool = False, revision: str = "1"
) -> DescribeResponse:
    return DescribeResponse(expert=expert, revision=revision, tasks=specs, models=cards, scales_to_zero=scales_to_zero)


def greeting(modality: "int" = MODALITY_TEXT) -> TaskSpec:
    port = Port(name="text", modality=modality, required=True)  # type: ignore[arg-type]  # an enum's values are ints
    return TaskSpec(name="greeting", description="Greets.", inputs=[port], outputs=[port])


def add_reply(catalog: ExpertCatalog, address: str, described: DescribeResponse) -> None:
    catalog.add_address(address)
    catalog.record_reply(address, described)


def expert_entry(catalog: ExpertCatalog, name: str) -> Expert:
    return {expert.name: expert for expert in list_experts(catalog)}[name]


def test_described_task_has_the_standard_spec(catalog: ExpertCatalog) -> None:
    add_reply(catalog, FIRST, reply("vision", OCR))
    task = catalog.view.tasks["image-to-text"]
    assert task.spec == standard_tasks()["image-to-text"]
    assert list(task.experts) == ["vision"]
    assert not task.dormant


def test_task_unknown_to_the_standard_has_the_spec_of_its_expert(catalog: ExpertCatalog) -> None:
    add_reply(catalog, FIRST, reply("polite", card("hello", "greeting"), specs=(greeting(),)))
    assert catalog.view.tasks["greeting"].spec == greeting()


def test_spec_that_differs_from_the_standard_is_omitted_and_reported(catalog: ExpertCatalog) -> None:
    divergent_spec = TaskSpec()
    divergent_spec.CopyFrom(standard_tasks()["image-to-text"])
    divergent_spec.inputs[0].modality = MODALITY_AUDIO
    del divergent_spec.outputs[:]
    add_reply(catalog, FIRST, reply("vision", OCR, card("sum", "summarization"), specs=(divergent_spec,)))
    assert list(catalog.view.tasks) == ["summarization"]
    (problem,) = expert_entry(catalog, "vision").problems
    assert "image-to-text is omitted" in problem
    assert "input image is required audio instead of required image" in problem
    assert "output text is missing" in problem


def test_description_of_a_spec_may_differ_from_the_standard(catalog: ExpertCatalog) -> None:
    described_spec = TaskSpec()
    described_spec.CopyFrom(standard_tasks()["image-to-text"])
    described_spec.description = "Something else."
    add_reply(catalog, FIRST, reply("vision", OCR, specs=(described_spec,)))
    assert "image-to-text" in catalog.view.tasks
    assert not expert_entry(catalog, "vision").problems


def test_first_spec_of_a_new_task_applies_until_its_expert_is_removed(catalog: ExpertCatalog, clock: Clock) -> None:
    first_model, second_model = card("hello", "greeting"), card("cry", "greeting")
    add_reply(catalog, FIRST, reply("first", first_model, specs=(greeting(),)))
    add_reply(catalog, SECOND, reply("second", second_model, specs=(greeting(MODALITY_AUDIO),)))
    assert list(catalog.view.tasks["greeting"].experts) == ["first"]
    assert "differs from the first expert's" in expert_entry(catalog, "second").problems[0]
    catalog.record_failure(FIRST, "does not answer")
    clock.now += 10
    catalog.expire()
    assert list(catalog.view.tasks["greeting"].experts) == ["second"]
    assert catalog.view.tasks["greeting"].spec == greeting(MODALITY_AUDIO)
    assert not expert_entry(catalog, "second").problems


def test_order_of_arrival_counts_from_the_first_reply(catalog: ExpertCatalog) -> None:
    catalog.add_address(FIRST)
    add_reply(catalog, SECOND, reply("first", card("hello", "greeting"), specs=(greeting(),)))
    add_reply(catalog, FIRST, reply("second", card("cry", "greeting"), specs=(greeting(MODALITY_AUDIO),)))
    assert list(catalog.view.tasks["greeting"].experts) == ["first"]


def test_spec_of_a_dormant_expert_still_applies(catalog: ExpertCatalog) -> None:
    add_reply(catalog, FIRST, reply("first", card("hello", "greeting"), specs=(greeting(),), scales_to_zero=True))
    catalog.drop_address(FIRST)
    add_reply(catalog, SECOND, reply("second", card("cry", "greeting"), specs=(greeting(MODALITY_AUDIO),)))
    assert list(catalog.view.tasks["greeting"].experts) == ["first"]
    add_reply(catalog, FIRST, reply("first", card("hello", "greeting"), specs=(greeting(),), scales_to_zero=True))
    assert list(catalog.view.tasks["greeting"].experts) == ["first"]


def test_model_of_an_unspecified_task_is_reported(catalog: ExpertCatalog) -> None:
    add_reply(catalog, FIRST, reply("divergent", card("m", "nonsense")))
    assert not catalog.view.tasks
    assert "nonsense is omitted" in expert_entry(catalog, "divergent").problems[0]


def test_task_with_only_failed_models_cannot_be_planned(catalog: ExpertCatalog) -> None:
    failed_model = card("ocr", "image-to-text", state=MODEL_STATE_FAILED, failure="no such file")
    add_reply(catalog, FIRST, reply("vision", failed_model))
    assert not catalog.view.tasks
    assert "no such file" in expert_entry(catalog, "vision").problems[0]
    assert [model.state for model in catalog.view.models_of("")] == [MODEL_STATE_FAILED]


def test_task_with_only_failed_models_is_listed_as_failing(catalog: ExpertCatalog) -> None:
    failed_model = card("ocr", "image-to-text", state=MODEL_STATE_FAILED, failure="no such file")
    add_reply(catalog, FIRST, reply("vision", failed_model))
    assert list(catalog.view.failing) == ["image-to-text"]
    assert list(catalog.view.failing["image-to-text"].experts) == ["vision"]


def test_task_with_another_working_model_is_not_failing(catalog: ExpertCatalog) -> None:
    failed_model = card("other", "image-to-text", state=MODEL_STATE_FAILED, failure="no such file")
    add_reply(catalog, FIRST, reply("vision", failed_model, OCR))
    assert not catalog.view.failing


def test_digest_of_tasks_changes_when_a_task_that_was_never_planned_starts_failing(catalog: ExpertCatalog) -> None:
    before = catalog.view.tasks_digest
    failed_model = card("ocr", "image-to-text", state=MODEL_STATE_FAILED, failure="no such file")
    add_reply(catalog, FIRST, reply("vision", failed_model))
    assert catalog.view.tasks_digest != before


def test_unreachable_expert_is_removed_after_forget_seconds(catalog: ExpertCatalog, clock: Clock) -> None:
    add_reply(catalog, FIRST, reply("vision", OCR))
    clock.now += 100
    assert catalog.record_failure(FIRST, "does not answer")
    assert not catalog.record_failure(FIRST, "does not answer")
    clock.now += 9
    assert catalog.expire() == []
    assert "image-to-text" in catalog.view.tasks
    clock.now += 1
    assert catalog.expire() == ["vision"]
    assert not catalog.view.tasks
    assert list(expert_entry(catalog, "vision").problems) == [f"{FIRST} does not answer, for 10 s now"]
    assert catalog.expire() == []


def test_expert_reachable_again_in_time_leaves_the_revision_unchanged(catalog: ExpertCatalog, clock: Clock) -> None:
    add_reply(catalog, FIRST, reply("vision", OCR))
    before = catalog.view.revision
    catalog.record_failure(FIRST, "does not answer")
    clock.now += 9
    catalog.record_reply(FIRST, reply("vision", OCR))
    clock.now += 9
    assert catalog.expire() == []
    assert catalog.view.revision == before
    assert not expert_entry(catalog, "vision").problems


def test_known_revision_is_empty_after_an_error(catalog: ExpertCatalog) -> None:
    add_reply(catalog, FIRST, reply("vision", OCR, revision="7"))
    assert catalog.known_revision(FIRST) == "7"
    catalog.record_failure(FIRST, "does not answer")
    assert catalog.known_revision(FIRST) == ""


def test_expert_of_a_dropped_address_is_removed_after_forget_seconds(catalog: ExpertCatalog, clock: Clock) -> None:
    add_reply(catalog, FIRST, reply("vision", OCR))
    catalog.drop_address(FIRST)
    assert "image-to-text" in catalog.view.tasks
    clock.now += 10
    catalog.expire()
    assert not catalog.view.tasks
    assert list_experts(catalog) == []


def test_address_that_never_answered_is_reported(catalog: ExpertCatalog, clock: Clock) -> None:
    catalog.add_address(FIRST)
    catalog.record_failure(FIRST, "does not answer")
    clock.now += 100
    assert catalog.expire() == []
    assert list(expert_entry(catalog, FIRST).problems) == [f"{FIRST} does not answer, for 100 s now"]


@pytest.mark.parametrize(
    "invalid",
    [
        DescribeResponse(models=[OCR]),
        DescribeResponse(unchanged=True),
        *(DescribeResponse(expert=name) for name in (".", "../lite", "a\nb", "x" * 300)),
    ],
)
def test_reply_without_valid_expert_name_raises(catalog: ExpertCatalog, invalid: DescribeResponse) -> None:
    catalog.add_address(FIRST)
    with pytest.raises(CorruptData, match="no valid expert name"):
        catalog.record_reply(FIRST, invalid)


def test_replicas_are_listed_as_one_expert(catalog: ExpertCatalog) -> None:
    loadable = card("ocr", "image-to-text", state=MODEL_STATE_LOADABLE)
    add_reply(catalog, FIRST, reply("vision", loadable))
    add_reply(catalog, SECOND, reply("vision", OCR))
    offers = catalog.view.offers_of("image-to-text")
    assert offers is not None
    (offer,) = offers.offers
    assert offer.card.state == MODEL_STATE_READY
    assert [replica.address for replica in offer.replicas] == [FIRST, SECOND]
    assert list(expert_entry(catalog, "vision").addresses) == [FIRST, SECOND]


def test_unreachable_replica_is_not_offered_while_another_answers(catalog: ExpertCatalog) -> None:
    for address in (FIRST, SECOND):
        add_reply(catalog, address, reply("vision", OCR))
    catalog.record_failure(FIRST, "does not answer")
    offers = catalog.view.offers_of("image-to-text")
    assert offers is not None
    assert [replica.address for replica in offers.offers[0].replicas] == [SECOND]


def test_replicas_with_different_revisions_are_separate_offers(catalog: ExpertCatalog) -> None:
    add_reply(catalog, FIRST, reply("vision", OCR))
    add_reply(catalog, SECOND, reply("vision", card("ocr", "image-to-text", revision="2")))
    offers = catalog.view.offers_of("image-to-text")
    assert offers is not None
    assert [(offer.card.revision, len(offer.replicas)) for offer in offers.offers] == [("1", 1), ("2", 1)]


def test_expert_that_scales_to_zero_becomes_dormant_after_forget_seconds(catalog: ExpertCatalog, clock: Clock) -> None:
    add_reply(catalog, FIRST, reply("vision", OCR, scales_to_zero=True))
    catalog.record_failure(FIRST, "does not answer")
    assert not catalog.view.tasks["image-to-text"].dormant
    clock.now += 10
    catalog.expire()
    assert catalog.view.tasks["image-to-text"].dormant
    assert [model.state for model in catalog.view.models_of("image-to-text")] == [MODEL_STATE_DORMANT]
    entry = expert_entry(catalog, "vision")
    assert entry.dormant
    assert list(entry.addresses) == []
    assert list(entry.problems) == []


def test_expert_that_scales_to_zero_is_dormant_once_its_last_address_is_dropped(catalog: ExpertCatalog) -> None:
    for address in (FIRST, SECOND):
        add_reply(catalog, address, reply("vision", OCR, scales_to_zero=True))
    catalog.drop_address(FIRST)
    assert [offer.state for offer in catalog.view.replica_offers] == [ReplicaState.REACHABLE]
    catalog.drop_address(SECOND)
    assert expert_entry(catalog, "vision").dormant


def test_dormant_expert_that_answers_at_a_new_address_stays_one_expert(catalog: ExpertCatalog) -> None:
    catalog.restore(reply("vision", OCR, scales_to_zero=True))
    assert expert_entry(catalog, "vision").dormant
    add_reply(catalog, SECOND, reply("vision", card("better", "image-to-text"), scales_to_zero=True))
    assert list(expert_entry(catalog, "vision").addresses) == [SECOND]
    assert [model.id for model in catalog.view.models_of("")] == ["better"]


def test_running_expert_is_not_replaced_by_a_restored_description(catalog: ExpertCatalog) -> None:
    add_reply(catalog, FIRST, reply("vision", OCR, scales_to_zero=True))
    catalog.restore(reply("vision", scales_to_zero=True))
    assert not expert_entry(catalog, "vision").dormant


def test_only_known_dormant_expert_can_be_forgotten(catalog: ExpertCatalog) -> None:
    with pytest.raises(NotFound) as missing:
        catalog.forget("vision")
    add_reply(catalog, FIRST, reply("vision", OCR, scales_to_zero=True))
    with pytest.raises(FailedPrecondition) as running:
        catalog.forget("vision")
    assert missing.value.reason == "EXPERT"
    assert running.value.reason == "EXPERT_RUNNING"
    catalog.drop_address(FIRST)
    catalog.forget("vision")
    assert not catalog.view.tasks
    assert list_experts(catalog) == []


def test_load_is_updated_without_a_new_view(catalog: ExpertCatalog) -> None:
    add_reply(catalog, FIRST, reply("vision", OCR))
    before = catalog.view
    load = ExpertLoad(waiting=2, running=1, loaded=["ocr"], free_bytes=7)
    catalog.record_reply(FIRST, DescribeResponse(unchanged=True, load=load))
    assert catalog.view is before
    offers = catalog.view.offers_of("image-to-text")
    assert offers is not None
    endpoint = offers.offers[0].replicas[0].endpoint("ocr")
    assert endpoint.address == FIRST
    assert endpoint.loaded
    assert endpoint.queue == 3
    assert endpoint.free_bytes == 7


def test_revision_depends_on_the_content_only(catalog: ExpertCatalog) -> None:
    add_reply(catalog, FIRST, reply("vision", OCR))
    first = catalog.view
    catalog.record_reply(FIRST, reply("vision", card("ocr", "image-to-text", state=MODEL_STATE_LOADABLE), revision="2"))
    second = catalog.view
    catalog.record_reply(FIRST, reply("vision", OCR, revision="3"))
    assert second.revision != first.revision
    assert second.tasks_digest == first.tasks_digest
    assert catalog.view.revision == first.revision


async def test_watcher_is_notified_of_a_change(catalog: ExpertCatalog) -> None:
    watcher = asyncio.create_task(catalog.wait_for_revision(catalog.view.revision))
    await asyncio.sleep(0)
    assert not watcher.done()
    add_reply(catalog, FIRST, reply("vision", OCR))
    async with asyncio.timeout(10):
        assert await watcher == catalog.view.revision


async def test_watchers_return_when_the_catalogue_closes(catalog: ExpertCatalog) -> None:
    watcher = asyncio.create_task(catalog.wait_for_revision(catalog.view.revision))
    await asyncio.sleep(0)
    catalog.close()
    async with asyncio.timeout(10):
        assert await watcher is None

"""Pipelines are resolved to models and checked before anything starts."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from experts.bulk.pipeline import COLUMNS, Cell, InputName, OutputName, package_of, read_experts, resolve
from experts.bulk.rows import columns_of
from experts.bulk.stage import Placement, split_stages
from experts.host.expert import Expert
from protos.hugginggpt.v1.model_pb2 import MODEL_LOCATION_EXTERNAL, ModelCard
from services.common.errors import FailedPrecondition, InvalidRequest, NotFound
from tests.support.bulk import CLASSIFY


@pytest.fixture(scope="module")
def experts() -> dict[str, Expert]:
    return read_experts(["lite"])


def pipeline(*tasks: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    return {"format": "hugginggpt/pipeline/1", "name": "test", "plan": list(tasks), **fields}


READ = {"id": 1, "task": "image-to-text", "args": {"image": {"input": "page"}}}


def test_unpinned_task_has_the_default_model_at_its_version(experts: dict[str, Expert]) -> None:
    (task,) = resolve(pipeline(READ), experts).tasks
    card = experts["lite"].find("image-to-text", "").card
    assert task.model_name == f"{card.id}@{card.revision}"


def test_inputs_are_those_that_arguments_refer_to(experts: dict[str, Expert]) -> None:
    ask = {
        "id": 1,
        "task": "document-question-answering",
        "args": {"image": {"input": "page"}, "question": {"input": "what"}},
    }
    resolved = resolve(pipeline(ask), experts)
    assert resolved.inputs == {"page": True, "what": True}
    assert resolved.texts == {"what"}


def test_outputs_of_several_final_tasks_are_named_by_task(experts: dict[str, Expert]) -> None:
    names = [output.name for output in resolve(CLASSIFY, experts).outputs]
    assert names == ["task2.labels", "task2.text", "task3.statistics", "task3.text"]


def test_output_named_as_a_column_of_the_table_has_a_prefix(experts: dict[str, Expert]) -> None:
    resolved = resolve(pipeline(READ), experts)
    named = replace(resolved, outputs=(replace(resolved.outputs[0], name="error"),))
    assert "output.error" in columns_of(named, has_files=True)


def test_references_become_names_of_inputs_and_outputs(experts: dict[str, Expert]) -> None:
    first, second, _ = resolve(CLASSIFY, experts).tasks
    assert first.arguments["text"] == (InputName("letter"),)
    assert second.arguments["text"] == (OutputName(1, "text"),)
    assert first.forwarded_outputs == {"text"}


def test_given_value_replaces_an_input(experts: dict[str, Expert]) -> None:
    resolved = resolve(CLASSIFY, experts, values={"letter": "Dear Sir"})
    assert resolved.tasks[0].arguments["text"] == (Cell(text="Dear Sir"),)
    assert resolved.inputs == {}


def test_value_for_an_unknown_input_is_refused(experts: dict[str, Expert]) -> None:
    with pytest.raises(InvalidRequest, match="has no input page") as caught:
        resolve(CLASSIFY, experts, values={"page": "a"})
    assert caught.value.remedy == "its inputs are letter"


def test_version_changes_with_the_plan_only(experts: dict[str, Expert]) -> None:
    parameters = {"id": 1, "task": "text-classification", "args": {"text": {"input": "a"}}, "parameters": {"top_k": 1}}
    assert resolve(CLASSIFY, experts).version == resolve({**CLASSIFY, "description": "other"}, experts).version
    assert (
        resolve(pipeline(parameters), experts).version
        != resolve(pipeline({**parameters, "parameters": {"top_k": 2}}), experts).version
    )


def test_version_changes_with_the_place_of_media_that_there_are(experts: dict[str, Expert]) -> None:
    speech = pipeline({"id": 1, "task": "text-to-speech", "args": {"text": {"input": "a"}}})
    assert resolve(speech, experts, media=COLUMNS).version != resolve(speech, experts).version
    assert resolve(CLASSIFY, experts, media=COLUMNS).version == resolve(CLASSIFY, experts).version


def test_version_changes_with_the_commit_of_a_model(experts: dict[str, Expert]) -> None:
    offers = []
    for offer in experts["lite"].offers:
        card = ModelCard()
        card.CopyFrom(offer.card)
        card.revision = "another"
        offers.append(replace(offer, card=card))
    newer = {"lite": replace(experts["lite"], offers=tuple(offers))}
    assert resolve(CLASSIFY, newer).version != resolve(CLASSIFY, experts).version


def test_task_without_expert_is_not_found(experts: dict[str, Expert]) -> None:
    with pytest.raises(NotFound, match="task 1: lite has no task depth-estimation") as caught:
        resolve(pipeline({"id": 1, "task": "depth-estimation", "args": {"image": {"input": "a"}}}), experts)
    assert "--experts" in caught.value.remedy


def test_other_revision_than_the_pinned_one_is_refused(experts: dict[str, Expert]) -> None:
    with pytest.raises(FailedPrecondition, match="task 1 needs rapidocr at revision 0") as caught:
        resolve(pipeline({**READ, "model": "rapidocr", "revision": "0"}), experts)
    assert caught.value.reason == "REVISION"


def test_external_model_is_refused_under_a_local_policy(experts: dict[str, Expert]) -> None:
    offer = experts["lite"].find("image-to-text", "")
    card = ModelCard()
    card.CopyFrom(offer.card)
    card.location = MODEL_LOCATION_EXTERNAL
    outside = {"lite": replace(experts["lite"], offers=(replace(offer, card=card),))}
    assert resolve(pipeline(READ), outside).tasks
    with pytest.raises(FailedPrecondition) as caught:
        resolve(pipeline(READ, policy="local"), outside)
    assert caught.value.reason == "POLICY"


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ({"id": 1, "task": "image-to-text", "args": {"picture": {"input": "a"}}}, "has no input picture"),
        ({"id": 1, "task": "image-to-text"}, "needs the input image"),
        ({"id": 1, "task": "image-to-text", "args": {"image": {"artifact": {"sha256": "0"}}}}, "is a stored file"),
        ({"id": 1, "task": "image-to-text", "args": {"image": "sign.png"}}, "takes an image, not"),
        ({"id": 1, "task": "text-classification", "args": {"text": {"task_id": 2, "output": "text"}}}, "task 2"),
    ],
)
def test_invalid_argument_is_refused(experts: dict[str, Expert], task: Mapping[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        resolve(pipeline(task), experts)


def test_invalid_parameter_is_refused(experts: dict[str, Expert]) -> None:
    with pytest.raises(InvalidRequest, match="no parameter volume"):
        resolve(pipeline({**READ, "parameters": {"volume": 1}}), experts)


def test_unknown_expert_is_refused() -> None:
    with pytest.raises(FailedPrecondition, match="there is no expert nothing"):
        package_of("nothing")


def test_tasks_placed_alike_share_a_stage(experts: dict[str, Expert]) -> None:
    stages = split_stages(resolve(CLASSIFY, experts), {"lite": Placement(2)})
    assert [task.id for stage in stages for task in stage.tasks] == [1, 2, 3]
    assert len(stages) == 1


def test_outputs_that_a_later_stage_takes_are_exported(experts: dict[str, Expert]) -> None:
    resolved = resolve(CLASSIFY, experts)
    first, *others = resolved.tasks
    split = replace(resolved, tasks=(first, *(replace(task, expert="other") for task in others)))
    before, after = split_stages(split, {"lite": Placement(2), "other": Placement(1, gpus=1)})
    assert before.exported == {1: {"text"}}
    assert after.dependencies == (1,)

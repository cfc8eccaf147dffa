"""Dormant experts that the operator has described in a folder."""

import asyncio
from pathlib import Path

import grpc
import pytest
from google.protobuf import json_format

from experts.host.app import describe
from experts.host.expert import read_expert
from experts.host.settings import Settings
from protos.hugginggpt.internal.v1 import selector_pb2
from protos.hugginggpt.v1 import gateway_pb2
from protos.hugginggpt.v1.expert_pb2 import DescribeResponse
from protos.hugginggpt.v1.model_pb2 import MODEL_STATE_DORMANT, ModelCard
from protos.hugginggpt.v1.task_pb2 import Task
from services.common import errors
from tests.fakes import FakeExpert, card
from tests.support.selector import SelectorUnderTest, StartSelector, selector_starter

OCR = card("ocr", "image-to-text")
MOOD = card("mood", "text-classification")


@pytest.fixture
def descriptions(tmp_path: Path) -> Path:
    """The empty folder."""
    folder = tmp_path / "descriptions"
    folder.mkdir()
    return folder


@pytest.fixture
def start_selector(tmp_path: Path) -> StartSelector:
    return selector_starter(tmp_path)


def write_description(folder: Path, expert: str, *cards: ModelCard, scales_to_zero: bool = True) -> None:
    reply = DescribeResponse(expert=expert, models=cards, scales_to_zero=scales_to_zero)
    folder.mkdir(exist_ok=True)
    temporary = folder / f"{expert}.new"
    temporary.write_text(json_format.MessageToJson(reply))
    temporary.replace(folder / f"{expert}.json")


async def wait_until_dormant(selector: SelectorUnderTest, *models: str) -> None:
    """Waits until the catalogue has exactly these models, all dormant."""

    async def all_dormant() -> bool:
        reply = await selector.stub.ListModels(gateway_pb2.ListModelsRequest(), timeout=5)
        dormant = all(model.state == MODEL_STATE_DORMANT for model in reply.models)
        return dormant and {model.id for model in reply.models} == set(models)

    await selector.until(all_dormant)


async def test_output_of_describe_makes_dormant_expert_plannable(
    start_selector: StartSelector, descriptions: Path
) -> None:
    description = describe(read_expert("experts.lite"), Settings(scales_to_zero=True))
    (descriptions / "lite.json").write_text(description)
    async with start_selector(expert_descriptions=str(descriptions)) as selector:
        assert (await selector.tasks())["text-to-speech"].dormant
        (selected, *_) = (await selector.select(Task(task="text-to-speech"))).candidates
        assert selected.candidate.expert == "lite"
        assert selected.candidate.dormant
        assert not selected.endpoints


async def test_changes_of_the_folder_are_read(start_selector: StartSelector, descriptions: Path) -> None:
    folder = descriptions / "later"
    async with start_selector(expert_descriptions=str(folder)) as selector:
        assert await selector.experts() == {}
        write_description(folder, "vision", OCR)
        await wait_until_dormant(selector, "ocr")
        write_description(folder, "text", MOOD)
        await wait_until_dormant(selector, "ocr", "mood")
        write_description(folder, "vision", card("better", "image-to-text"))
        await wait_until_dormant(selector, "better", "mood")


async def test_description_from_the_expert_replaces_that_of_the_folder(
    start_selector: StartSelector, descriptions: Path
) -> None:
    write_description(descriptions, "vision", OCR)
    running_expert = FakeExpert("vision", [card("better", "image-to-text")], scales_to_zero=True, start_seconds=3)
    async with start_selector(expert_descriptions=str(descriptions), forget_seconds=0) as selector:
        async with running_expert.serving() as address:
            selector.add("vision", address)

            async def is_running() -> bool:
                return not (await selector.experts())["vision"].dormant

            await selector.until(is_running)
        selector.remove("vision")
        await wait_until_dormant(selector, "better")
        write_description(descriptions, "text", MOOD)
        await wait_until_dormant(selector, "better", "mood")
    async with start_selector(expert_descriptions=str(descriptions)) as selector:
        await wait_until_dormant(selector, "better", "mood")


async def test_invalid_description_is_reported_and_the_others_are_read(
    start_selector: StartSelector, descriptions: Path
) -> None:
    write_description(descriptions, "vision", OCR)
    write_description(descriptions, "lite", MOOD, scales_to_zero=False)
    (descriptions / "broken.json").write_text('{"expert": ')
    (descriptions / "nameless.json").write_text("{}")
    (descriptions / "notes.txt").write_text("not read")
    async with start_selector(expert_descriptions=str(descriptions)) as selector:
        assert set(await selector.tasks()) == {"image-to-text"}
        (problem,) = (await selector.experts())[str(descriptions)].problems
        for name in ("broken.json", "nameless.json", "lite.json (lite does not set scales_to_zero)"):
            assert name in problem
        assert "notes.txt" not in problem


async def test_preconfigured_expert_cannot_be_forgotten(start_selector: StartSelector, descriptions: Path) -> None:
    write_description(descriptions, "vision", OCR)
    async with start_selector(expert_descriptions=str(descriptions)) as selector:
        request = selector_pb2.ForgetExpertRequest(name="vision")
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await selector.stub.ForgetExpert(request, timeout=5)
        error = errors.from_rpc(raised.value)
        assert error.reason == "EXPERT_PRECONFIGURED"
        assert "SELECTOR_EXPERT_DESCRIPTIONS" in error.remedy
        (descriptions / "vision.json").unlink()
        async with asyncio.timeout(10):
            while not await is_forgotten(selector, request):
                pass
        assert await selector.experts() == {}


async def is_forgotten(selector: SelectorUnderTest, request: selector_pb2.ForgetExpertRequest) -> bool:
    try:
        await selector.stub.ForgetExpert(request, timeout=5)
    except grpc.aio.AioRpcError:
        return False
    return True

"""Experts that sleep before the selector has ever met them: the operator's folder tells of them."""

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
def asleep(tmp_path: Path) -> Path:
    """The folder, empty."""
    folder = tmp_path / "asleep"
    folder.mkdir()
    return folder


@pytest.fixture
def start_selector(tmp_path: Path) -> StartSelector:
    return selector_starter(tmp_path)


def foretell(folder: Path, expert: str, *cards: ModelCard, scales_to_zero: bool = True) -> None:
    reply = DescribeResponse(expert=expert, models=cards, scales_to_zero=scales_to_zero)
    folder.mkdir(exist_ok=True)
    written = folder / f"{expert}.new"
    written.write_text(json_format.MessageToJson(reply))
    written.replace(folder / f"{expert}.json")


async def foretold(selector: SelectorUnderTest, *models: str) -> None:
    """Waits until these are the models there are, all of them asleep."""

    async def are() -> bool:
        reply = await selector.stub.ListModels(gateway_pb2.ListModelsRequest(), timeout=5)
        dormant = all(model.state == MODEL_STATE_DORMANT for model in reply.models)
        return dormant and {model.id for model in reply.models} == set(models)

    await selector.until(are)


async def test_what_an_expert_prints_of_itself_is_enough_to_plan_with_it(
    start_selector: StartSelector, asleep: Path
) -> None:
    printed = describe(read_expert("experts.lite"), Settings(scales_to_zero=True))
    (asleep / "lite.json").write_text(printed)
    async with start_selector(expert_descriptions=str(asleep)) as selector:
        assert (await selector.tasks())["text-to-speech"].dormant
        (selected, *_) = (await selector.select(Task(task="text-to-speech"))).candidates
        assert selected.candidate.expert == "lite"
        assert selected.candidate.dormant
        assert not selected.endpoints


async def test_the_folder_may_come_later_and_change(start_selector: StartSelector, asleep: Path) -> None:
    later = asleep / "later"
    async with start_selector(expert_descriptions=str(later)) as selector:
        assert await selector.experts() == {}
        foretell(later, "vision", OCR)
        await foretold(selector, "ocr")
        foretell(later, "text", MOOD)
        await foretold(selector, "ocr", "mood")
        foretell(later, "vision", card("better", "image-to-text"))
        await foretold(selector, "better", "mood")


async def test_whoever_was_met_is_known_better_than_the_folder_knows_it(
    start_selector: StartSelector, asleep: Path
) -> None:
    foretell(asleep, "vision", OCR)
    better = FakeExpert("vision", [card("better", "image-to-text")], scales_to_zero=True, start_seconds=3)
    async with start_selector(expert_descriptions=str(asleep), forget_seconds=0) as selector:
        async with better.serving() as address:
            selector.add("vision", address)

            async def awake() -> bool:
                return not (await selector.experts())["vision"].dormant

            await selector.until(awake)
        selector.remove("vision")
        await foretold(selector, "better")
        foretell(asleep, "text", MOOD)
        await foretold(selector, "better", "mood")
    async with start_selector(expert_descriptions=str(asleep)) as selector:
        await foretold(selector, "better", "mood")


async def test_a_file_that_describes_no_sleeper_is_named_and_the_others_count(
    start_selector: StartSelector, asleep: Path
) -> None:
    foretell(asleep, "vision", OCR)
    foretell(asleep, "lite", MOOD, scales_to_zero=False)
    (asleep / "broken.json").write_text('{"expert": ')
    (asleep / "nobody.json").write_text("{}")
    (asleep / "notes.txt").write_text("not looked at")
    async with start_selector(expert_descriptions=str(asleep)) as selector:
        assert set(await selector.tasks()) == {"image-to-text"}
        (problem,) = (await selector.experts())[str(asleep)].problems
        for name in ("broken.json", "nobody.json", "lite.json (lite does not set scales_to_zero)"):
            assert name in problem
        assert "notes.txt" not in problem


async def test_whoever_stands_in_the_folder_cannot_be_forgotten(start_selector: StartSelector, asleep: Path) -> None:
    foretell(asleep, "vision", OCR)
    async with start_selector(expert_descriptions=str(asleep)) as selector:
        request = selector_pb2.ForgetExpertRequest(name="vision")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await selector.stub.ForgetExpert(request, timeout=5)
        refused = errors.from_rpc(caught.value)
        assert refused.reason == "EXPERT_PRECONFIGURED"
        assert "SELECTOR_EXPERT_DESCRIPTIONS" in refused.remedy
        (asleep / "vision.json").unlink()
        async with asyncio.timeout(10):
            while not await forgotten(selector, request):
                pass
        assert await selector.experts() == {}


async def forgotten(selector: SelectorUnderTest, request: selector_pb2.ForgetExpertRequest) -> bool:
    try:
        await selector.stub.ForgetExpert(request, timeout=5)
    except grpc.aio.AioRpcError:
        return False
    return True

"""Experts that are forgotten: by name or address, running or dormant, at every replica of the selector."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest

from gateway.core.catalog import Catalog
from protos.hugginggpt.internal.v1 import selector_pb2
from protos.hugginggpt.internal.v1.selector_pb2_grpc import SelectorServiceStub
from protos.hugginggpt.v1 import gateway_pb2
from services.common import errors
from services.common.channel import connect
from services.selector.dormant_experts import STORE_KIND
from tests.fakes import FakeExpert, card
from tests.support.selector import SelectorUnderTest, StartSelector, selector_starter

OCR = card("ocr", "image-to-text")
MOOD = card("mood", "text-classification")


@pytest.fixture
def start_selector(tmp_path: Path) -> StartSelector:
    return selector_starter(tmp_path)


async def remove_expert(selector: SelectorUnderTest, name: str) -> None:
    await selector.stub.ForgetExpert(selector_pb2.ForgetExpertRequest(name=name), timeout=5)


async def refusal(selector: SelectorUnderTest, name: str) -> errors.ServiceError:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await remove_expert(selector, name)
    return errors.from_rpc(raised.value)


async def until_dormant(selector: SelectorUnderTest, task: str) -> None:
    async def is_dormant() -> bool:
        return (await selector.tasks())[task].dormant

    await selector.until(is_dormant)


def files(tmp_path: Path) -> list[str]:
    return sorted(file.name for file in (tmp_path / "experts").iterdir())


@pytest.mark.parametrize("scales_to_zero", [False, True])
async def test_running_expert_is_not_planned_once_it_is_forgotten(
    start_selector: StartSelector, tmp_path: Path, scales_to_zero: bool
) -> None:
    async with (
        FakeExpert("vision", [OCR], scales_to_zero=scales_to_zero).serving() as address,
        start_selector() as selector,
    ):
        selector.add("anything", address)
        await selector.until_planned("image-to-text")
        await remove_expert(selector, "vision")
        assert await selector.tasks() == {}
        assert await selector.experts() == {}
    assert files(tmp_path) == []


async def test_dormant_expert_is_not_planned_once_it_is_forgotten(
    start_selector: StartSelector, tmp_path: Path
) -> None:
    expert = FakeExpert("vision", [OCR], scales_to_zero=True)
    async with start_selector(forget_seconds=0) as selector:
        async with expert.serving() as address:
            selector.add("anything", address)
            await selector.until_planned("image-to-text")
        await until_dormant(selector, "image-to-text")
        await remove_expert(selector, "vision")
        assert await selector.tasks() == {}
    assert files(tmp_path) == []
    assert list((tmp_path / "artifacts" / f"_{STORE_KIND}").iterdir()) == []


async def test_address_file_named_after_forgotten_dormant_expert_is_deleted(
    start_selector: StartSelector, tmp_path: Path
) -> None:
    async with (
        start_selector(forget_seconds=0) as selector,
        FakeExpert("vision", [OCR], scales_to_zero=True).serving() as address,
    ):
        selector.add("vision@there", address)
        await selector.until_planned("image-to-text")
    async with (
        start_selector() as selector
    ):  # nothing answers at the address, so that only the file connects it with the expert
        await until_dormant(selector, "image-to-text")
        await remove_expert(selector, "vision")
        assert await selector.tasks() == {}
    assert files(tmp_path) == []


async def test_address_file_named_after_forgotten_expert_stays_if_another_answers_there(
    start_selector: StartSelector, tmp_path: Path
) -> None:
    async with (
        FakeExpert("vision", [OCR]).serving() as vision_address,
        FakeExpert("text", [MOOD]).serving() as text_address,
        start_selector() as selector,
    ):
        selector.add("one", vision_address)
        selector.add("vision", text_address)
        await selector.until_planned("image-to-text", "text-classification")
        await remove_expert(selector, "vision")
        assert set(await selector.tasks()) == {"text-classification"}
    assert files(tmp_path) == ["vision.address"]


async def test_address_that_never_answered_is_forgotten(start_selector: StartSelector, tmp_path: Path) -> None:
    async with start_selector() as selector:
        selector.add("silent", "127.0.0.1:9")
        await remove_expert(selector, "127.0.0.1:9")
        assert await selector.experts() == {}
    assert files(tmp_path) == []


async def test_forgotten_address_leaves_the_other_replicas(start_selector: StartSelector) -> None:
    expert = FakeExpert("vision", [OCR], scales_to_zero=True)
    async with expert.serving() as first, expert.serving() as second, start_selector() as selector:
        selector.add("first", first)
        selector.add("second", second)

        async def has_both_addresses() -> bool:
            return len((await selector.experts())["vision"].addresses) == 2

        await selector.until_planned("image-to-text")
        await selector.until(has_both_addresses)
        await remove_expert(selector, first)
        assert list((await selector.experts())["vision"].addresses) == [second]
        await remove_expert(selector, second)
        assert await selector.experts() == {}


async def test_expert_that_also_answers_at_a_configured_address_stays(
    start_selector: StartSelector, tmp_path: Path
) -> None:
    expert = FakeExpert("vision", [OCR])
    async with expert.serving() as fixed, expert.serving() as added, start_selector(experts=fixed) as selector:
        selector.add("added", added)

        async def has_both_addresses() -> bool:
            return len((await selector.experts())["vision"].addresses) == 2

        await selector.until(has_both_addresses)
        error = await refusal(selector, "vision")
        assert error.reason == "EXPERT_RUNNING"
        assert fixed in error.message
        assert files(tmp_path) == ["added.address"]


async def test_configured_address_that_does_not_answer_is_no_longer_called(start_selector: StartSelector) -> None:
    async with start_selector(experts="127.0.0.1:9") as selector:
        assert set(await selector.experts()) == {"127.0.0.1:9"}
        await remove_expert(selector, "127.0.0.1:9")
        assert await selector.experts() == {}


async def test_watchers_are_notified_before_forgetting_returns(start_selector: StartSelector) -> None:
    async with FakeExpert("vision", [OCR]).serving() as address, start_selector() as selector:
        selector.add("vision", address)
        await selector.until_planned("image-to-text")
        watch: Any = selector.stub.WatchCatalogue(selector_pb2.WatchCatalogueRequest(), timeout=10)
        before = (await watch.read()).revision
        forgetting = asyncio.create_task(remove_expert(selector, "vision"))
        after = (await watch.read()).revision
        await forgetting
        now = (await selector.stub.ListTasks(gateway_pb2.ListTasksRequest(), timeout=5)).revision
        assert after == now
        assert after != before
        watch.cancel()


async def test_every_replica_of_the_selector_forgets(start_selector: StartSelector) -> None:
    expert = FakeExpert("vision", [OCR], scales_to_zero=True)
    async with start_selector(forget_seconds=0) as first, start_selector(forget_seconds=0) as second:
        async with expert.serving() as address:
            first.add("vision@there", address)
            for selector in (first, second):
                await selector.until_planned("image-to-text")
        for selector in (first, second):
            await until_dormant(selector, "image-to-text")
        target = f"ipv4:{first.address},{second.address}"
        async with connect(target) as channel:
            await Catalog(SelectorServiceStub(channel), target).remove_expert("vision")
        assert await first.tasks() == {}
        assert await second.tasks() == {}


async def test_expert_unknown_to_every_replica_is_not_found(start_selector: StartSelector) -> None:
    async with start_selector() as first, start_selector() as second:
        target = f"ipv4:{first.address},{second.address}"
        async with connect(target) as channel:
            with pytest.raises(errors.NotFound):
                await Catalog(SelectorServiceStub(channel), target).remove_expert("vision")

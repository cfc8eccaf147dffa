"""Experts that are forgotten: by name or address, awake or dormant, at every replica of the selector."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest

from gateway.catalog import Catalogue
from protos.hugginggpt.internal.v1 import selector_pb2
from protos.hugginggpt.internal.v1.selector_pb2_grpc import SelectorServiceStub
from protos.hugginggpt.v1 import gateway_pb2
from services.common import errors
from services.common.channel import connect
from services.selector.snapshot import KIND
from tests.fakes import FakeExpert, card
from tests.support.selector import Open, Room, selectors

OCR = card("ocr", "image-to-text")
MOOD = card("mood", "text-classification")


@pytest.fixture
def opened(tmp_path: Path) -> Open:
    return selectors(tmp_path)


async def remove_expert(room: Room, name: str) -> None:
    await room.stub.ForgetExpert(selector_pb2.ForgetExpertRequest(name=name), timeout=5)


async def refusal(room: Room, name: str) -> errors.ServiceError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await remove_expert(room, name)
    return errors.from_rpc(caught.value)


async def until_dormant(room: Room, task: str) -> None:
    async def dormant() -> bool:
        return (await room.tasks())[task].dormant

    await room.until(dormant)


def files(tmp_path: Path) -> list[str]:
    return sorted(file.name for file in (tmp_path / "experts").iterdir())


@pytest.mark.parametrize("may_sleep", [False, True])
async def test_expert_that_answers_is_not_planned_once_it_is_forgotten(
    opened: Open, tmp_path: Path, may_sleep: bool
) -> None:
    async with FakeExpert("vision", [OCR], may_sleep=may_sleep).serving() as address, opened() as room:
        room.add("anything", address)
        await room.until_planned("image-to-text")
        await remove_expert(room, "vision")
        assert await room.tasks() == {}
        assert await room.experts() == {}
    assert files(tmp_path) == []


async def test_dormant_expert_is_not_planned_once_it_is_forgotten(opened: Open, tmp_path: Path) -> None:
    expert = FakeExpert("vision", [OCR], may_sleep=True)
    async with opened(forget_seconds=0) as room:
        async with expert.serving() as address:
            room.add("anything", address)
            await room.until_planned("image-to-text")
        await until_dormant(room, "image-to-text")
        await remove_expert(room, "vision")
        assert await room.tasks() == {}
    assert files(tmp_path) == []
    assert list((tmp_path / "artifacts" / f"_{KIND}").iterdir()) == []


async def test_dormant_expert_whose_file_bears_its_name_loses_the_file(opened: Open, tmp_path: Path) -> None:
    async with opened(forget_seconds=0) as room, FakeExpert("vision", [OCR], may_sleep=True).serving() as address:
        room.add("vision@there", address)
        await room.until_planned("image-to-text")
    async with opened() as room:  # nothing answers at the address, so that only the file connects it with the expert
        await until_dormant(room, "image-to-text")
        await remove_expert(room, "vision")
        assert await room.tasks() == {}
    assert files(tmp_path) == []


async def test_file_named_after_an_expert_stays_if_another_answers_there(opened: Open, tmp_path: Path) -> None:
    async with (
        FakeExpert("vision", [OCR]).serving() as here,
        FakeExpert("text", [MOOD]).serving() as there,
        opened() as room,
    ):
        room.add("one", here)
        room.add("vision", there)
        await room.until_planned("image-to-text", "text-classification")
        await remove_expert(room, "vision")
        assert set(await room.tasks()) == {"text-classification"}
    assert files(tmp_path) == ["vision.address"]


async def test_address_that_never_answered_is_forgotten(opened: Open, tmp_path: Path) -> None:
    async with opened() as room:
        room.add("silent", "127.0.0.1:9")
        await remove_expert(room, "127.0.0.1:9")
        assert await room.experts() == {}
    assert files(tmp_path) == []


async def test_forgotten_address_leaves_the_other_replicas(opened: Open) -> None:
    expert = FakeExpert("vision", [OCR], may_sleep=True)
    async with expert.serving() as first, expert.serving() as second, opened() as room:
        room.add("first", first)
        room.add("second", second)

        async def both() -> bool:
            return len((await room.experts())["vision"].addresses) == 2

        await room.until_planned("image-to-text")
        await room.until(both)
        await remove_expert(room, first)
        assert list((await room.experts())["vision"].addresses) == [second]
        await remove_expert(room, second)
        assert await room.experts() == {}


async def test_expert_that_also_answers_at_a_configured_address_stays(opened: Open, tmp_path: Path) -> None:
    expert = FakeExpert("vision", [OCR])
    async with expert.serving() as fixed, expert.serving() as added, opened(experts=fixed) as room:
        room.add("added", added)

        async def both() -> bool:
            return len((await room.experts())["vision"].addresses) == 2

        await room.until(both)
        refused = await refusal(room, "vision")
        assert refused.reason == "AWAKE"
        assert fixed in refused.message
        assert files(tmp_path) == ["added.address"]


async def test_configured_address_that_does_not_answer_is_no_longer_called(opened: Open) -> None:
    async with opened(experts="127.0.0.1:9") as room:
        assert set(await room.experts()) == {"127.0.0.1:9"}
        await remove_expert(room, "127.0.0.1:9")
        assert await room.experts() == {}


async def test_watchers_are_notified_before_forgetting_returns(opened: Open) -> None:
    async with FakeExpert("vision", [OCR]).serving() as address, opened() as room:
        room.add("vision", address)
        await room.until_planned("image-to-text")
        watch: Any = room.stub.WatchCatalogue(selector_pb2.WatchCatalogueRequest(), timeout=10)
        before = (await watch.read()).revision
        forgetting = asyncio.create_task(remove_expert(room, "vision"))
        after = (await watch.read()).revision
        await forgetting
        now = (await room.stub.ListTasks(gateway_pb2.ListTasksRequest(), timeout=5)).revision
        assert after == now
        assert after != before
        watch.cancel()


async def test_every_replica_of_the_selector_forgets(opened: Open) -> None:
    expert = FakeExpert("vision", [OCR], may_sleep=True)
    async with opened(forget_seconds=0) as first, opened(forget_seconds=0) as second:
        async with expert.serving() as address:
            first.add("vision@there", address)
            for room in (first, second):
                await room.until_planned("image-to-text")
        for room in (first, second):
            await until_dormant(room, "image-to-text")
        target = f"ipv4:{first.address},{second.address}"
        async with connect(target) as channel:
            await Catalogue(SelectorServiceStub(channel), target).remove_expert("vision")
        assert await first.tasks() == {}
        assert await second.tasks() == {}


async def test_expert_that_no_replica_knows_is_refused(opened: Open) -> None:
    async with opened() as first, opened() as second:
        target = f"ipv4:{first.address},{second.address}"
        async with connect(target) as channel:
            with pytest.raises(errors.NotFound):
                await Catalogue(SelectorServiceStub(channel), target).remove_expert("vision")

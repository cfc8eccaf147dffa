"""The whole house as containers on a private network: asked through its gateway while parts of it go and come."""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from gateway.client import AsyncHuggingGPT, Event
from tests.containers import CONTAINERS
from tests.containers.deployment import House
from tests.containers.held_runs import PLAN, Held, holding
from tests.system.conftest import ROOT

pytestmark = CONTAINERS

SECONDS = 60.0
SIGN = ROOT / "tests" / "data" / "sign.png"


@pytest.fixture
def held(container_house: House, lite_image: str, tmp_path: Path) -> Iterator[Held]:
    with holding(container_house, lite_image, tmp_path) as held:
        yield held


async def followed(client: AsyncHuggingGPT, run_id: str) -> list[Event]:
    """The events of a run up to its end."""
    return [event async for event in client.watch(run_id)]


async def until(kind: str, client: AsyncHuggingGPT, run_id: str) -> Event:
    async for event in client.watch(run_id):
        if event.kind == kind:
            return event
    raise AssertionError(f"the run ended without {kind}")


def whole(events: Sequence[Event]) -> None:
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert events[-1].body["state"] == "completed"


async def test_it_is_asked_through_its_gateway(container_house: House, lite_image: str) -> None:
    expert = container_house.start.expert(lite_image, "experts.lite")
    expert.ready()
    async with container_house.client() as client:
        container_house.offers("text-to-speech")
        run = await client.ask("Read the text in this image aloud", [SIGN])
    assert run.is_completed, run.failure
    assert [task.task["task"] for task in run.tasks] == ["image-to-text", "text-to-speech"]
    expert.remove()


async def test_the_run_of_an_orchestrator_that_is_killed_is_ended_by_the_other(
    container_house: House, held: Held
) -> None:
    held.more()
    container_house.offers("holding")
    async with container_house.client() as client, asyncio.timeout(SECONDS):
        run = await client.start(plan=PLAN)
        held.begun(1)
        killed = container_house.owner(run.run_id)
        killed.kill()
        await until("taken_over", client, run.run_id)
        assert container_house.owner(run.run_id) != killed
        held.let_go()
        whole(await followed(client, run.run_id))
    killed.start()
    killed.ready()


async def test_streams_go_on_after_a_gateway_was_killed_and_started_again(container_house: House, held: Held) -> None:
    held.more()
    container_house.offers("holding")
    async with container_house.client() as client, asyncio.timeout(SECONDS):
        run = await client.start(plan=PLAN)
        following = asyncio.create_task(followed(client, run.run_id))
        await asyncio.to_thread(held.begun, 1)
        await asyncio.to_thread(container_house.gateway.kill)
        await asyncio.to_thread(container_house.gateway.start)
        held.let_go()
        whole(await following)


async def test_a_task_cut_off_with_its_machine_is_done_again_elsewhere(container_house: House, held: Held) -> None:
    """As on a spot node that is taken away without grace."""
    experts = [held.more(), held.more()]
    container_house.offers("holding")
    async with container_house.client() as client, asyncio.timeout(SECONDS):
        run = await client.start(plan=PLAN)
        (first,) = held.begun(1)
        next(each for each in experts if each.id.startswith(first)).kill()
        _, second = held.begun(2)
        held.let_go()
        ended = await client.wait(run.run_id)
    assert ended.is_completed, ended.failure
    assert second != first
    assert ended.tasks[0].outputs == {"text": f"this by {second}"}

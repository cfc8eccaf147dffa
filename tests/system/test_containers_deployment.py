"""All services as containers on a private network: runs survive killed orchestrators, gateways and experts."""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from gateway.client import AsyncHuggingGPT, Event
from tests.containers import CONTAINERS
from tests.containers.blocking_experts import PLAN, BlockingExperts, blocking_experts
from tests.containers.deployment import Deployment
from tests.system.conftest import ROOT

pytestmark = CONTAINERS

SECONDS = 60.0
SIGN = ROOT / "tests" / "data" / "sign.png"


@pytest.fixture
def experts(container_deployment: Deployment, lite_image: str, tmp_path: Path) -> Iterator[BlockingExperts]:
    with blocking_experts(container_deployment, lite_image, tmp_path) as experts:
        yield experts


async def events_of(client: AsyncHuggingGPT, run_id: str) -> list[Event]:
    """Events of a run until it ends."""
    return [event async for event in client.watch(run_id)]


async def wait_for_event(kind: str, client: AsyncHuggingGPT, run_id: str) -> Event:
    async for event in client.watch(run_id):
        if event.kind == kind:
            return event
    raise AssertionError(f"the run ended without {kind}")


def assert_complete(events: Sequence[Event]) -> None:
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert events[-1].body["state"] == "completed"


async def test_request_completes_through_the_gateway(container_deployment: Deployment, lite_image: str) -> None:
    expert = container_deployment.starter.expert(lite_image, "experts.lite")
    expert.wait_until_ready()
    async with container_deployment.client() as client:
        container_deployment.wait_for_task("text-to-speech")
        run = await client.ask("Read the text in this image aloud", [SIGN])
    assert run.is_completed, run.failure
    assert [task.task["task"] for task in run.tasks] == ["image-to-text", "text-to-speech"]
    expert.remove()


async def test_run_of_killed_orchestrator_is_completed_by_the_other(
    container_deployment: Deployment, experts: BlockingExperts
) -> None:
    experts.start_one()
    container_deployment.wait_for_task("blocking")
    async with container_deployment.client() as client, asyncio.timeout(SECONDS):
        run = await client.start(plan=PLAN)
        experts.wait_for_calls(1)
        killed = container_deployment.owner(run.run_id)
        killed.kill()
        await wait_for_event("taken_over", client, run.run_id)
        assert container_deployment.owner(run.run_id) != killed
        experts.release()
        assert_complete(await events_of(client, run.run_id))
    killed.start()
    killed.wait_until_ready()


async def test_event_stream_resumes_after_gateway_restart(
    container_deployment: Deployment, experts: BlockingExperts
) -> None:
    experts.start_one()
    container_deployment.wait_for_task("blocking")
    async with container_deployment.client() as client, asyncio.timeout(SECONDS):
        run = await client.start(plan=PLAN)
        following = asyncio.create_task(events_of(client, run.run_id))
        await asyncio.to_thread(experts.wait_for_calls, 1)
        await asyncio.to_thread(container_deployment.gateway.kill)
        await asyncio.to_thread(container_deployment.gateway.start)
        experts.release()
        assert_complete(await following)


async def test_task_of_killed_expert_is_retried_on_another(
    container_deployment: Deployment, experts: BlockingExperts
) -> None:
    """A spot node may be removed without a grace period."""
    containers = [experts.start_one(), experts.start_one()]
    container_deployment.wait_for_task("blocking")
    async with container_deployment.client() as client, asyncio.timeout(SECONDS):
        run = await client.start(plan=PLAN)
        (first,) = experts.wait_for_calls(1)
        next(each for each in containers if each.id.startswith(first)).kill()
        _, second = experts.wait_for_calls(2)
        experts.release()
        ended = await client.wait(run.run_id)
    assert ended.is_completed, ended.failure
    assert second != first
    assert ended.tasks[0].outputs == {"text": f"this by {second}"}

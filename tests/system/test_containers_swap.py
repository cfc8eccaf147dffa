"""An expert's container is replaced by a newer version under load."""

import asyncio
from pathlib import Path

import pytest

from tests.containers import CONTAINERS
from tests.containers.deployment import Deployment
from tests.containers.images import REPOSITORY, Builder
from tests.containers.load import load, revisions

pytestmark = CONTAINERS

FILE = Path(__file__).parents[1] / "containers" / "newer.Dockerfile"
REVISION = "newer"
"""Revision of the replaced model in the newer image."""
GRACE_SECONDS = 60


@pytest.fixture(scope="module")
def newer_image(builder: Builder, lite_image: str) -> str:
    return builder.build(f"{REPOSITORY}/expert-lite:newer", FILE, BASE=lite_image)


async def test_no_run_fails_while_an_expert_is_replaced(
    container_deployment: Deployment, lite_image: str, newer_image: str
) -> None:
    old = container_deployment.starter.expert(lite_image, "experts.lite")
    old.wait_until_ready()
    container_deployment.wait_for_task("summarization")
    async with container_deployment.client() as client, load(client) as callers:
        old_revisions = revisions(await callers.next_runs(20))
        assert len(old_revisions) == 1
        assert REVISION not in old_revisions
        new = await asyncio.to_thread(container_deployment.starter.expert, newer_image, "experts.lite")
        await asyncio.to_thread(new.wait_until_ready)
        await asyncio.to_thread(container_deployment.wait_for_task, "summarization", REVISION)
        await asyncio.to_thread(old.stop, GRACE_SECONDS)
        await callers.next_runs(20)
        assert revisions(await callers.next_runs(50)) == {REVISION}
    assert [run.failure for run in callers.runs if not run.is_completed] == []
    old.remove()
    new.remove()

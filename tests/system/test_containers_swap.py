"""An expert's container is swapped for one of a newer version while the house is asked."""

import asyncio
from pathlib import Path

import pytest

from tests.containers import CONTAINERS
from tests.containers.deployment import House
from tests.containers.images import REPOSITORY, Builder
from tests.containers.load import load, revisions

pytestmark = CONTAINERS

FILE = Path(__file__).parents[1] / "containers" / "newer.Dockerfile"
GRACE_SECONDS = 60


@pytest.fixture(scope="module")
def newer_image(builder: Builder, lite_image: str) -> str:
    return builder.build(f"{REPOSITORY}/expert-lite:newer", FILE, BASE=lite_image)


async def test_no_run_fails_while_an_expert_is_swapped_for_a_newer_version(
    container_house: House, lite_image: str, newer_image: str
) -> None:
    old = container_house.start.expert(lite_image, "experts.lite")
    old.ready()
    container_house.offers("summarization")
    async with container_house.client() as client, load(client) as callers:
        assert revisions(await callers.more(20)) == {"1"}
        new = await asyncio.to_thread(container_house.start.expert, newer_image, "experts.lite")
        await asyncio.to_thread(new.ready)
        await asyncio.to_thread(container_house.offers, "summarization", "2")
        await asyncio.to_thread(old.stop, GRACE_SECONDS)
        await callers.more(20)
        assert revisions(await callers.more(50)) == {"2"}
    assert [run.failure for run in callers.runs if not run.is_completed] == []
    old.remove()
    new.remove()

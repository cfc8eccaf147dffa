"""The whole house as containers on a private network: asked through its gateway while parts of it go and come."""

from tests.containers import CONTAINERS
from tests.containers.house import House
from tests.system.conftest import ROOT

pytestmark = CONTAINERS

SIGN = ROOT / "tests" / "data" / "sign.png"


async def test_it_is_asked_through_its_gateway(container_house: House, lite_image: str) -> None:
    expert = container_house.start.expert(lite_image, "experts.lite")
    expert.ready()
    async with container_house.client() as client:
        run = await client.ask("Read the text in this image aloud", [SIGN])
    assert run.is_completed, run.failure
    assert [task.task["task"] for task in run.tasks] == ["image-to-text", "text-to-speech"]
    expert.remove()

"""Experts whose calls block until the test releases them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.containers.container import Container
from tests.containers.deployment import Deployment
from tests.system.conftest import eventually

PLAN = [{"id": 1, "task": "blocking", "arguments": {"text": "this"}}]
_EXPERT = Path(__file__).with_name("blocking_expert")


class BlockingExperts:
    """Starts experts whose calls block until `release`.

    Args:
        deployment: Deployment that the experts join.
        image: An image that contains the expert host.
        folder: Shared with the experts; records started calls.
    """

    def __init__(self, deployment: Deployment, image: str, folder: Path) -> None:
        self._deployment, self._image, self._folder = deployment, image, folder
        folder.chmod(0o777)
        self.containers: list[Container] = []

    def start_one(self) -> Container:
        """Starts one more expert and waits until it is ready."""
        volumes = (f"{_EXPERT}:/own/blocking:ro", f"{self._folder}:/calls")
        expert = self._deployment.starter.expert(self._image, "experts.host", "/own/blocking", volumes=volumes)
        self.containers.append(expert)
        expert.wait_until_ready()
        return expert

    def wait_for_calls(self, count: int) -> list[str]:
        """Waits until `count` calls have started, and returns their host names, oldest first."""
        eventually(lambda: len(self._files()) >= count)
        return [file.read_text() for file in sorted(self._files(), key=lambda file: file.stat().st_mtime)]

    def _files(self) -> list[Path]:
        return list(self._folder.glob("*.started"))

    def release(self) -> None:
        """Releases all blocked calls, and lets later calls return at once."""
        (self._folder / "released").touch()


@contextmanager
def blocking_experts(deployment: Deployment, image: str, folder: Path) -> Iterator[BlockingExperts]:
    """Yields a starter of blocking experts, and removes them at exit."""
    experts = BlockingExperts(deployment, image, folder)
    try:
        yield experts
    finally:
        for container in experts.containers:
            container.remove()

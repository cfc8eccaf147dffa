"""Runs that stand still at an expert until the test lets them go."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.containers.container import Container
from tests.containers.deployment import House
from tests.system.conftest import eventually

PLAN = [{"id": 1, "task": "holding", "arguments": {"text": "this"}}]
_EXPERT = Path(__file__).with_name("holding")


class Held:
    """The experts that hold calls.

    Args:
        house: whose they are.
        image: one with the host of experts.
        folder: for what they say.
    """

    def __init__(self, house: House, image: str, folder: Path) -> None:
        self._house, self._image, self._folder = house, image, folder
        folder.chmod(0o777)
        self.experts: list[Container] = []

    def more(self) -> Container:
        """One more of them, once it serves."""
        volumes = (f"{_EXPERT}:/own/holding:ro", f"{self._folder}:/held")
        expert = self._house.start.expert(self._image, "experts.host", "/own/holding", volumes=volumes)
        self.experts.append(expert)
        expert.ready()
        return expert

    def begun(self, count: int) -> list[str]:
        """The machines where calls have begun, the first first, once it is so many."""
        eventually(lambda: len(self._files()) >= count)
        return [file.read_text() for file in sorted(self._files(), key=lambda file: file.stat().st_mtime)]

    def _files(self) -> list[Path]:
        return list(self._folder.glob("*.begun"))

    def let_go(self) -> None:
        """All of them, those to come too."""
        (self._folder / "open").touch()


@contextmanager
def holding(house: House, image: str, folder: Path) -> Iterator[Held]:
    held = Held(house, image, folder)
    try:
        yield held
    finally:
        for expert in held.experts:
            expert.remove()

"""Files and folders that programs are told of are there: a path is mounted, a key of a ConfigMap has it."""

from collections.abc import Iterator
from pathlib import PurePosixPath

from tests.manifests.deployment import Container, House
from tests.manifests.environment import WITH_WEIGHTS, known_to, programs, told


def files_are_mounted(house: House) -> Iterator[str]:
    for container, module in programs(house):
        for name, path in _paths(house, container, module):
            place = _mount_of(container, path)
            if place is None:
                yield f"{container}: {name} is {path}, where nothing is mounted"
            elif not _has(house, container, place, path):
                yield f"{container}: {name} is {path}, which is in no ConfigMap mounted there"


def _paths(house: House, container: Container, module: str) -> Iterator[tuple[str, PurePosixPath]]:
    read = known_to(module) | {"HUGGINGGPT_HOME"} | ({"HF_HOME"} if module in WITH_WEIGHTS else set())
    for name, value in told(house, container).items():
        if name in read and value.startswith("/"):
            yield name, PurePosixPath(value)


def _mount_of(container: Container, path: PurePosixPath) -> str | None:
    """The deepest place at or above a path where something is mounted."""
    above = [place for place in container.mounts if path.is_relative_to(place)]
    return max(above, key=len, default=None)


def _has(house: House, container: Container, place: str, path: PurePosixPath) -> bool:
    """Only of a ConfigMap in the house is it known what is in it."""
    volume = container.workload.volumes.get(container.mounts[place]["name"], {})
    config = house.named("ConfigMap", volume.get("configMap", {}).get("name", ""))
    return config is None or str(path) == place or str(path.relative_to(place)) in (config.get("data") or {})

"""Files and folders named in settings exist: the path is on a volume, and a mounted ConfigMap has the key."""

from collections.abc import Iterator
from pathlib import PurePosixPath

from tests.manifests.deployment import Container, Manifests
from tests.manifests.environment import PROGRAMS_WITH_MODELS, environment_of, programs, variables_of


def files_are_mounted(manifests: Manifests) -> Iterator[str]:
    for container, module in programs(manifests):
        for name, path in _paths(manifests, container, module):
            mount = _mount_point(container, path)
            if mount is None:
                yield f"{container}: {name} is {path}, where nothing is mounted"
            elif not _contains(manifests, container, mount, path):
                yield f"{container}: {name} is {path}, which is in no ConfigMap mounted there"


def _paths(manifests: Manifests, container: Container, module: str) -> Iterator[tuple[str, PurePosixPath]]:
    read = variables_of(module) | {"HUGGINGGPT_HOME"} | ({"HF_HOME"} if module in PROGRAMS_WITH_MODELS else set())
    for name, value in environment_of(manifests, container).items():
        if name in read and value.startswith("/"):
            yield name, PurePosixPath(value)


def _mount_point(container: Container, path: PurePosixPath) -> str | None:
    """The deepest mount path at or above a path."""
    above = [mount for mount in container.mounts if path.is_relative_to(mount)]
    return max(above, key=len, default=None)


def _contains(manifests: Manifests, container: Container, mount: str, path: PurePosixPath) -> bool:
    """Whether the volume contains the path; assumed for every volume but a ConfigMap of the manifests."""
    volume = container.workload.volumes.get(container.mounts[mount]["name"], {})
    config = manifests.find("ConfigMap", volume.get("configMap", {}).get("name", ""))
    return config is None or str(path) == mount or str(path.relative_to(mount)) in (config.get("data") or {})

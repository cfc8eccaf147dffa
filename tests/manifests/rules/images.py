"""Images have an exact version and contain the module that the container runs."""

import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.manifests.deployment import RAY_JOB, Container, Manifests
from tests.manifests.environment import module_of

_EXACT = re.compile(r".+(:v?\d+\.\d+(\.\d+)?[\w.-]*|@sha256:[0-9a-f]{64})")
_PROJECT = Path(__file__).parents[3] / "pyproject.toml"


@cache
def version() -> str:
    return str(tomllib.loads(_PROJECT.read_text(encoding="utf-8"))["project"]["version"])


def images_are_pinned(manifests: Manifests) -> Iterator[str]:
    for container in manifests.containers:
        if not _EXACT.fullmatch(container.image):
            yield f"{container}: the image {container.image} has no exact version"
        if container.is_ours and not _is_current_version(container.image):
            yield f"{container}: the image {container.image} is not of version {version()}"
        if container.spec.get("imagePullPolicy") == "Always":
            yield f"{container}: imagePullPolicy is Always for an exact version, which needs no repeated pull"


def _is_current_version(image: str) -> bool:
    tag = image.partition("@")[0].rpartition(":")[2]
    return tag in (version(), f"{version()}-cuda") or "@sha256:" in image


_FURTHER_MODULES = {"experts.lite": ("experts.llm",), "bulk": ("experts.bulk",)}
"""Programs of an image that it is not named after."""


def images_contain_the_module(manifests: Manifests) -> Iterator[str]:
    """Not those of a RayJob: KubeRay writes what they run."""
    for container in manifests.containers:
        if container.is_ours and container.workload.kind != RAY_JOB and (wrong := _missing_module(container)):
            yield f"{container}: the image {container.image} has no {wrong}"


def _missing_module(container: Container) -> str:
    name = container.image.partition("@")[0].rpartition("/")[2].partition(":")[0]
    module = module_of(container)
    if module == "services.common.probe":
        return ""
    core = module.startswith(("services.", "gateway"))
    name = name.replace("expert-", "experts.")
    matches = core if name == "core" else module in {name, *_FURTHER_MODULES.get(name, ())}
    return "" if matches else module or "module to run"


def gpu_containers_use_cuda_images(manifests: Manifests) -> Iterator[str]:
    """Jobs are exempt: they download models without a GPU."""
    for workload in manifests.long_running:
        for container in workload.containers:
            if container.is_ours and workload.requests_gpu != container.image.endswith("-cuda"):
                yield f"{container}: runs {container.image} {'with' if workload.requests_gpu else 'without'} GPU"

"""Images are named exactly, and run what they were built for."""

import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.manifests.deployment import Container, House
from tests.manifests.environment import module_of

_EXACT = re.compile(r".+(:v?\d+\.\d+(\.\d+)?[\w.-]*|@sha256:[0-9a-f]{64})")
_PROJECT = Path(__file__).parents[3] / "pyproject.toml"


@cache
def version() -> str:
    return str(tomllib.loads(_PROJECT.read_text(encoding="utf-8"))["project"]["version"])


def images_are_pinned(house: House) -> Iterator[str]:
    for container in house.containers:
        if not _EXACT.fullmatch(container.image):
            yield f"{container}: the image {container.image} names no exact version"
        if container.is_ours and not _is_this(container.image):
            yield f"{container}: the image {container.image} is not of version {version()}"
        if container.spec.get("imagePullPolicy") == "Always":
            yield f"{container}: an exact image need not be pulled again"


def _is_this(image: str) -> bool:
    tag = image.partition("@")[0].rpartition(":")[2]
    return tag in (version(), f"{version()}-cuda") or "@sha256:" in image


def images_run_what_they_hold(house: House) -> Iterator[str]:
    for container in house.containers:
        if container.is_ours and (wrong := _foreign(container)):
            yield f"{container}: the image {container.image} has no {wrong}"


def _foreign(container: Container) -> str:
    name = container.image.partition("@")[0].rpartition("/")[2].partition(":")[0]
    module = module_of(container)
    if module == "services.common.probe":
        return ""
    core = module.startswith(("services.", "gateway"))
    matches = core if name == "core" else module == name.replace("expert-", "experts.")
    return "" if matches else module or "module to run"


def gpus_have_their_images(house: House) -> Iterator[str]:
    """Jobs apart: they fetch what those with a GPU will load."""
    for workload in house.staying:
        for container in workload.containers:
            if container.is_ours and workload.wants_gpu != container.image.endswith("-cuda"):
                yield f"{container}: runs {container.image} {'with' if workload.wants_gpu else 'without'} GPU"

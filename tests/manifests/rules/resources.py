"""Every container says what it needs, and what it may take at most."""

import re
from collections.abc import Iterator
from decimal import Decimal

from tests.manifests.deployment import GPU, Container, House, listed

NEEDED = ("cpu", "memory", "ephemeral-storage")

_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)(m|[kMGT]|[KMGT]i)?")
_UNITS = {"": Decimal(1), "m": Decimal("0.001"), "k": Decimal(1000)}
_UNITS |= {unit: Decimal(1000) ** power for power, unit in enumerate("MGT", start=2)}
_UNITS |= {f"{unit}i": Decimal(1024) ** power for power, unit in enumerate("KMGT", start=1)}


def amount(quantity: object) -> Decimal:
    """A quantity of Kubernetes, as 500m, 2 or 1Gi."""
    found = _QUANTITY.fullmatch(str(quantity))
    if not found:
        raise ValueError(f"no quantity: {quantity}")
    return Decimal(found[1]) * _UNITS[found[2] or ""]


def resources_are_bounded(house: House) -> Iterator[str]:
    for container in house.containers:
        resources = container.spec.get("resources") or {}
        requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
        for name in NEEDED:
            if name not in requests:
                yield f"{container}: requests no {name}"
            if name not in limits:
                yield f"{container}: has no limit of {name}"
            elif amount(requests.get(name, 0)) > amount(limits[name]):
                yield f"{container}: requests more {name} than its limit"
        if requests.get(GPU, limits.get(GPU)) != limits.get(GPU):
            yield f"{container}: its limit of GPUs is not what it requests"


def memory_volumes_are_bounded(house: House) -> Iterator[str]:
    """What is written there is memory of the pod; on disk the limit of ephemeral-storage holds."""
    for workload in house.workloads:
        for name, volume in workload.volumes.items():
            given = volume.get("emptyDir") or {}
            if given.get("medium") == "Memory" and "sizeLimit" not in given:
                yield f"{workload}: {name} is in memory and has no sizeLimit"


def torch_has_shared_memory(house: House) -> Iterator[str]:
    for workload in house.staying:
        for container in workload.lasting:
            if container.image.partition(":")[0].endswith(TORCH):
                yield from _shared_memory(container)


TORCH = tuple(f"hugginggpt/expert-{name}" for name in ("text", "vision", "audio", "video", "diffusion"))
"""Images in which torch is."""


def _shared_memory(container: Container) -> Iterator[str]:
    mount = container.mounts.get("/dev/shm")
    volume = container.workload.volumes.get(mount["name"], {}) if mount else {}
    if (volume.get("emptyDir") or {}).get("medium") != "Memory":
        yield f"{container}: /dev/shm is no emptyDir in memory"


def paths_written_are_volumes(house: House) -> Iterator[str]:
    """The root file system is read-only."""
    for container in house.containers:
        for path in ("/tmp", "/data") if container.is_ours else ():
            if path not in container.mounts or container.mounts[path].get("readOnly"):
                yield f"{container}: nothing writable is mounted at {path}"


def mounts_have_volumes(house: House) -> Iterator[str]:
    for workload in house.workloads:
        mounted = {m["name"] for container in workload.containers for m in listed(container.spec, "volumeMounts")}
        for name in sorted(mounted ^ set(workload.volumes)):
            yield f"{workload}: {name} is {'mounted and no volume' if name in mounted else 'a volume nobody mounts'}"

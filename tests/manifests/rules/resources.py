"""Containers have requests and limits, and the volumes that they write to."""

from collections.abc import Iterator

from tests.manifests.deployment import GPU, Container, Manifests, get_list
from tests.manifests.quantity import amount

NEEDED = ("cpu", "memory", "ephemeral-storage")


def resources_are_bounded(manifests: Manifests) -> Iterator[str]:
    for container in manifests.containers:
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
            yield f"{container}: the limit of GPUs differs from the request"


def memory_volumes_are_bounded(manifests: Manifests) -> Iterator[str]:
    """A volume in memory counts as memory of the pod; on disk, the limit of ephemeral-storage applies."""
    for workload in manifests.workloads:
        for name, volume in workload.volumes.items():
            source = volume.get("emptyDir") or {}
            if source.get("medium") == "Memory" and "sizeLimit" not in source:
                yield f"{workload}: {name} is in memory and has no sizeLimit"


def torch_has_shared_memory(manifests: Manifests) -> Iterator[str]:
    for workload in manifests.long_running:
        for container in workload.main_containers:
            if container.image.partition(":")[0].endswith(TORCH):
                yield from _shared_memory(container)


TORCH = tuple(f"hugginggpt/expert-{name}" for name in ("text", "vision", "audio", "video", "diffusion"))
"""Images that contain torch."""


def _shared_memory(container: Container) -> Iterator[str]:
    mount = container.mounts.get("/dev/shm")
    volume = container.workload.volumes.get(mount["name"], {}) if mount else {}
    if (volume.get("emptyDir") or {}).get("medium") != "Memory":
        yield f"{container}: /dev/shm is no emptyDir in memory"


def written_paths_are_volumes(manifests: Manifests) -> Iterator[str]:
    """The root file system is read-only, so /tmp and /data are volumes."""
    for container in manifests.containers:
        for path in ("/tmp", "/data") if container.is_ours else ():
            if path not in container.mounts or container.mounts[path].get("readOnly"):
                yield f"{container}: nothing writable is mounted at {path}"


def mounts_and_volumes_match(manifests: Manifests) -> Iterator[str]:
    for workload in manifests.workloads:
        mounted = {m["name"] for container in workload.containers for m in get_list(container.spec, "volumeMounts")}
        for name in sorted(mounted ^ set(workload.volumes)):
            problem = "mounted, but no volume" if name in mounted else "a volume that is not mounted"
            yield f"{workload}: {name} is {problem}"

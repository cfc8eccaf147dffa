"""Kubernetes asks every container whether it started, takes calls and lives: by gRPC, on a port without TLS."""

from collections.abc import Iterator

from tests.manifests.deployment import Container, House

HEALTH_PORT = 50052
NAMES = ("startup", "readiness", "liveness")


def containers_are_probed(house: House) -> Iterator[str]:
    for workload in house.staying:
        for container in workload.lasting:
            yield from _by_name(container) if container.is_ours else _somehow(container)


def _by_name(container: Container) -> Iterator[str]:
    for name in NAMES:
        asked = container.spec.get(f"{name}Probe", {}).get("grpc")
        if asked != {"port": HEALTH_PORT, "service": name}:
            yield f"{container}: {name}Probe asks {asked}, not {name} on {HEALTH_PORT} by gRPC"
    if HEALTH_PORT not in container.ports.values():
        yield f"{container}: has no port {HEALTH_PORT}"


def _somehow(container: Container) -> Iterator[str]:
    for name in ("readiness", "liveness"):
        if f"{name}Probe" not in container.spec:
            yield f"{container}: has no {name}Probe"

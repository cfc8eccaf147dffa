"""Every container has startup, readiness and liveness probes; own containers by gRPC on a port without TLS."""

from collections.abc import Iterator

from tests.manifests.deployment import Container, Manifests

HEALTH_PORT = 50052
NAMES = ("startup", "readiness", "liveness")


def containers_have_probes(manifests: Manifests) -> Iterator[str]:
    for workload in manifests.long_running:
        for container in workload.main_containers:
            yield from _has_standard_probes(container) if container.is_ours else _has_probes(container)


def _has_standard_probes(container: Container) -> Iterator[str]:
    for name in NAMES:
        probe = container.spec.get(f"{name}Probe", {}).get("grpc")
        if probe != {"port": HEALTH_PORT, "service": name}:
            yield f"{container}: {name}Probe is {probe}, not gRPC {name} on {HEALTH_PORT}"
    if HEALTH_PORT not in container.ports.values():
        yield f"{container}: has no port {HEALTH_PORT}"


def _has_probes(container: Container) -> Iterator[str]:
    for name in ("readiness", "liveness"):
        if f"{name}Probe" not in container.spec:
            yield f"{container}: has no {name}Probe"

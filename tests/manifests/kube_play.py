"""Runs workloads of rendered manifests with `podman kube play`.

Podman has no Services, so each pod gets their names as network aliases; it has no gRPC probes, so tests query health.
"""

import copy
import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.containers.container import Container
from tests.containers.engine import Network
from tests.containers.images import image_for_tests
from tests.containers.podman import Podman
from tests.manifests.deployment import Document, Manifests, Workload


@dataclass(frozen=True)
class Pod(Container):
    """The only container of a pod, reachable from this machine at the pod's address."""

    ip: str

    def address(self, port: int) -> str:
        return f"{self.ip}:{port}"

    def inspect(self) -> Any:
        """Output of `podman inspect`."""
        return json.loads(self.podman("inspect", self.id))[0]


@contextmanager
def play(podman: Podman, network: Network, manifests: Manifests, folder: Path) -> Iterator[Mapping[str, Pod]]:
    """Starts the project's own workloads, and removes them at exit. Yields pods by workload name.

    Args:
        podman: Runs the pods.
        network: Contains the third-party services already.
        manifests: Their Secrets and ConfigMaps are used unchanged.
        folder: Receives the files for podman.
    """
    with ExitStack() as stack:
        for secret in manifests.of_kind("Secret"):
            stack.enter_context(_podman_secret(podman, secret, folder))
        yield {
            workload.name: stack.enter_context(_play_workload(podman, network, manifests, workload, folder))
            for workload in manifests.long_running
            if workload.is_ours
        }


@contextmanager
def _podman_secret(podman: Podman, secret: Document, folder: Path) -> Iterator[None]:
    """Creates a Secret from its data only: podman of Debian 12 does not read the whole document."""
    name, file = secret["metadata"]["name"], folder / "secret.json"
    file.write_text(json.dumps(secret["data"]))
    if name in podman("secret", "ls", "--format", "{{.Name}}").splitlines():  # left by an aborted test run
        podman("secret", "rm", name)
    podman("secret", "create", name, str(file))
    try:
        yield
    finally:
        podman("secret", "rm", name)


@contextmanager
def _play_workload(
    podman: Podman, network: Network, manifests: Manifests, workload: Workload, folder: Path
) -> Iterator[Pod]:
    file, document = folder / f"{workload.name}.yaml", to_kube_play(workload)
    file.write_text(yaml.safe_dump_all([*manifests.of_kind("ConfigMap"), document]))
    aliases = ",".join(f"alias={name}" for name in service_names(manifests, workload))
    volumes = [volume["name"] for volume in document["spec"]["template"]["spec"]["volumes"]]
    with ExitStack() as stack:
        stack.callback(podman, "volume", "rm", "--force", *volumes)
        stack.callback(podman, "kube", "down", str(file))
        output = podman("kube", "play", "--replace", f"--network={network.name}:{aliases}", str(file))
        pod = _pod(podman, network, output.split()[-1])
        stack.callback(pod.kill)
        yield pod


def to_kube_play(workload: Workload) -> Document:
    """Adapts a workload so that podman can run it next to others on one machine.

    Removes container ports, which would bind ports of the machine; makes volume names unique per pod; replaces
    references to the pod's address by its network alias; and uses the images that tests have built.
    """
    document = copy.deepcopy(workload.document)
    pod = document["spec"]["template"]["spec"]
    names = {volume["name"]: f"{workload.name}-{volume['name']}" for volume in pod["volumes"]}
    for volume in pod["volumes"]:
        volume["name"] = names[volume["name"]]
    for container in pod["containers"]:
        container.pop("ports", None)
        container["image"] = image_for_tests(container["image"])
        for mount in container["volumeMounts"]:
            mount["name"] = names[mount["name"]]
        for entry in container.get("env", []):
            if "fieldRef" in entry.get("valueFrom", {}):
                del entry["valueFrom"]
                entry["value"] = workload.name
    return document


def service_names(manifests: Manifests, workload: Workload) -> list[str]:
    """Names of the Services that select a workload."""
    services = ((service["metadata"]["name"], service["spec"]["selector"]) for service in manifests.of_kind("Service"))
    return [name for name, selector in services if workload in manifests.workloads_matching({"matchLabels": selector})]


def _pod(podman: Podman, network: Network, container: str) -> Pod:
    found = json.loads(podman("inspect", container))[0]
    infra = json.loads(podman("pod", "inspect", found["Pod"]))["InfraContainerID"]
    networks = json.loads(podman("inspect", infra))[0]["NetworkSettings"]["Networks"]
    return Pod(container, podman, networks[network.name]["IPAddress"])

"""Workloads of a rendering as pods of podman: `podman kube play`, which knows of Kubernetes what one node needs.

It has no Services, so each pod bears their names on its network; nor probes by gRPC, so whoever plays asks for health.
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
from tests.containers.images import of_tests
from tests.containers.podman import Podman
from tests.manifests.deployment import Document, House, Workload


@dataclass(frozen=True)
class Pod(Container):
    """The one container of a pod; this machine reaches it at its own address."""

    ip: str

    def address(self, port: int) -> str:
        return f"{self.ip}:{port}"

    def held_to(self) -> Any:
        """As podman inspect says."""
        return json.loads(self.podman("inspect", self.id))[0]


@contextmanager
def played(podman: Podman, network: Network, house: House, folder: Path) -> Iterator[Mapping[str, Pod]]:
    """The house's own workloads, by name; nothing of them is left in the end.

    Args:
        podman: who plays.
        network: where everything that is not ours is already.
        house: its Secrets and ConfigMaps are used as they are.
        folder: for files.
    """
    with ExitStack() as stack:
        for secret in house.of("Secret"):
            stack.enter_context(_kept(podman, secret, folder))
        yield {
            workload.name: stack.enter_context(_played(podman, network, house, workload, folder))
            for workload in house.staying
            if workload.is_ours
        }


@contextmanager
def _kept(podman: Podman, secret: Document, folder: Path) -> Iterator[None]:
    """Podman of Debian 12 takes the data of a Secret, without what is around it."""
    name, file = secret["metadata"]["name"], folder / "secret.json"
    file.write_text(json.dumps(secret["data"]))
    if name in podman("secret", "ls", "--format", "{{.Name}}").splitlines():  # left over by a run that was killed
        podman("secret", "rm", name)
    podman("secret", "create", name, str(file))
    try:
        yield
    finally:
        podman("secret", "rm", name)


@contextmanager
def _played(podman: Podman, network: Network, house: House, workload: Workload, folder: Path) -> Iterator[Pod]:
    file, document = folder / f"{workload.name}.yaml", playable(workload)
    file.write_text(yaml.safe_dump_all([*house.of("ConfigMap"), document]))
    aliases = ",".join(f"alias={name}" for name in names_of(house, workload))
    volumes = [volume["name"] for volume in document["spec"]["template"]["spec"]["volumes"]]
    with ExitStack() as stack:
        stack.callback(podman, "volume", "rm", "--force", *volumes)
        stack.callback(podman, "kube", "down", str(file))
        told = podman("kube", "play", "--replace", f"--network={network.name}:{aliases}", str(file))
        pod = _pod(podman, network, told.split()[-1])
        stack.callback(pod.kill)
        yield pod


def playable(workload: Workload) -> Document:
    """A workload as podman can run it beside others.

    Ports of containers would be taken on the machine, volumes of one name be shared by all pods, and a pod's own
    address is not known: its name on the network stands in. Images are those that tests have built.
    """
    document = copy.deepcopy(workload.document)
    pod = document["spec"]["template"]["spec"]
    names = {volume["name"]: f"{workload.name}-{volume['name']}" for volume in pod["volumes"]}
    for volume in pod["volumes"]:
        volume["name"] = names[volume["name"]]
    for container in pod["containers"]:
        container.pop("ports", None)
        container["image"] = of_tests(container["image"])
        for mount in container["volumeMounts"]:
            mount["name"] = names[mount["name"]]
        for entry in container.get("env", []):
            if "fieldRef" in entry.get("valueFrom", {}):
                del entry["valueFrom"]
                entry["value"] = workload.name
    return document


def names_of(house: House, workload: Workload) -> list[str]:
    """Of the Services that lead to it."""
    services = ((service["metadata"]["name"], service["spec"]["selector"]) for service in house.of("Service"))
    return [name for name, selector in services if workload in house.selected({"matchLabels": selector})]


def _pod(podman: Podman, network: Network, container: str) -> Pod:
    found = json.loads(podman("inspect", container))[0]
    infra = json.loads(podman("pod", "inspect", found["Pod"]))["InfraContainerID"]
    networks = json.loads(podman("inspect", infra))[0]["NetworkSettings"]["Networks"]
    return Pod(container, podman, networks[network.name]["IPAddress"])

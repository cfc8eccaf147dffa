"""What one document names, another one is."""

from collections.abc import Iterator
from typing import Any

from tests.manifests.deployment import EXPERT, Container, Document, House, Workload, called, listed

GIVEN = {
    "hugginggpt-database",
    "hugginggpt-store",
    "hugginggpt-llm",
    "hugginggpt-hub",
    "hugginggpt-tls",
    "database",
    "store-keys",
}
"""Secrets that the operator makes, or has already: the last two in the overlay air-gapped."""


def selectors_match(house: House) -> Iterator[str]:
    for workload in house.staying:
        wanted = workload.spec["selector"]["matchLabels"]
        if not wanted.items() <= workload.labels.items():
            yield f"{workload}: its selector does not match its own pods"
        others = [other for other in house.selected(workload.spec["selector"]) if str(other) != str(workload)]
        yield from (f"{workload}: its selector matches the pods of {other}" for other in others)


def services_reach_pods(house: House) -> Iterator[str]:
    for service in house.of("Service"):
        pods = house.selected({"matchLabels": service["spec"].get("selector") or {"no": "selector"}})
        if not pods:
            yield f"{called(service)}: selects no pods"
        for port in service["spec"]["ports"]:
            yield from (problem for pod in pods if (problem := _wrong_port(service, port, pod)))


def _wrong_port(service: Document, port: Document, pod: Workload) -> str:
    ports = {name: number for container in pod.lasting for name, number in container.ports.items()}
    target = port.get("targetPort", port["port"])
    number = ports.get(target) if isinstance(target, str) else target
    if number not in ports.values():
        return f"{called(service)}: {pod} has no port {target}"
    if service["spec"].get("clusterIP") == "None" and number != port["port"]:
        return f"{called(service)}: without an address of its own, its port {port['port']} is {pod}'s {number}"
    return ""


def services_balance(house: House) -> Iterator[str]:
    """A gRPC channel to one address stays with one pod: services that are called by gRPC show all their pods."""
    for service in house.of("Service"):
        pods = house.selected({"matchLabels": service["spec"].get("selector") or {"no": "selector"}})
        if any(pod.is_ours and pod.name != "gateway" for pod in pods) and service["spec"].get("clusterIP") != "None":
            yield f"{called(service)}: has an address of its own, which a gRPC channel would stay with"


def experts_are_found(house: House) -> Iterator[str]:
    """One name for all experts; one whose models are still loading is described all the same."""
    found = [s for s in house.of("Service") if (s["spec"].get("selector") or {}) == {EXPERT: "true"}]
    if len(found) != 1:
        yield f"Service: {len(found)} select all experts"
    for service in found:
        if service["spec"].get("publishNotReadyAddresses") is not True:
            yield f"{called(service)}: leaves out experts that are not ready"


def scalers_have_targets(house: House) -> Iterator[str]:
    for scaler in house.of("HorizontalPodAutoscaler", "ScaledObject"):
        target = scaler["spec"]["scaleTargetRef"]
        found = house.named(target.get("kind", "Deployment"), target["name"])
        if found is None:
            yield f"{called(scaler)}: there is no {target['name']}"
        elif "replicas" in found["spec"]:
            yield f"{called(scaler)}: {called(found)} says how many replicas it has; each deploy would undo the scaling"


def names_are_known(house: House) -> Iterator[str]:
    """ConfigMaps, Secrets and claims that pods cannot start without."""
    for workload in house.workloads:
        for kind, name in _named(workload):
            if house.named(kind, name) is None and not (kind == "Secret" and name in GIVEN):
                yield f"{workload}: there is no {kind} {name}"


def _named(workload: Workload) -> Iterator[tuple[str, str]]:
    for container in workload.containers:
        yield from _sources(container)
    for volume in listed(workload.pod, "volumes"):
        yield from _held(volume)
    yield from (("Secret", secret["name"]) for secret in listed(workload.pod, "imagePullSecrets"))


def _sources(container: Container) -> Iterator[tuple[str, str]]:
    entries = listed(container.spec, "envFrom") + [
        entry.get("valueFrom", {}) for entry in listed(container.spec, "env")
    ]
    for entry in entries:
        for key, kind in (("configMap", "ConfigMap"), ("secret", "Secret")):
            named = entry.get(f"{key}Ref") or entry.get(f"{key}KeyRef")
            if named and not named.get("optional"):
                yield kind, named["name"]


def _held(volume: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for source in (volume, *listed(volume.get("projected", {}), "sources")):
        for key, kind, label in (
            ("configMap", "ConfigMap", "name"),
            ("secret", "Secret", "secretName"),
            ("secret", "Secret", "name"),
            ("persistentVolumeClaim", "PersistentVolumeClaim", "claimName"),
        ):
            named = source.get(key, {})
            if label in named and not named.get("optional"):
                yield kind, named[label]


def claims_can_be_shared(house: House) -> Iterator[str]:
    """A volume for one node holds all pods of a Deployment there."""
    for claim in house.of("PersistentVolumeClaim"):
        name, modes = claim["metadata"]["name"], claim["spec"].get("accessModes") or []
        users = [workload for workload in house.workloads if ("PersistentVolumeClaim", name) in _named(workload)]
        if "ReadWriteMany" not in modes and any(user.kind == "Deployment" for user in users):
            yield f"{called(claim)}: is for one node: {', '.join(modes)}"


def labels_are_recommended(house: House) -> Iterator[str]:
    for document in house.documents:
        labels = document["metadata"].get("labels") or {}
        if labels.get("app.kubernetes.io/part-of") != "hugginggpt":
            yield f"{called(document)}: is not labelled as part of hugginggpt"
    for workload in house.workloads:
        for name in ("name", "part-of", "component"):
            if f"app.kubernetes.io/{name}" not in workload.labels:
                yield f"{workload}: its pods have no label app.kubernetes.io/{name}"


CLUSTER_WIDE = {"Namespace", "PriorityClass", "ClusterIssuer", "RuntimeClass", "StorageClass", "GatewayClass"}


def all_is_in_one_namespace(house: House) -> Iterator[str]:
    names = {str(n["metadata"]["name"]) for n in house.of("Namespace")}
    for document in house.documents:
        found = document["metadata"].get("namespace")
        if document["kind"] not in CLUSTER_WIDE and {found} != names:
            yield f"{called(document)}: is in the namespace {found}"

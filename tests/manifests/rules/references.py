"""Names, selectors and ports refer to documents that exist."""

from collections.abc import Iterator
from typing import Any

from tests.manifests.deployment import EXPERT, Container, Document, Manifests, Workload, display_name, get_list

OPERATOR_SECRETS = {
    "hugginggpt-database",
    "hugginggpt-store",
    "hugginggpt-llm",
    "hugginggpt-hub",
    "hugginggpt-tls",
    "database",
    "store-keys",
}
"""Secrets that the operator creates; the last two only in the overlay air-gapped."""


def selectors_match_own_pods(manifests: Manifests) -> Iterator[str]:
    for workload in manifests.long_running:
        labels = workload.spec["selector"]["matchLabels"]
        if not labels.items() <= workload.labels.items():
            yield f"{workload}: its selector does not match its own pods"
        others = [
            other for other in manifests.workloads_matching(workload.spec["selector"]) if str(other) != str(workload)
        ]
        yield from (f"{workload}: its selector matches the pods of {other}" for other in others)


def services_select_pods(manifests: Manifests) -> Iterator[str]:
    for service in manifests.of_kind("Service"):
        pods = manifests.workloads_matching({"matchLabels": service["spec"].get("selector") or {"no": "selector"}})
        if not pods:
            yield f"{display_name(service)}: selects no pods"
        for port in service["spec"]["ports"]:
            yield from (problem for pod in pods if (problem := _wrong_port(service, port, pod)))


def _wrong_port(service: Document, port: Document, pod: Workload) -> str:
    ports = {name: number for container in pod.main_containers for name, number in container.ports.items()}
    target = port.get("targetPort", port["port"])
    number = ports.get(target) if isinstance(target, str) else target
    if number not in ports.values():
        return f"{display_name(service)}: {pod} has no port {target}"
    if service["spec"].get("clusterIP") == "None" and number != port["port"]:
        return f"{display_name(service)}: a headless Service cannot map its port {port['port']} to {pod}'s {number}"
    return ""


def grpc_services_are_headless(manifests: Manifests) -> Iterator[str]:
    """A gRPC channel to a cluster IP stays on one pod, so Services for gRPC are headless and list all pods."""
    for service in manifests.of_kind("Service"):
        pods = manifests.workloads_matching({"matchLabels": service["spec"].get("selector") or {"no": "selector"}})
        if any(pod.is_ours and pod.name != "gateway" for pod in pods) and service["spec"].get("clusterIP") != "None":
            yield f"{display_name(service)}: has a cluster IP, which pins a gRPC channel to one pod"


def experts_share_one_service(manifests: Manifests) -> Iterator[str]:
    """One headless Service selects all experts, including those whose models are still loading."""
    found = [s for s in manifests.of_kind("Service") if (s["spec"].get("selector") or {}) == {EXPERT: "true"}]
    if len(found) != 1:
        yield f"Service: {len(found)} of them select all experts"
    for service in found:
        if service["spec"].get("publishNotReadyAddresses") is not True:
            yield f"{display_name(service)}: leaves out experts that are not ready"


def scalers_have_targets(manifests: Manifests) -> Iterator[str]:
    for scaler in manifests.of_kind("HorizontalPodAutoscaler", "ScaledObject"):
        target = scaler["spec"]["scaleTargetRef"]
        found = manifests.find(target.get("kind", "Deployment"), target["name"])
        if found is None:
            yield f"{display_name(scaler)}: there is no {target['name']}"
        elif "replicas" in found["spec"]:
            yield f"{display_name(scaler)}: {display_name(found)} sets replicas, and each deploy would undo the scaling"


def referenced_documents_exist(manifests: Manifests) -> Iterator[str]:
    """ConfigMaps, Secrets and volume claims that pods need to start exist."""
    for workload in manifests.workloads:
        for kind, name in _references(workload):
            if manifests.find(kind, name) is None and not (kind == "Secret" and name in OPERATOR_SECRETS):
                yield f"{workload}: there is no {kind} {name}"


def _references(workload: Workload) -> Iterator[tuple[str, str]]:
    for container in workload.containers:
        yield from _environment_references(container)
    for volume in get_list(workload.pod, "volumes"):
        yield from _volume_references(volume)
    yield from (("Secret", secret["name"]) for secret in get_list(workload.pod, "imagePullSecrets"))


def _environment_references(container: Container) -> Iterator[tuple[str, str]]:
    entries = get_list(container.spec, "envFrom") + [
        entry.get("valueFrom", {}) for entry in get_list(container.spec, "env")
    ]
    for entry in entries:
        for key, kind in (("configMap", "ConfigMap"), ("secret", "Secret")):
            reference = entry.get(f"{key}Ref") or entry.get(f"{key}KeyRef")
            if reference and not reference.get("optional"):
                yield kind, reference["name"]


def _volume_references(volume: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for source in (volume, *get_list(volume.get("projected", {}), "sources")):
        for key, kind, label in (
            ("configMap", "ConfigMap", "name"),
            ("secret", "Secret", "secretName"),
            ("secret", "Secret", "name"),
            ("persistentVolumeClaim", "PersistentVolumeClaim", "claimName"),
        ):
            reference = source.get(key, {})
            if label in reference and not reference.get("optional"):
                yield kind, reference[label]


def claims_can_be_shared(manifests: Manifests) -> Iterator[str]:
    """A Deployment's volume is ReadWriteMany; any other mode ties all pods to one node."""
    for claim in manifests.of_kind("PersistentVolumeClaim"):
        name, modes = claim["metadata"]["name"], claim["spec"].get("accessModes") or []
        users = [
            workload for workload in manifests.workloads if ("PersistentVolumeClaim", name) in _references(workload)
        ]
        if "ReadWriteMany" not in modes and any(user.kind == "Deployment" for user in users):
            yield f"{display_name(claim)}: ties its pods to one node: {', '.join(modes)}"


def recommended_labels_are_set(manifests: Manifests) -> Iterator[str]:
    for document in manifests.documents:
        labels = document["metadata"].get("labels") or {}
        if labels.get("app.kubernetes.io/part-of") != "hugginggpt":
            yield f"{display_name(document)}: has no label app.kubernetes.io/part-of: hugginggpt"
    for workload in manifests.workloads:
        for name in ("name", "part-of", "component"):
            if f"app.kubernetes.io/{name}" not in workload.labels:
                yield f"{workload}: its pods have no label app.kubernetes.io/{name}"


CLUSTER_WIDE = {"Namespace", "PriorityClass", "ClusterIssuer", "RuntimeClass", "StorageClass", "GatewayClass"}


def documents_share_one_namespace(manifests: Manifests) -> Iterator[str]:
    names = {str(n["metadata"]["name"]) for n in manifests.of_kind("Namespace")}
    for document in manifests.documents:
        found = document["metadata"].get("namespace")
        if document["kind"] not in CLUSTER_WIDE and {found} != names:
            yield f"{display_name(document)}: is in the namespace {found}"

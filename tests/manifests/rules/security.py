"""Pods are held to Pod Security's profile "restricted", and to a little more."""

from collections.abc import Iterator

from tests.manifests.deployment import Container, House, Workload, listed

USER = 65532
"""Of our images."""

VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
ENFORCED = "pod-security.kubernetes.io/enforce"


def pods_are_restricted(house: House) -> Iterator[str]:
    for workload in house.workloads:
        context = workload.pod.get("securityContext") or {}
        if context.get("runAsNonRoot") is not True:
            yield f"{workload}: runAsNonRoot is not true"
        if context.get("seccompProfile") != {"type": "RuntimeDefault"}:
            yield f"{workload}: the seccomp profile is not RuntimeDefault"
        if not context.get("runAsUser") or (workload.is_ours and context["runAsUser"] != USER):
            yield f"{workload}: runAsUser is {context.get('runAsUser')}"
        yield from _shares_nothing_with_the_node(workload)


def _shares_nothing_with_the_node(workload: Workload) -> Iterator[str]:
    for name in ("hostNetwork", "hostPID", "hostIPC"):
        if workload.pod.get(name):
            yield f"{workload}: {name}"
    for volume in listed(workload.pod, "volumes"):
        if kinds := set(volume) - {"name"} - VOLUMES:
            yield f"{workload}: the volume {volume['name']} is of {', '.join(kinds)}"


def containers_are_restricted(house: House) -> Iterator[str]:
    for container in house.containers:
        context = container.spec.get("securityContext") or {}
        if context.get("allowPrivilegeEscalation") is not False:
            yield f"{container}: allowPrivilegeEscalation is not false"
        if context.get("capabilities") != {"drop": ["ALL"]}:
            yield f"{container}: capabilities are {context.get('capabilities')}, not all dropped"
        if context.get("readOnlyRootFilesystem") is not True:
            yield f"{container}: readOnlyRootFilesystem is not true"
        yield from _loosens_nothing(container)


def _loosens_nothing(container: Container) -> Iterator[str]:
    context = container.spec.get("securityContext") or {}
    for name in ("privileged", "procMount", "seccompProfile", "runAsUser", "runAsNonRoot"):
        if context.get(name):
            yield f"{container}: sets {name}, which the pod has for all its containers"
    if any("hostPort" in port for port in listed(container.spec, "ports")):
        yield f"{container}: takes a port of the node"


def pods_have_no_token(house: House) -> Iterator[str]:
    """Nobody here asks the API server for anything."""
    for workload in house.workloads:
        account = workload.pod.get("serviceAccountName")
        known = house.named("ServiceAccount", str(account))
        if known is None:
            yield f"{workload}: there is no ServiceAccount {account}"
        elif known.get("automountServiceAccountToken") is not False:
            yield f"ServiceAccount/{account}: automountServiceAccountToken is not false"
        if workload.pod.get("automountServiceAccountToken", False) is not False:
            yield f"{workload}: automountServiceAccountToken is not false"


def nobody_has_rights(house: House) -> Iterator[str]:
    for document in house.of("Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"):
        yield f"{document['kind']}/{document['metadata']['name']}: gives rights that nobody needs"


def namespaces_enforce_it(house: House) -> Iterator[str]:
    for namespace in house.of("Namespace"):
        level = (namespace["metadata"].get("labels") or {}).get(ENFORCED)
        if level != "restricted":
            yield f"Namespace/{namespace['metadata']['name']}: {ENFORCED} is {level}"

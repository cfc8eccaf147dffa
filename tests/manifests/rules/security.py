"""Pods satisfy the Pod Security profile "restricted", mount no API token, and run read-only."""

from collections.abc import Iterator

from tests.manifests.deployment import Container, Manifests, Workload, get_list

USER = 65532
"""User of the project's images."""

VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
ENFORCED = "pod-security.kubernetes.io/enforce"


def pods_are_restricted(manifests: Manifests) -> Iterator[str]:
    for workload in manifests.workloads:
        context = workload.pod.get("securityContext") or {}
        if context.get("runAsNonRoot") is not True:
            yield f"{workload}: runAsNonRoot is not true"
        if context.get("seccompProfile") != {"type": "RuntimeDefault"}:
            yield f"{workload}: the seccomp profile is not RuntimeDefault"
        if not context.get("runAsUser") or (workload.is_ours and context["runAsUser"] != USER):
            yield f"{workload}: runAsUser is {context.get('runAsUser')}"
        yield from _node_access(workload)


def _node_access(workload: Workload) -> Iterator[str]:
    for name in ("hostNetwork", "hostPID", "hostIPC"):
        if workload.pod.get(name):
            yield f"{workload}: {name}"
    for volume in get_list(workload.pod, "volumes"):
        if kinds := set(volume) - {"name"} - VOLUMES:
            yield f"{workload}: the volume {volume['name']} has the type {', '.join(kinds)}"


def containers_are_restricted(manifests: Manifests) -> Iterator[str]:
    for container in manifests.containers:
        context = container.spec.get("securityContext") or {}
        if context.get("allowPrivilegeEscalation") is not False:
            yield f"{container}: allowPrivilegeEscalation is not false"
        if context.get("capabilities") != {"drop": ["ALL"]}:
            yield f"{container}: capabilities are {context.get('capabilities')}, not all dropped"
        if context.get("readOnlyRootFilesystem") is not True:
            yield f"{container}: readOnlyRootFilesystem is not true"
        yield from _container_overrides(container)


def _container_overrides(container: Container) -> Iterator[str]:
    context = container.spec.get("securityContext") or {}
    for name in ("privileged", "procMount", "seccompProfile", "runAsUser", "runAsNonRoot"):
        if context.get(name):
            yield f"{container}: overrides {name}, which the pod sets for all containers"
    if any("hostPort" in port for port in get_list(container.spec, "ports")):
        yield f"{container}: uses a port of the node"


def pods_mount_no_api_token(manifests: Manifests) -> Iterator[str]:
    """No workload calls the API server."""
    for workload in manifests.workloads:
        account = workload.pod.get("serviceAccountName")
        known = manifests.find("ServiceAccount", str(account))
        if known is None:
            yield f"{workload}: there is no ServiceAccount {account}"
        elif known.get("automountServiceAccountToken") is not False:
            yield f"ServiceAccount/{account}: automountServiceAccountToken is not false"
        if workload.pod.get("automountServiceAccountToken", False) is not False:
            yield f"{workload}: automountServiceAccountToken is not false"


def no_rbac_rights_are_granted(manifests: Manifests) -> Iterator[str]:
    for document in manifests.of_kind("Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"):
        yield f"{document['kind']}/{document['metadata']['name']}: grants rights that no workload needs"


def namespaces_enforce_restricted(manifests: Manifests) -> Iterator[str]:
    for namespace in manifests.of_kind("Namespace"):
        level = (namespace["metadata"].get("labels") or {}).get(ENFORCED)
        if level != "restricted":
            yield f"Namespace/{namespace['metadata']['name']}: {ENFORCED} is {level}"

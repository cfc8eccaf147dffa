"""Simulation of the Kubernetes scheduler: which pods of the manifests fit on which nodes."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from tests.manifests.deployment import Container, Document, Manifests, Workload, get_list, matches_expression
from tests.manifests.quantity import amount

Resources = Mapping[str, Decimal]


@dataclass(frozen=True)
class Node:
    """A node, with what pods can request of it.

    Attributes:
        allocatable: quantities by resource, as in the node's status.
    """

    name: str
    allocatable: Mapping[str, str]
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Mapping[str, str]] = ()


@dataclass
class Schedule:
    """Placement of pods on nodes: each pod goes to the preferred node that has room for its requests."""

    nodes: Sequence[Node]
    placed: list[tuple[str, str]] = field(default_factory=list)
    """Workload and node of each pod that runs."""
    pending: list[str] = field(default_factory=list)
    """Workload of each pod for which no node has room."""
    _used: defaultdict[str, dict[str, Decimal]] = field(default_factory=lambda: defaultdict(dict))

    def add(self, workload: Workload, replicas: int = 1) -> None:
        """Places replicas of a workload."""
        for _ in range(replicas):
            requests = pod_requests(workload)
            fitting = [node for node in self.nodes if self._fits(workload.pod, requests, node)]
            if fitting:
                node = max(fitting, key=lambda each: _preference(workload.pod, each))
                used = self._used[node.name]
                used.update({name: used.get(name, Decimal(0)) + value for name, value in requests.items()})
                self.placed.append((workload.name, node.name))
            else:
                self.pending.append(workload.name)

    def nodes_of(self, workload: str) -> list[str]:
        return [node for name, node in self.placed if name == workload]

    def _fits(self, pod: Document, requests: Resources, node: Node) -> bool:
        used = self._used[node.name]
        has_room = all(
            used.get(name, Decimal(0)) + value <= amount(node.allocatable.get(name, 0))
            for name, value in requests.items()
        )
        return has_room and tolerates(pod, node.taints) and fits_node(pod, node.labels)


def schedule(manifests: Manifests, nodes: Sequence[Node], demanded: Sequence[str] = ()) -> Schedule:
    """Places the pods that exist right after an apply, and one of each expert for which there is demand.

    Args:
        manifests: What is applied.
        nodes: Of the cluster.
        demanded: Workloads that KEDA has scaled up from zero.
    """
    result = Schedule(nodes)
    for workload in sorted(manifests.long_running, key=lambda each: _priority(manifests, each), reverse=True):
        result.add(workload, max(replicas(manifests, workload), int(workload.name in demanded)))
    return result


def replicas(manifests: Manifests, workload: Workload) -> int:
    """Replicas without load: the minimum of the workload's scaler, else those that it names."""
    for scaler in manifests.of_kind("HorizontalPodAutoscaler", "ScaledObject"):
        if scaler["spec"]["scaleTargetRef"]["name"] == workload.name:
            least = "minReplicas" if scaler["kind"] == "HorizontalPodAutoscaler" else "minReplicaCount"
            return int(scaler["spec"].get(least, 0))
    return int(workload.spec.get("replicas", 1))


def pod_requests(workload: Workload) -> dict[str, Decimal]:
    """Requests of one pod: the sum of its containers, or more if an init container needs more."""
    total = {"pods": Decimal(1)}
    for container in workload.main_containers:
        for name, value in _requests(container).items():
            total[name] = total.get(name, Decimal(0)) + value
    for container in workload.containers:
        if container.is_init:
            for name, value in _requests(container).items():
                total[name] = max(total.get(name, Decimal(0)), value)
    return total


def _requests(container: Container) -> dict[str, Decimal]:
    """Requests of a container; those of GPUs are their limits."""
    resources = container.spec.get("resources") or {}
    limits = {name: value for name, value in (resources.get("limits") or {}).items() if "/" in name}
    return {name: amount(value) for name, value in (limits | (resources.get("requests") or {})).items()}


def fits_node(pod: Document, labels: Mapping[str, str]) -> bool:
    """Whether a pod's node selector and required affinity accept a node with these labels."""
    selected = all(labels.get(key) == value for key, value in (pod.get("nodeSelector") or {}).items())
    required = _node_affinity(pod).get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms = get_list(required, "nodeSelectorTerms")
    return selected and (not terms or any(_matches(term, labels) for term in terms))


def tolerates(pod: Document, taints: Sequence[Mapping[str, str]]) -> bool:
    """Whether a pod tolerates all taints that keep pods from a node."""
    tolerations = get_list(pod, "tolerations")
    return all(
        any(_tolerates(toleration, taint) for toleration in tolerations)
        for taint in taints
        if taint["effect"] != "PreferNoSchedule"
    )


def _tolerates(toleration: Document, taint: Mapping[str, str]) -> bool:
    is_key = toleration.get("key") in (None, taint["key"])
    is_effect = toleration.get("effect") in (None, taint["effect"])
    is_value = toleration.get("operator") == "Exists" or toleration.get("value") == taint.get("value")
    return is_key and is_effect and is_value


def _preference(pod: Document, node: Node) -> int:
    """Sum of the weights of preferred terms that match a node."""
    preferred = get_list(_node_affinity(pod), "preferredDuringSchedulingIgnoredDuringExecution")
    return sum(int(each["weight"]) for each in preferred if _matches(each["preference"], node.labels))


def _node_affinity(pod: Document) -> Document:
    return dict((pod.get("affinity") or {}).get("nodeAffinity") or {})


def _matches(term: Document, labels: Mapping[str, str]) -> bool:
    return all(matches_expression(expression, labels) for expression in get_list(term, "matchExpressions"))


def _priority(manifests: Manifests, workload: Workload) -> int:
    found = manifests.find("PriorityClass", str(workload.pod.get("priorityClassName"))) or {}
    return int(found.get("value", 0))

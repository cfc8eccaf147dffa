"""Evaluation of NetworkPolicies: which connections they allow."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.manifests.deployment import Document, Manifests, Workload, get_list, selects

EVERYWHERE = "0.0.0.0/0"


@dataclass(frozen=True, order=True)
class Edge:
    """Connection from one workload to a port of another."""

    caller: str
    callee: str
    port: int

    def __str__(self) -> str:
        return f"{self.caller} → {self.callee}:{self.port}"


@dataclass(frozen=True)
class Network:
    """NetworkPolicies of the manifests; the rules of several policies add up, as in Kubernetes."""

    manifests: Manifests

    def edges(self) -> set[Edge]:
        """Connections between pods of the manifests that both egress and ingress rules allow."""
        return {
            Edge(caller.name, callee.name, port)
            for caller in self.manifests.workloads
            for callee in self.manifests.workloads
            for port in ports(callee)
            if self._open("Egress", caller, callee, port) and self._open("Ingress", callee, caller, port)
        }

    def is_isolated(self, direction: str, workload: Workload) -> bool:
        return any(True for _ in self._policies(direction, workload))

    def external_peers(self, direction: str, workload: Workload) -> Iterator[tuple[Document, set[int]]]:
        """External peers, with the ports that are open to them (an empty set: all ports)."""
        for rule in self._rules(direction, workload):
            for peer in _peers(rule, direction):
                if "ipBlock" in peer or "namespaceSelector" in peer or not peer:
                    yield peer, {_number(port, workload) for port in get_list(rule, "ports")}

    def _open(self, direction: str, workload: Workload, other: Workload, port: int) -> bool:
        if not self.is_isolated(direction, workload):
            return True
        owner = other if direction == "Egress" else workload
        return any(
            _has_port(rule, port, owner) and any(self._matches(peer, other) for peer in _peers(rule, direction))
            for rule in self._rules(direction, workload)
        )

    def _matches(self, peer: Document, other: Workload) -> bool:
        if not peer:
            return True
        if "ipBlock" in peer:
            return False  # pod addresses are not stable
        namespace = {"kubernetes.io/metadata.name": str(other.document["metadata"].get("namespace"))}
        same_namespace = "namespaceSelector" not in peer or selects(peer["namespaceSelector"], namespace)
        return same_namespace and selects(peer.get("podSelector") or {}, other.labels)

    def _rules(self, direction: str, workload: Workload) -> Iterator[Document]:
        for policy in self._policies(direction, workload):
            yield from get_list(policy["spec"], direction.lower())

    def _policies(self, direction: str, workload: Workload) -> Iterator[Document]:
        for policy in self.manifests.of_kind("NetworkPolicy"):
            spec: dict[str, Any] = policy["spec"]
            directions = spec.get("policyTypes") or ["Ingress", *(["Egress"] if "egress" in spec else [])]
            if direction in directions and selects(spec.get("podSelector") or {}, workload.labels):
                yield policy


def ports(workload: Workload) -> set[int]:
    """Ports of a workload's containers."""
    return {port for container in workload.main_containers for port in container.ports.values()}


def _peers(rule: Document, direction: str) -> list[Document]:
    """Peers of a rule; a rule without peers allows all, as one empty peer."""
    return get_list(rule, "to" if direction == "Egress" else "from") or [{}]


def _has_port(rule: Document, port: int, owner: Workload) -> bool:
    allowed = get_list(rule, "ports")
    return not allowed or any(
        _number(each, owner) <= port <= each.get("endPort", _number(each, owner)) for each in allowed
    )


def _number(port: Document, owner: Workload) -> int:
    """Number of a port; a name is looked up in the owner's containers, 0 if unknown."""
    if isinstance(port.get("port"), int):
        return int(port["port"])
    return next((c.ports[port["port"]] for c in owner.main_containers if port.get("port") in c.ports), 0)

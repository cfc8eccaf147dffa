"""Who may call whom, as NetworkPolicies have it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.manifests.deployment import Document, House, Workload, listed, selects

EVERYWHERE = "0.0.0.0/0"


@dataclass(frozen=True, order=True)
class Edge:
    """From one workload to a port of another."""

    caller: str
    called: str
    port: int

    def __str__(self) -> str:
        return f"{self.caller} → {self.called}:{self.port}"


@dataclass(frozen=True)
class Network:
    """A house's policies: what one isolates, another may open again."""

    house: House

    def edges(self) -> set[Edge]:
        """All that is open between the house's own pods, in both policies that have a say."""
        return {
            Edge(caller.name, called.name, port)
            for caller in self.house.workloads
            for called in self.house.workloads
            for port in ports(called)
            if self._open("Egress", caller, called, port) and self._open("Ingress", called, caller, port)
        }

    def isolated(self, direction: str, workload: Workload) -> bool:
        return any(True for _ in self._policies(direction, workload))

    def peers_outside(self, direction: str, workload: Workload) -> Iterator[tuple[Document, set[int]]]:
        """Peers that are not pods of the house, with the ports that are open to them (none: all of them)."""
        for rule in self._rules(direction, workload):
            for peer in _peers(rule, direction):
                if "ipBlock" in peer or "namespaceSelector" in peer or not peer:
                    yield peer, {_number(port, workload) for port in listed(rule, "ports")}

    def _open(self, direction: str, workload: Workload, other: Workload, port: int) -> bool:
        if not self.isolated(direction, workload):
            return True
        owner = other if direction == "Egress" else workload
        return any(
            _has_port(rule, port, owner) and any(self._is(peer, other) for peer in _peers(rule, direction))
            for rule in self._rules(direction, workload)
        )

    def _is(self, peer: Document, other: Workload) -> bool:
        if not peer:
            return True
        if "ipBlock" in peer:
            return False  # addresses of pods are no contract
        namespace = {"kubernetes.io/metadata.name": str(other.document["metadata"].get("namespace"))}
        here = "namespaceSelector" not in peer or selects(peer["namespaceSelector"], namespace)
        return here and selects(peer.get("podSelector") or {}, other.labels)

    def _rules(self, direction: str, workload: Workload) -> Iterator[Document]:
        for policy in self._policies(direction, workload):
            yield from listed(policy["spec"], direction.lower())

    def _policies(self, direction: str, workload: Workload) -> Iterator[Document]:
        for policy in self.house.of("NetworkPolicy"):
            spec: dict[str, Any] = policy["spec"]
            about = spec.get("policyTypes") or ["Ingress", *(["Egress"] if "egress" in spec else [])]
            if direction in about and selects(spec.get("podSelector") or {}, workload.labels):
                yield policy


def ports(workload: Workload) -> set[int]:
    """What its containers listen on."""
    return {port for container in workload.lasting for port in container.ports.values()}


def _peers(rule: Document, direction: str) -> list[Document]:
    """None named is anyone: an empty peer."""
    return listed(rule, "to" if direction == "Egress" else "from") or [{}]


def _has_port(rule: Document, port: int, owner: Workload) -> bool:
    named = listed(rule, "ports")
    return not named or any(_number(each, owner) <= port <= each.get("endPort", _number(each, owner)) for each in named)


def _number(port: Document, owner: Workload) -> int:
    """Of a port that may be named as the owner's containers name it; 0 if they do not."""
    if isinstance(port.get("port"), int):
        return int(port["port"])
    return next((c.ports[port["port"]] for c in owner.lasting if port.get("port") in c.ports), 0)

"""Who may call whom in the sound house."""

from tests.manifests.deployment import Document
from tests.manifests.parts.documents import document

PRIVATE = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16", "168.63.129.16/32", "100.64.0.0/10"]


def policies() -> list[Document]:
    both = ["Ingress", "Egress"]
    everyone = {"ingress": [_metrics()], "egress": [_dns()], "policyTypes": both, "podSelector": {}}
    doors = {"ports": [{"protocol": "TCP", "port": port} for port in (8080, 50051)]}
    block = {"ipBlock": {"cidr": "0.0.0.0/0", "except": PRIVATE}}
    abroad = {"to": [block], "ports": [{"protocol": "TCP", "port": 443}]}
    return [
        _policy("deny-all", {"podSelector": {}, "policyTypes": both}),
        _policy("everyone", everyone),
        _policy("gateway-is-called", {"podSelector": _is("gateway"), "ingress": [doors]}),
        _calls("gateway", ["orchestrator", "selector"], abroad),
        _calls("orchestrator", ["orchestrator", "planner", "selector", "responder", "expert-text"]),
        _calls("planner", ["selector"]),
        _calls("selector", ["expert-text"]),
        _policy("proxy", _proxied()),
        *(_called(name, callers) for name, callers in _CALLERS.items()),
    ]


_CALLERS = {
    "orchestrator": ["gateway", "orchestrator"],
    "planner": ["orchestrator"],
    "selector": ["gateway", "orchestrator", "planner"],
    "responder": ["orchestrator"],
    "expert-text": ["orchestrator", "selector"],
}


def _calls(name: str, others: list[str], *more: Document) -> Document:
    opened = [{"to": _pods(others), "ports": [{"protocol": "TCP", "port": "grpc"}]}, *more]
    return _policy(f"{name}-calls", {"podSelector": _is(name), "policyTypes": ["Egress"], "egress": opened})


def _proxied() -> Document:
    doors = {"to": _pods(["gateway"]), "ports": [{"port": port} for port in (8080, 50051)]}
    return {
        "podSelector": {"matchLabels": {"gateway.networking.k8s.io/gateway-name": "house"}},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{}],
        "egress": [doors],
    }


def _called(name: str, callers: list[str]) -> Document:
    opened = {"from": _pods(callers), "ports": [{"protocol": "TCP", "port": 50051}]}
    return _policy(f"{name}-is-called", {"podSelector": _is(name), "policyTypes": ["Ingress"], "ingress": [opened]})


def _policy(name: str, spec: Document) -> Document:
    return document("networking.k8s.io/v1", "NetworkPolicy", name, spec=spec)


def _pods(names: list[str]) -> list[Document]:
    return [{"podSelector": _is(name)} for name in names]


def _is(name: str) -> Document:
    return {"matchLabels": {"app.kubernetes.io/name": name}}


def _metrics() -> Document:
    monitoring = {"namespaceSelector": {}, "podSelector": {"matchLabels": {"app.kubernetes.io/name": "prometheus"}}}
    return {"from": [monitoring], "ports": [{"protocol": "TCP", "port": "metrics"}]}


def _dns() -> Document:
    system = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}}
    return {"to": [system], "ports": [{"protocol": kind, "port": 53} for kind in ("UDP", "TCP")]}

"""NetworkPolicies of the valid manifests."""

from tests.manifests.deployment import Document
from tests.manifests.parts.documents import document

PRIVATE = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16", "168.63.129.16/32", "100.64.0.0/10"]


def policies() -> list[Document]:
    both = ["Ingress", "Egress"]
    all_pods = {"ingress": [_metrics()], "egress": [_dns()], "policyTypes": both, "podSelector": {}}
    endpoints = {"ports": [{"protocol": "TCP", "port": port} for port in (8080, 50051)]}
    block = {"ipBlock": {"cidr": "0.0.0.0/0", "except": PRIVATE}}
    external = {"to": [block], "ports": [{"protocol": "TCP", "port": 443}]}
    return [
        _policy("deny-all", {"podSelector": {}, "policyTypes": both}),
        _policy("all-pods", all_pods),
        _policy("gateway-ingress", {"podSelector": _labels("gateway"), "ingress": [endpoints]}),
        _egress_policy("gateway", ["orchestrator", "selector"], external),
        _egress_policy("orchestrator", ["orchestrator", "planner", "selector", "responder", "expert-text"]),
        _egress_policy("planner", ["selector"]),
        _egress_policy("selector", ["expert-text"]),
        _policy("proxy", _proxy_policy()),
        *(_ingress_policy(name, callers) for name, callers in _CALLERS.items()),
    ]


_CALLERS = {
    "orchestrator": ["gateway", "orchestrator"],
    "planner": ["orchestrator"],
    "selector": ["gateway", "orchestrator", "planner"],
    "responder": ["orchestrator"],
    "expert-text": ["orchestrator", "selector"],
}


def _egress_policy(name: str, others: list[str], *more: Document) -> Document:
    rules = [{"to": _pods(others), "ports": [{"protocol": "TCP", "port": "grpc"}]}, *more]
    return _policy(f"{name}-egress", {"podSelector": _labels(name), "policyTypes": ["Egress"], "egress": rules})


def _proxy_policy() -> Document:
    endpoints = {"to": _pods(["gateway"]), "ports": [{"port": port} for port in (8080, 50051)]}
    return {
        "podSelector": {"matchLabels": {"gateway.networking.k8s.io/gateway-name": "hugginggpt"}},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{}],
        "egress": [endpoints],
    }


def _ingress_policy(name: str, callers: list[str]) -> Document:
    rule = {"from": _pods(callers), "ports": [{"protocol": "TCP", "port": 50051}]}
    return _policy(f"{name}-ingress", {"podSelector": _labels(name), "policyTypes": ["Ingress"], "ingress": [rule]})


def _policy(name: str, spec: Document) -> Document:
    return document("networking.k8s.io/v1", "NetworkPolicy", name, spec=spec)


def _pods(names: list[str]) -> list[Document]:
    return [{"podSelector": _labels(name)} for name in names]


def _labels(name: str) -> Document:
    return {"matchLabels": {"app.kubernetes.io/name": name}}


def _metrics() -> Document:
    monitoring = {"namespaceSelector": {}, "podSelector": {"matchLabels": {"app.kubernetes.io/name": "prometheus"}}}
    return {"from": [monitoring], "ports": [{"protocol": "TCP", "port": "metrics"}]}


def _dns() -> Document:
    system = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}}
    return {"to": [system], "ports": [{"protocol": kind, "port": 53} for kind in ("UDP", "TCP")]}

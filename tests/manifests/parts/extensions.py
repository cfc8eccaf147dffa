"""Scalers, routes, monitors and certificates of the valid manifests."""

from tests.manifests.deployment import Document
from tests.manifests.parts.documents import document


def extensions() -> list[Document]:
    return [_scaled_object("expert-text"), _gateway(), _route(), _monitor(), _certificate()]


def _scaled_object(name: str) -> Document:
    query = f'sum(expert_queue_depth{{expert="{name.removeprefix("expert-")}"}})'
    trigger = {"serverAddress": "http://prometheus.monitoring:9090", "query": query, "threshold": "5"}
    return document(
        "keda.sh/v1alpha1",
        "ScaledObject",
        name,
        spec={
            "scaleTargetRef": {"name": name},
            "minReplicaCount": 0,
            "maxReplicaCount": 4,
            "fallback": {"failureThreshold": 3, "replicas": 1, "behavior": "currentReplicasIfHigher"},
            "triggers": [{"type": "prometheus", "metadata": trigger}],
        },
    )


def _gateway() -> Document:
    listener = {
        "name": "http",
        "hostname": "hugginggpt.example.org",
        "port": 443,
        "protocol": "HTTPS",
        "tls": {"certificateRefs": [{"name": "hugginggpt-gateway-tls"}]},
    }
    spec = {"gatewayClassName": "external", "listeners": [listener]}
    return document("gateway.networking.k8s.io/v1", "Gateway", "hugginggpt", spec=spec)


def _route() -> Document:
    spec = {
        "parentRefs": [{"name": "hugginggpt", "sectionName": "http"}],
        "hostnames": ["hugginggpt.example.org"],
        "rules": [{"backendRefs": [{"name": "gateway", "port": 8080}]}],
    }
    return document("gateway.networking.k8s.io/v1", "HTTPRoute", "gateway", spec=spec)


def _monitor() -> Document:
    selector = {"matchLabels": {"app.kubernetes.io/part-of": "hugginggpt"}}
    spec = {"selector": selector, "podMetricsEndpoints": [{"port": "metrics", "interval": "5s"}]}
    return document("monitoring.coreos.com/v1", "PodMonitor", "hugginggpt", spec=spec)


def _certificate() -> Document:
    spec = {
        "secretName": "hugginggpt-tls",
        "dnsNames": ["hugginggpt"],
        "duration": "2160h",
        "issuerRef": {"name": "hugginggpt", "kind": "Issuer"},
    }
    return document("cert-manager.io/v1", "Certificate", "hugginggpt", spec=spec)

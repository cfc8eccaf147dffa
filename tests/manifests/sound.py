"""A small house that no rule complains of, and the same with something spoilt."""

import copy
from typing import Any, Final

from tests.manifests.house import Document, House
from tests.manifests.rules.images import version

GONE: Final = object()
"""Spoils by taking away."""

NAMESPACE = "hugginggpt"
PRIVATE = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16", "100.64.0.0/10"]


def sound() -> House:
    return House(
        (
            _document("v1", "Namespace", NAMESPACE, labels={"pod-security.kubernetes.io/enforce": "restricted"}),
            _document("scheduling.k8s.io/v1", "PriorityClass", "serving", value=1000),
            _document("v1", "ConfigMap", "hugginggpt", data={"LOG_FORMAT": "json", "AWS_REGION": "us-east-1"}),
            *_served("gateway", "gateway", env={"GATEWAY_ORCHESTRATOR": "dns:///orchestrator:50051"}),
            *_served("orchestrator", "services.orchestrator", env={"ORCHESTRATOR_ADDRESS": "$(POD_IP):50051"}),
            *_served("planner", "services.planner"),
            *_served("selector", "services.selector", env={"SELECTOR_EXPERTS": "dns:///experts:50051"}),
            *_served("responder", "services.responder"),
            *_served("expert-text", "experts.text", env={"DRAIN_SECONDS": "300", "EXPERT_MAY_SLEEP": "true"}),
            _experts(),
            _scaled("expert-text"),
            *_policies(),
        )
    )


def spoilt(name: str, path: str, value: Any) -> House:
    """The sound house with one thing changed, or GONE.

    Args:
        name: of the document, as Deployment/planner.
        path: of the thing in it, as spec.template.spec.containers.0.image; a slash before a dot is part of a name.
        value: what stands there instead.
    """
    documents = copy.deepcopy(list(sound().documents))
    kind, _, called = name.partition("/")
    document = next(d for d in documents if d["kind"] == kind and d["metadata"]["name"] == called)
    *way, last = (int(part) if part.isdigit() else part.replace("~", ".") for part in path.split("."))
    place: Any = document
    for part in way:
        place = place[part]
    if value is GONE:
        del place[last]
    elif isinstance(place, list) and last == len(place):
        place.append(value)
    else:
        place[last] = value
    return House(tuple(documents))


def _document(api: str, kind: str, name: str, labels: dict[str, str] | None = None, **rest: Any) -> Document:
    labels = {"app.kubernetes.io/part-of": "hugginggpt"} | (labels or {})
    metadata = {"name": name, "labels": labels}
    if kind not in {"Namespace", "PriorityClass"}:
        metadata["namespace"] = NAMESPACE
    return {"apiVersion": api, "kind": kind, "metadata": metadata, **rest}


def _served(name: str, module: str, env: dict[str, str] | None = None) -> list[Document]:
    """A workload with all that belongs to it."""
    selector = {"app.kubernetes.io/name": name}
    ports = [50051, 8080] if name == "gateway" else [50051]
    return [
        _document("v1", "ServiceAccount", name, automountServiceAccountToken=False),
        _deployment(name, module, env or {}),
        _service(name, selector, ports),
        _document(
            "policy/v1",
            "PodDisruptionBudget",
            name,
            spec={"maxUnavailable": 1, "selector": {"matchLabels": selector}},
        ),
    ]


def _service(name: str, selector: dict[str, str], ports: list[int]) -> Document:
    listed = [{"name": f"port-{port}", "port": port} for port in ports]
    return _document("v1", "Service", name, spec={"clusterIP": "None", "selector": selector, "ports": listed})


def _experts() -> Document:
    service = _service("experts", {"hugginggpt.dev/expert": "true"}, [50051])
    service["spec"]["publishNotReadyAddresses"] = True
    return service


def _deployment(name: str, module: str, env: dict[str, str]) -> Document:
    gpu = name.startswith("expert-")
    labels = {f"app.kubernetes.io/{key}": value for key, value in {"name": name, "part-of": NAMESPACE}.items()}
    labels |= {"app.kubernetes.io/component": "expert", "hugginggpt.dev/expert": "true"} if gpu else {}
    labels |= {"app.kubernetes.io/component": name} if not gpu else {}
    rolling = {"maxSurge": 0, "maxUnavailable": 1} if gpu else {"maxSurge": 1, "maxUnavailable": 0}
    return _document(
        "apps/v1",
        "Deployment",
        name,
        spec={
            "strategy": {"type": "RollingUpdate", "rollingUpdate": rolling},
            "selector": {"matchLabels": {"app.kubernetes.io/name": name}},
            "template": {"metadata": {"labels": labels}, "spec": _pod(name, module, env, gpu=gpu)},
        },
    )


def _pod(name: str, module: str, env: dict[str, str], *, gpu: bool) -> Document:
    pod: Document = {
        "serviceAccountName": name,
        "automountServiceAccountToken": False,
        "priorityClassName": "serving",
        "terminationGracePeriodSeconds": 320,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {"app.kubernetes.io/name": name}},
            }
        ],
        "containers": [_container(name, module, env, gpu=gpu)],
        "volumes": [{"name": each, "emptyDir": {"sizeLimit": "1Gi"}} for each in ("tmp", "data")],
    }
    if gpu:
        pod["volumes"].append({"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}})
        pod["runtimeClassName"] = "nvidia"
        pod["nodeSelector"] = {"hugginggpt.dev/pool": "small"}
        pod["tolerations"] = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    return pod


def _container(name: str, module: str, env: dict[str, str], *, gpu: bool) -> Document:
    image = f"hugginggpt/{name}:{version()}-cuda" if gpu else f"hugginggpt/core:{version()}"
    limits = {"cpu": "2", "memory": "2Gi", "ephemeral-storage": "2Gi"} | ({"nvidia.com/gpu": 1} if gpu else {})
    mounts = {"tmp": "/tmp", "data": "/data"} | ({"shm": "/dev/shm"} if gpu else {})
    ports = {"grpc": 50051, "health": 50052, "metrics": 9464} | ({"http": 8080} if name == "gateway" else {})
    return {
        "name": "server",
        "image": image,
        "args": [module],
        "envFrom": [{"configMapRef": {"name": "hugginggpt"}}],
        "env": [*_own(env), *({"name": key, "value": value} for key, value in env.items())],
        "ports": [{"name": key, "containerPort": port} for key, port in ports.items()],
        "resources": {"requests": {"cpu": "100m", "memory": "1Gi", "ephemeral-storage": "1Gi"}, "limits": limits},
        "volumeMounts": [{"name": key, "mountPath": path} for key, path in mounts.items()],
        "lifecycle": {"preStop": {"sleep": {"seconds": 5}}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        **{
            f"{probe}Probe": {"grpc": {"port": 50052, "service": probe}}
            for probe in ("startup", "readiness", "liveness")
        },
    }


def _own(env: dict[str, str]) -> list[Document]:
    """What a pod knows of itself, where it is spoken of."""
    used = any("$(POD_IP)" in value for value in env.values())
    return [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}] if used else []


def _scaled(name: str) -> Document:
    query = f'sum(expert_queue_depth{{expert="{name.removeprefix("expert-")}"}})'
    trigger = {"serverAddress": "http://prometheus.monitoring:9090", "query": query, "threshold": "5"}
    return _document(
        "keda.sh/v1alpha1",
        "ScaledObject",
        name,
        spec={
            "scaleTargetRef": {"name": name},
            "minReplicaCount": 0,
            "maxReplicaCount": 4,
            "fallback": {"failureThreshold": 3, "replicas": 1},
            "triggers": [{"type": "prometheus", "metadata": trigger}],
        },
    )


def _policies() -> list[Document]:
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


def _called(name: str, callers: list[str]) -> Document:
    opened = {"from": _pods(callers), "ports": [{"protocol": "TCP", "port": 50051}]}
    return _policy(f"{name}-is-called", {"podSelector": _is(name), "policyTypes": ["Ingress"], "ingress": [opened]})


def _policy(name: str, spec: Document) -> Document:
    return _document("networking.k8s.io/v1", "NetworkPolicy", name, spec=spec)


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

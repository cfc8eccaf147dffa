"""Workloads of the valid manifests, each with ServiceAccount, Service and PodDisruptionBudget."""

from tests.manifests.deployment import Document
from tests.manifests.parts.documents import NAMESPACE, document
from tests.manifests.rules.images import version


def server(name: str, module: str, env: dict[str, str] | None = None) -> list[Document]:
    """A Deployment with its ServiceAccount, Service and PodDisruptionBudget."""
    selector = {"app.kubernetes.io/name": name}
    ports = [50051, 8080] if name == "gateway" else [50051]
    return [
        document("v1", "ServiceAccount", name, automountServiceAccountToken=False),
        _deployment(name, module, env or {}),
        _service(name, selector, ports),
        document(
            "policy/v1",
            "PodDisruptionBudget",
            name,
            spec={"maxUnavailable": 1, "selector": {"matchLabels": selector}},
        ),
    ]


def _service(name: str, selector: dict[str, str], ports: list[int]) -> Document:
    service_ports = [{"name": f"port-{port}", "port": port} for port in ports]
    return document("v1", "Service", name, spec={"clusterIP": "None", "selector": selector, "ports": service_ports})


def experts() -> Document:
    service = _service("experts", {"hugginggpt.dev/expert": "true"}, [50051])
    service["spec"]["publishNotReadyAddresses"] = True
    return service


def _deployment(name: str, module: str, env: dict[str, str]) -> Document:
    gpu = name.startswith("expert-")
    labels = {f"app.kubernetes.io/{key}": value for key, value in {"name": name, "part-of": NAMESPACE}.items()}
    labels |= {"app.kubernetes.io/component": "expert", "hugginggpt.dev/expert": "true"} if gpu else {}
    labels |= {"app.kubernetes.io/component": name} if not gpu else {}
    rolling = {"maxSurge": 0, "maxUnavailable": 1} if gpu else {"maxSurge": 1, "maxUnavailable": 0}
    return document(
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
        "enableServiceLinks": False,
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
        pod["affinity"] = {"nodeAffinity": {}}
        pod["tolerations"] = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
        pod["volumes"].append({"name": "models", "persistentVolumeClaim": {"claimName": "models"}})
    pod["volumes"].append({"name": "tls", "secret": {"secretName": "hugginggpt-tls"}})
    return pod


def _container(name: str, module: str, env: dict[str, str], *, gpu: bool) -> Document:
    image = f"hugginggpt/{name}:{version()}-cuda" if gpu else f"hugginggpt/core:{version()}"
    limits = {"cpu": "2", "memory": "2Gi", "ephemeral-storage": "2Gi"} | ({"nvidia.com/gpu": 1} if gpu else {})
    mounts = {"tmp": "/tmp", "data": "/data", "tls": "/tls"}
    mounts |= {"shm": "/dev/shm", "models": "/models"} if gpu else {}
    ports = {"grpc": 50051, "health": 50052, "metrics": 9464} | ({"http": 8080} if name == "gateway" else {})
    return {
        "name": "server",
        "image": image,
        "args": [module],
        "envFrom": [{"configMapRef": {"name": "hugginggpt"}}, {"secretRef": {"name": "hugginggpt-store"}}],
        "env": [*_pod_ip_variable(env), *({"name": key, "value": value} for key, value in (env | _TLS).items())],
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


_TLS = {"TLS_CERTIFICATE": "/tls/tls.crt", "TLS_KEY": "/tls/tls.key", "TLS_AUTHORITY": "/tls/ca.crt"}


def _pod_ip_variable(env: dict[str, str]) -> list[Document]:
    """The variable POD_IP, if another variable refers to it."""
    used = any("$(POD_IP)" in value for value in env.values())
    return [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}] if used else []

"""hugginggpt doctor --cluster, with kubectl and a small API server that has the objects of the overlay `production`."""

import copy
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gateway.cli import app
from gateway.cli.cluster import PLACEHOLDER
from tests.fakes.kubernetes_api import KubernetesApi, serving
from tests.manifests.rendering import render_overlay

pytestmark = [pytest.mark.slow, pytest.mark.needs("kubectl")]

Objects = dict[str, list[Any]]

NAMESPACE = "namespaces/hugginggpt"
DEPLOYMENTS = f"/apis/apps/v1/{NAMESPACE}/deployments"
SECRETS = f"/api/v1/{NAMESPACE}/secrets"
CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"
NODES = "/api/v1/nodes"
PODS = f"/api/v1/{NAMESPACE}/pods"
CLAIMS = f"/api/v1/{NAMESPACE}/persistentvolumeclaims"
PREFETCHES = f"/apis/batch/v1/{NAMESPACE}/cronjobs"
SCALERS = f"/apis/keda.sh/v1alpha1/{NAMESPACE}/scaledobjects"
POLICIES = f"/apis/networking.k8s.io/v1/{NAMESPACE}/networkpolicies"
SECRET = "never-to-be-seen"


def node(labels: Mapping[str, str], *taints: str) -> Any:
    return {
        "metadata": {"name": "gpu-1", "labels": dict(labels)},
        "spec": {"taints": [{"key": each, "effect": "NoSchedule"} for each in taints]},
        "status": {"allocatable": {"nvidia.com/gpu": "1"}},
    }


def pod(**status: Any) -> Any:
    return {"metadata": {"name": "expert-text-1"}, "status": status}


@pytest.fixture
def healthy() -> Objects:
    """Objects of a deployment without problems."""
    rendered = render_overlay("production")
    found = {
        path: copy.deepcopy(list(rendered.of_kind(kind)))
        for path, kind in {
            DEPLOYMENTS: "Deployment",
            CLAIMS: "PersistentVolumeClaim",
            PREFETCHES: "CronJob",
            SCALERS: "ScaledObject",
            POLICIES: "NetworkPolicy",
        }.items()
    }
    keys = {
        "hugginggpt-database": ["url"],
        "hugginggpt-store": ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"],
        "hugginggpt-tls": ["tls.crt", "tls.key", "ca.crt"],
    }
    found[SECRETS] = [{"metadata": {"name": name}, "data": dict.fromkeys(each, SECRET)} for name, each in keys.items()]
    found[NODES] = [node({"nvidia.com/cuda.driver-version.major": "580"}, "nvidia.com/gpu")]
    found |= {CLASSES: [], PODS: [pod(phase="Running")]}
    for claim in found[CLAIMS]:
        claim["status"] = {"phase": "Bound"}
    for job in found[PREFETCHES]:
        job["status"] = {"lastSuccessfulTime": "2026-01-01T00:00:00Z"}
    for scaler in found[SCALERS]:
        scaler["status"] = {"conditions": [{"type": "Ready", "status": "True"}]}
    for policy in found[POLICIES]:
        policy["spec"] = json.loads(json.dumps(policy["spec"]).replace(PLACEHOLDER, "10.9.0.0/24"))
    return found


@pytest.fixture
def doctor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[KubernetesApi], dict[str, Any]]:
    def run(api: KubernetesApi) -> dict[str, Any]:
        """Findings by check; asserts the exit status, that nothing is written, and that no secret is printed."""
        with serving(api, tmp_path) as kubeconfig:
            monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
            result = CliRunner().invoke(app, ["doctor", "--cluster", "--json"])
        assert SECRET not in result.output
        assert {request.partition(" ")[0] for request in api.requests} == {"GET"}
        checks = json.loads(result.stdout)["checks"]
        assert result.exit_code == int(any(check["level"] == "wrong" for check in checks))
        return {check["check"]: check for check in checks}

    return run


def test_healthy_deployment_has_no_problems(healthy: Objects, doctor: Callable[..., dict[str, Any]]) -> None:
    found = doctor(KubernetesApi(healthy))
    assert {check["level"] for check in found.values()} == {"ok"}
    assert {"secret hugginggpt-tls", "node gpu-1", "weights, prefetch-vision", "scaler expert-lite"} <= found.keys()


def drop(path: str, name: str) -> Callable[[Objects], None]:
    def change(objects: Objects) -> None:
        objects[path] = [each for each in objects[path] if each["metadata"]["name"] != name]

    return change


def put(path: str, *items: Any) -> Callable[[Objects], None]:
    return lambda objects: objects.update({path: list(items)})


def name_runtime_class(objects: Objects) -> None:
    objects[DEPLOYMENTS][0]["spec"]["template"]["spec"]["runtimeClassName"] = "nvidia"


def lose_database_key(objects: Objects) -> None:
    objects[SECRETS][0]["data"] = {"uri": SECRET}


def unbind_claim(objects: Objects) -> None:
    objects[CLAIMS][0]["status"] = {"phase": "Pending"}


def forget_downloads(objects: Objects) -> None:
    objects[PREFETCHES][0].pop("status")


def break_scaler(objects: Objects) -> None:
    condition = {"type": "Ready", "status": "False", "message": "no Prometheus"}
    objects[SCALERS][0]["status"] = {"conditions": [condition]}


UNSCHEDULED = pod(conditions=[{"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}])
WITHOUT_IMAGE = pod(containerStatuses=[{"state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}}])
STARTING = pod(containerStatuses=[{"state": {"waiting": {"reason": "ContainerCreating"}}}])


@pytest.mark.parametrize(
    ("change", "check", "level", "found"),
    [
        (put(DEPLOYMENTS), "cluster", "wrong", "no Deployment"),
        (drop(SECRETS, "hugginggpt-store"), "secret hugginggpt-store", "wrong", "does not exist"),
        (lose_database_key, "secret hugginggpt-database", "wrong", "has no key url"),
        (name_runtime_class, "RuntimeClass nvidia", "wrong", "does not exist"),
        (put(NODES), "GPU nodes", "warning", "none offers nvidia.com/gpu"),
        (put(NODES, node({"nvidia.com/cuda.driver.major": "570"})), "node gpu-1", "wrong", "older than 580"),
        (
            put(NODES, node({"nvidia.com/gpu.compute.major": "7", "nvidia.com/gpu.compute.minor": "0"})),
            "node gpu-1",
            "wrong",
            "compute capability 7.0",
        ),
        (put(NODES, node({}, "spot")), "node gpu-1", "wrong", "taint spot"),
        (unbind_claim, "volume of weights", "wrong", "is Pending"),
        (forget_downloads, "weights, prefetch-audio", "warning", "no run has finished"),
        (put(SCALERS), "scaler expert-vision", "wrong", "does not exist"),
        (lambda objects: objects.pop(SCALERS), "scaler expert-vision", "wrong", "does not exist"),
        (break_scaler, "scaler expert-audio", "wrong", "no Prometheus"),
        (drop(POLICIES, "deny-all"), "network policies", "wrong", "none denies"),
        (put(PODS, UNSCHEDULED), "pod expert-text-1", "wrong", "0/3 nodes are available"),
        (put(PODS, WITHOUT_IMAGE), "pod expert-text-1", "wrong", "ErrImagePull: no such image"),
    ],
)
def test_problem_is_reported(
    healthy: Objects,
    doctor: Callable[..., dict[str, Any]],
    *,
    change: Callable[[Objects], None],
    check: str,
    level: str,
    found: str,
) -> None:
    change(healthy)
    finding = doctor(KubernetesApi(healthy))[check]
    assert finding["level"] == level
    assert found in finding["found"]
    assert finding["remedy"]


def test_placeholder_of_a_policy_is_reported(healthy: Objects, doctor: Callable[..., dict[str, Any]]) -> None:
    healthy[POLICIES].append({"metadata": {"name": "mirror"}, "spec": {"egress": [{"cidr": PLACEHOLDER}]}})
    assert doctor(KubernetesApi(healthy))["policy mirror"]["level"] == "warning"


def test_pod_that_is_starting_is_no_problem(healthy: Objects, doctor: Callable[..., dict[str, Any]]) -> None:
    healthy[PODS] = [STARTING]
    assert "pod expert-text-1" not in doctor(KubernetesApi(healthy))


def test_forbidden_request_is_reported(healthy: Objects, doctor: Callable[..., dict[str, Any]]) -> None:
    found = doctor(KubernetesApi(healthy, forbidden=frozenset({SECRETS})))["cluster"]
    assert found["level"] == "wrong"
    assert "forbidden" in found["found"].lower()


def test_missing_kubectl_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    result = CliRunner().invoke(app, ["doctor", "--cluster", "--json"])
    assert result.exit_code == 1
    assert "kubectl is not installed" in result.stdout

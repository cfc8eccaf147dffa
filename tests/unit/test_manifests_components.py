"""Combinations of components that no overlay contains keep the rules; every component is in a combination."""

import re
from functools import cache
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import yaml

from tests.manifests import rendering, schemas
from tests.manifests.deployment import Manifests, Workload
from tests.manifests.environment import environment_of
from tests.manifests.network import Network
from tests.manifests.rules import RULES
from tests.manifests.rules.images import version
from tests.manifests.rules.network import METRICS

pytestmark = [pytest.mark.slow, pytest.mark.needs("kubectl")]

EXPERTS = ("text", "vision", "audio", "video", "diffusion")
STORES = ("postgres", "s3")

COMBINATIONS = {
    "without-gpus": (
        *EXPERTS,
        "model-init",
        "llm",
        "remote",
        "served",
        *STORES,
        "otel",
        "prometheus",
        "hpa",
        "ingress",
    ),
    "with-observability": ("text", "model-init", "text/keda", "keda", *STORES, "otel", "observability", "prometheus"),
    "gpus-and-cpus": (
        *EXPERTS,
        "gpu",
        "gpu/runtime-class",
        "cpu-fallback",
        "model-init",
        *STORES,
        "tls",
        "gateway-api",
    ),
    "weights-on-a-shared-volume": ("text", "text/prefetch", "model-prefetch", *STORES),
    "identity-of-gke": ("text", "text/prefetch", "bulk", "gpu", "model-prefetch", "managed-stores", "identity/gke"),
    "identity-of-eks": ("llm", "remote", "served", "bulk", "bulk/ray", "managed-stores", "hpa", "identity/eks"),
    "identity-of-aks": (
        *("text", "text/prefetch", "bulk", "bulk/ray"),
        *("model-prefetch", "managed-stores", "otel", "identity/aks"),
    ),
    "bulk-on-cpus": ("bulk", "bulk/ray", *STORES),
    "bulk-on-gpus": (
        *("text", "text/prefetch", "bulk", "bulk/ray"),
        *("gpu", "gpu/runtime-class", "model-prefetch", *STORES),
    ),
    "scale-to-zero": ("text", "model-init", "text/keda", "keda", "managed-stores"),
}


@cache
def manifests(name: str) -> Manifests:
    with TemporaryDirectory() as folder:
        return rendering.render_components(COMBINATIONS[name], Path(folder))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", COMBINATIONS)
def test_combination_keeps_the_rules(name: str, rule: str) -> None:
    assert list(RULES[rule](manifests(name))) == []


@pytest.mark.parametrize("name", COMBINATIONS)
def test_combination_matches_the_schemas(name: str) -> None:
    assert list(schemas.violations(manifests(name), schemas.VERSIONS[0])) == []


def test_runtime_class_is_set_for_gpu_experts_only() -> None:
    named = {each.name for each in manifests("gpus-and-cpus").workloads if "runtimeClassName" in each.pod}
    assert named == {f"expert-{name}" for name in EXPERTS}


def test_bulk_jobs_use_gpus_where_tasks_run() -> None:
    assert {each.name for each in bulk_pods("bulk-on-gpus") if each.requests_gpu} == {"bulk", "bulk-workers"}


def test_bulk_jobs_let_each_expert_choose_its_device() -> None:
    """One that computes on CPUs only refuses to start with EXPERT_DEVICES=*=cuda."""
    containers = [each for pod in bulk_pods("bulk-on-gpus") for each in pod.containers]
    assert not [each for each in containers if "EXPERT_DEVICES" in environment_of(manifests("bulk-on-gpus"), each)]


def test_bulk_jobs_have_the_runtime_class_of_gpus() -> None:
    named = {each.name for each in bulk_pods("bulk-on-gpus") if each.pod.get("runtimeClassName") == "nvidia"}
    assert named == {"bulk", "bulk-workers"}


def test_bulk_jobs_run_one_image() -> None:
    """Ray refuses workers of another version than the head's."""
    assert {each.image for pod in bulk_pods("bulk-on-gpus") for each in pod.containers} == {
        f"hugginggpt/bulk:{version()}-cuda"
    }


def test_image_of_bulk_jobs_contains_the_dashboard_of_ray() -> None:
    """KubeRay submits jobs to it, and its agents answer the probes."""
    locked = (rendering.K8S.parent / "docker" / "bulk.lock").read_text(encoding="utf-8")
    assert {"ray", "aiohttp", "aiohttp-cors"} <= set(re.findall(r"(?m)^([a-z0-9-]+)==", locked))


def test_bulk_jobs_read_the_prefetched_weights() -> None:
    mounted = {pod.name for pod in bulk_pods("bulk-on-gpus") if "/models" in pod.containers[0].mounts}
    assert mounted == {"bulk", "bulk-head", "bulk-workers"}


@pytest.mark.parametrize("pod", ["bulk", "bulk-head", "bulk-workers"])
def test_bulk_jobs_get_settings_and_keys_of_the_bucket(pod: str) -> None:
    (found,) = (each for each in bulk_pods("bulk-on-cpus") if each.name == pod)
    assert environment_of(manifests("bulk-on-cpus"), found.containers[0])["AWS_ENDPOINT_URL"] == "http://s3:8333"
    assert {"secretRef": {"name": "hugginggpt-store"}} in found.containers[0].spec["envFrom"]


def test_dashboard_of_ray_is_open_to_its_operator_only() -> None:
    (head,) = (each for each in bulk_pods("bulk-on-cpus") if each.name == "bulk-head")
    peers = Network(manifests("bulk-on-cpus")).external_peers("Ingress", head)
    operator = {"namespaceSelector": {}, "podSelector": {"matchLabels": {"app.kubernetes.io/name": "kuberay-operator"}}}
    assert [(peer, ports) for peer, ports in peers if ports != {METRICS}] == [(operator, {8265})]


def bulk_pods(name: str) -> list[Workload]:
    return [each for each in manifests(name).workloads if each.labels["app.kubernetes.io/component"] == "bulk"]


def test_identity_is_that_of_pods_that_use_the_store() -> None:
    accounts = manifests("identity-of-gke").of_kind("ServiceAccount")
    named = {each["metadata"]["name"] for each in accounts if "annotations" in each["metadata"]}
    assert named == {"gateway", "orchestrator", "selector", "expert-lite", "expert-text", "prefetch", "bulk"}


def test_pods_with_the_identity_of_aks_have_its_label() -> None:
    labelled = {
        each.name for each in manifests("identity-of-aks").workloads if "azure.workload.identity/use" in each.labels
    }
    services = {"gateway", "orchestrator", "selector", "expert-lite", "expert-text", "prefetch-text"}
    assert labelled == services | {"bulk", "bulk-head", "bulk-workers"}


def test_every_component_is_used() -> None:
    assert set(rendering.components()) - _used() == set()


def _used() -> set[str]:
    """Components of overlays, combinations and the page's example, with the components that these include."""
    named = set(
        chain(*COMBINATIONS.values(), *map(_components_of, rendering.K8S.glob("overlays/*/kustomization.yaml")))
    )
    folders = (rendering.K8S / "components" / each for each in named)
    return named.union({"own-expert"}, *(_components_of(folder / "kustomization.yaml") for folder in folders))


def _components_of(path: Path) -> list[str]:
    """Paths below k8s/components that a kustomization names."""
    kustomization = yaml.safe_load(path.read_text(encoding="utf-8"))
    named = [
        (path.parent / each).resolve() for key in ("components", "resources") for each in kustomization.get(key) or []
    ]
    folder = rendering.K8S / "components"
    return [str(each.relative_to(folder)) for each in named if each.is_dir() and each.is_relative_to(folder)]

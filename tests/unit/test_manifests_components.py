"""Combinations of components that no overlay contains keep the rules; every component is in a combination."""

from functools import cache
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import yaml

from tests.manifests import rendering, schemas
from tests.manifests.deployment import Manifests
from tests.manifests.rules import RULES

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
    "identity-of-gke": ("text", "text/prefetch", "gpu", "model-prefetch", "managed-stores", "identity/gke"),
    "identity-of-eks": ("llm", "remote", "served", "managed-stores", "hpa", "identity/eks"),
    "identity-of-aks": ("text", "text/prefetch", "model-prefetch", "managed-stores", "otel", "identity/aks"),
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


def test_identity_is_that_of_pods_that_use_the_store() -> None:
    accounts = manifests("identity-of-gke").of_kind("ServiceAccount")
    named = {each["metadata"]["name"] for each in accounts if "annotations" in each["metadata"]}
    assert named == {"gateway", "orchestrator", "selector", "expert-lite", "expert-text", "prefetch"}


def test_pods_with_the_identity_of_aks_have_its_label() -> None:
    labelled = {
        each.name for each in manifests("identity-of-aks").workloads if "azure.workload.identity/use" in each.labels
    }
    assert labelled == {"gateway", "orchestrator", "selector", "expert-lite", "expert-text", "prefetch-text"}


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

"""Every overlay renders with `kubectl kustomize`, keeps every rule, and matches every supported Kubernetes schema."""

import json

import pytest

from tests.manifests import rendering, schemas
from tests.manifests.deployment import Document, Manifests
from tests.manifests.network import Network
from tests.manifests.rules import RULES

pytestmark = pytest.mark.needs("kubectl")

ONE_MACHINE = ("local", "one-gpu", "eight-gpus")
EXCEPTED = {(overlay, "secrets_have_no_values") for overlay in ONE_MACHINE} | {
    (overlay, "claims_can_be_shared") for overlay in ONE_MACHINE if overlay != "local"
}
"""Overlays for evaluation on one machine contain public passwords, and have the weights on a volume of that machine."""


def test_local_and_production_overlays_exist() -> None:
    assert {"local", "production"} <= set(rendering.overlays())


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("overlay", rendering.overlays())
def test_overlay_keeps_the_rules(overlay: str, rule: str) -> None:
    violations = list(RULES[rule](rendering.render_overlay(overlay)))
    assert bool(violations) == ((overlay, rule) in EXCEPTED), "\n".join(violations)


def test_labelled_deployment_becomes_an_expert() -> None:
    """Its pods are found and called without a change to any other manifest."""
    local = rendering.render_overlay("local")
    own = _renamed(local.find("Deployment", "expert-lite") or {}, "expert-poet")
    manifests = Manifests((*local.documents, own))
    callers = {edge.caller for edge in Network(manifests).edges() if edge.callee == "expert-poet"}
    assert callers == {"orchestrator", "selector"}
    experts = (local.find("Service", "experts") or {})["spec"]["selector"]
    assert "expert-poet" in {workload.name for workload in manifests.workloads_matching({"matchLabels": experts})}


def _renamed(deployment: Document, name: str) -> Document:
    written = json.dumps(deployment)
    return dict(json.loads(written.replace(deployment["metadata"]["name"], name)))


def test_production_scales_every_server() -> None:
    manifests = rendering.render_overlay("production")
    scaled = {
        each["spec"]["scaleTargetRef"]["name"] for each in manifests.of_kind("HorizontalPodAutoscaler", "ScaledObject")
    }
    assert {workload.name for workload in manifests.long_running if workload.is_ours} - scaled == set()


def test_production_names_no_runtime_class() -> None:
    """GKE, EKS and AKS have none, and reject pods that name one."""
    assert not [
        each.name for each in rendering.render_overlay("production").workloads if "runtimeClassName" in each.pod
    ]


def test_air_gapped_overlay_uses_one_registry() -> None:
    manifests = rendering.render_overlay("air-gapped")
    assert len({container.image.partition("/")[0] for container in manifests.containers}) == 1
    assert all(account.get("imagePullSecrets") for account in manifests.of_kind("ServiceAccount"))


@pytest.mark.parametrize("version", schemas.VERSIONS)
@pytest.mark.parametrize("overlay", rendering.overlays())
def test_overlay_matches_the_schemas(overlay: str, version: str) -> None:
    assert list(schemas.violations(rendering.render_overlay(overlay), version)) == []

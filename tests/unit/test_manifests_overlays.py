"""Every overlay renders with `kubectl kustomize`, keeps every rule, and matches every supported Kubernetes schema."""

import json

import pytest

from tests.manifests import rendering, schemas
from tests.manifests.deployment import Document, House
from tests.manifests.network import Network
from tests.manifests.rules import RULES

pytestmark = pytest.mark.needs("kubectl")

EXCEPTED = {("local", "secrets_have_no_values")}
"""The overlay for evaluation on one machine contains public passwords."""


def test_there_are_overlays() -> None:
    assert {"local", "production"} <= set(rendering.overlays())


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("overlay", rendering.overlays())
def test_an_overlay_keeps_the_rules(overlay: str, rule: str) -> None:
    complaints = list(RULES[rule](rendering.overlay(overlay)))
    assert bool(complaints) == ((overlay, rule) in EXCEPTED), "\n".join(complaints)


def test_labelled_deployment_becomes_an_expert() -> None:
    """Its pods are found and called without a change to any other manifest."""
    local = rendering.overlay("local")
    own = _renamed(local.named("Deployment", "expert-lite") or {}, "expert-poet")
    house = House((*local.documents, own))
    callers = {edge.caller for edge in Network(house).edges() if edge.called == "expert-poet"}
    assert callers == {"orchestrator", "selector"}
    experts = (local.named("Service", "experts") or {})["spec"]["selector"]
    assert "expert-poet" in {workload.name for workload in house.selected({"matchLabels": experts})}


def _renamed(deployment: Document, name: str) -> Document:
    written = json.dumps(deployment)
    return dict(json.loads(written.replace(deployment["metadata"]["name"], name)))


def test_production_scales_every_server() -> None:
    house = rendering.overlay("production")
    scaled = {each["spec"]["scaleTargetRef"]["name"] for each in house.of("HorizontalPodAutoscaler", "ScaledObject")}
    assert {workload.name for workload in house.staying if workload.is_ours} - scaled == set()


def test_air_gapped_overlay_uses_one_registry() -> None:
    house = rendering.overlay("air-gapped")
    assert len({container.image.partition("/")[0] for container in house.containers}) == 1
    assert all(account.get("imagePullSecrets") for account in house.of("ServiceAccount"))


@pytest.mark.parametrize("version", schemas.VERSIONS)
@pytest.mark.parametrize("overlay", rendering.overlays())
def test_an_overlay_matches_the_schemas(overlay: str, version: str) -> None:
    assert list(schemas.complaints(rendering.overlay(overlay), version)) == []

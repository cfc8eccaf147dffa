"""What `kubectl kustomize` makes of every overlay keeps every rule, and every supported Kubernetes would take it."""

import pytest

from tests.manifests import rendering, schemas
from tests.manifests.rules import RULES

pytestmark = pytest.mark.needs("kubectl")

EXCEPTED = {("local", "secrets_have_no_values")}
"""An overlay for trying out on one machine has passwords that everybody knows."""


def test_there_are_overlays() -> None:
    assert {"local", "production"} <= set(rendering.overlays())


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("overlay", rendering.overlays())
def test_an_overlay_keeps_the_rules(overlay: str, rule: str) -> None:
    complaints = list(RULES[rule](rendering.overlay(overlay)))
    assert bool(complaints) == ((overlay, rule) in EXCEPTED), "\n".join(complaints)


def test_in_production_all_that_serves_is_scaled() -> None:
    house = rendering.overlay("production")
    scaled = {each["spec"]["scaleTargetRef"]["name"] for each in house.of("HorizontalPodAutoscaler", "ScaledObject")}
    assert {workload.name for workload in house.staying if workload.is_ours} - scaled == set()


def test_without_a_way_out_all_images_come_from_one_registry() -> None:
    house = rendering.overlay("air-gapped")
    assert len({container.image.partition("/")[0] for container in house.containers}) == 1
    assert all(account.get("imagePullSecrets") for account in house.of("ServiceAccount"))


@pytest.mark.parametrize("version", schemas.VERSIONS)
@pytest.mark.parametrize("overlay", rendering.overlays())
def test_kubernetes_takes_an_overlay(overlay: str, version: str) -> None:
    assert list(schemas.complaints(rendering.overlay(overlay), version)) == []

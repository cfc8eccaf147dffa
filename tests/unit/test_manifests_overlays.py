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


@pytest.mark.parametrize("version", schemas.VERSIONS)
@pytest.mark.parametrize("overlay", rendering.overlays())
def test_kubernetes_takes_an_overlay(overlay: str, version: str) -> None:
    assert list(schemas.complaints(rendering.overlay(overlay), version)) == []

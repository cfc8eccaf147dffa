"""Schema validation rejects unknown fields, wrong types and unknown kinds, as a strict API server does."""

from typing import Any

import pytest

from tests.manifests import schemas
from tests.manifests.valid_deployment import GONE, sound, spoilt

pytestmark = pytest.mark.slow

SPOILT: list[tuple[str, str, Any, str]] = [
    ("Deployment/planner", "spec.template.spec.containers.0.livenessProbe.periodSecond", 5, "periodSecond"),
    ("Deployment/planner", "spec.selector", GONE, "selector"),
    ("Service/planner", "spec.ports.0.port", "50051", "port"),
    ("PodDisruptionBudget/planner", "spec.maxUnvailable", 1, "maxUnvailable"),
    ("ScaledObject/expert-text", "spec.minReplicas", 0, "minReplicas"),
    ("ScaledObject/expert-text", "spec.triggers.0.metadata.threshold", 5, "threshold"),
    ("ScaledObject/expert-text", "spec.triggers.0.metadata.query", GONE, "query"),
    ("ScaledObject/expert-text", "spec.fallback.behavior", "keep", "behavior"),
    ("ScaledObject/expert-text", "triggers", [], "beside its spec"),
    ("Certificate/hugginggpt", "spec.issuerRef", GONE, "issuerRef"),
    ("Certificate/hugginggpt", "spec.duration", "90d", "duration"),
    ("HTTPRoute/gateway", "spec.rules.0.backendRefs.0.port", "http", "port"),
    ("Gateway/house", "spec.listeners.0.protocol", "GRPC", "protocol"),
    ("PodMonitor/house", "spec.endpoints", [], "endpoints"),
    ("PodMonitor/house", "kind", "PodMonitors", "no schema is known"),
]


@pytest.mark.parametrize("version", schemas.VERSIONS)
def test_valid_manifests_match_the_schemas(version: str) -> None:
    assert list(schemas.complaints(sound(), version)) == []


@pytest.mark.parametrize(("document", "path", "value", "complaint"), SPOILT)
def test_invalid_document_is_rejected(document: str, path: str, value: object, complaint: str) -> None:
    told = list(schemas.complaints(spoilt(document, path, value), schemas.VERSIONS[0]))
    assert any(complaint in each for each in told), told

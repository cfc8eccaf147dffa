"""Schema validation rejects unknown fields, wrong types and unknown kinds, as a strict API server does."""

from typing import Any

import pytest
import yaml

from tests.manifests import schemas
from tests.manifests.deployment import Manifests
from tests.manifests.rendering import K8S
from tests.manifests.valid_deployment import REMOVED, changed, corrupted_manifests, valid_manifests

pytestmark = pytest.mark.slow

RAY_JOB = yaml.safe_load((K8S / "components" / "bulk" / "ray" / "ray-job.yaml").read_text(encoding="utf-8"))

INVALID_DOCUMENTS: list[tuple[str, str, Any, str]] = [
    ("Deployment/planner", "spec.template.spec.containers.0.livenessProbe.periodSecond", 5, "periodSecond"),
    ("Deployment/planner", "spec.selector", REMOVED, "selector"),
    ("Service/planner", "spec.ports.0.port", "50051", "port"),
    ("PodDisruptionBudget/planner", "spec.maxUnvailable", 1, "maxUnvailable"),
    ("ScaledObject/expert-text", "spec.minReplicas", 0, "minReplicas"),
    ("ScaledObject/expert-text", "spec.triggers.0.metadata.threshold", 5, "threshold"),
    ("ScaledObject/expert-text", "spec.triggers.0.metadata", REMOVED, "metadata"),
    ("ScaledObject/expert-text", "spec.pollingInterval", 0, "pollingInterval"),
    ("ScaledObject/expert-text", "spec.fallback.behavior", "keep", "behavior"),
    ("ScaledObject/expert-text", "triggers", [], "outside its spec"),
    ("Certificate/hugginggpt", "spec.issuerRef", REMOVED, "issuerRef"),
    ("Certificate/hugginggpt", "spec.duration", 90, "duration"),
    ("Certificate/hugginggpt", "spec.dnsName", "hugginggpt", "dnsName"),
    ("HTTPRoute/gateway", "spec.rules.0.backendRefs.0.port", "http", "port"),
    ("HTTPRoute/gateway", "spec.rules.0.backends", [], "backends"),
    ("HTTPRoute/gateway", "spec.parentRefs.0.name", REMOVED, "name"),
    ("Gateway/hugginggpt", "spec.listeners.0.protocol", "HTTP/2", "protocol"),
    ("Gateway/hugginggpt", "spec.listeners.0.port", 65536, "port"),
    ("PodMonitor/hugginggpt", "spec.endpoints", [], "endpoints"),
    ("PodMonitor/hugginggpt", "spec.podMetricsEndpoints.0.interval", "5 seconds", "interval"),
    ("PodMonitor/hugginggpt", "kind", "PodMonitors", "no schema for"),
]


INVALID_RAY_JOBS: list[tuple[str, Any, str]] = [
    ("spec.entryPoint", "python", "entryPoint"),
    ("spec.backoffLimit", "1", "backoffLimit"),
    ("spec.rayClusterSpec.workerGroupSpecs.0.maxReplicas", REMOVED, "maxReplicas"),
    ("spec.rayClusterSpec.headGroupSpec.rayStartParams.num-cpus", 0, "num-cpus"),
    ("spec.rayClusterSpec.headGroupSpec.template.spec.containers.0.imag", "a", "imag"),
    ("spec.rayClusterSpec.workerGroupSpecs.0.template.spec.priority", "high", "priority"),
    ("spec.submitterPodTemplate.spec.restart", "Never", "restart"),
]


@pytest.mark.parametrize(("path", "value", "message"), INVALID_RAY_JOBS)
def test_invalid_ray_job_is_rejected(path: str, value: object, message: str) -> None:
    manifests = changed(Manifests((RAY_JOB,)), "RayJob/bulk", path, value)
    found = list(schemas.violations(manifests, schemas.VERSIONS[0]))
    assert any(message in each for each in found), found


def test_ray_job_matches_the_schemas() -> None:
    assert list(schemas.violations(Manifests((RAY_JOB,)), schemas.VERSIONS[0])) == []


@pytest.mark.parametrize("version", schemas.VERSIONS)
def test_valid_manifests_match_the_schemas(version: str) -> None:
    assert list(schemas.violations(valid_manifests(), version)) == []


@pytest.mark.parametrize(("document", "path", "value", "message"), INVALID_DOCUMENTS)
def test_invalid_document_is_rejected(document: str, path: str, value: object, message: str) -> None:
    found = list(schemas.violations(corrupted_manifests(document, path, value), schemas.VERSIONS[0]))
    assert any(message in each for each in found), found

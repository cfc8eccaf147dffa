"""Applying a new render over an old one changes no field that is immutable, so that `kubectl apply` alone upgrades."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.manifests.deployment import Manifests
from tests.manifests.parts.documents import document
from tests.manifests.rendering import K8S, overlays, render, render_overlay
from tests.manifests.rules.images import version
from tests.manifests.upgrade import rejected_changes

SETTINGS = """
namespace: hugginggpt
resources: [../%s]
configMapGenerator:
  - { name: hugginggpt, behavior: merge, literals: [LOG_LEVEL=DEBUG, HF_ENDPOINT=https://hub.example.org] }
  - { name: expert-descriptions, behavior: merge, literals: ['other.json={}'] }
"""


@pytest.fixture(scope="module")
def next_release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of k8s/ with another version."""
    copied = Path(shutil.copytree(K8S, tmp_path_factory.mktemp("next") / "k8s"))
    for file in copied.rglob("*.yaml"):
        text = file.read_text(encoding="utf-8")
        file.write_text(re.sub(rf"\b{re.escape(version())}\b", "9.9.9", text), encoding="utf-8")
    return copied


@pytest.mark.needs("kubectl")
@pytest.mark.parametrize("overlay", overlays())
def test_new_version_and_settings_can_be_applied(next_release: Path, overlay: str) -> None:
    folder = next_release / "overlays" / f"{overlay}-changed"
    folder.mkdir()
    (folder / "kustomization.yaml").write_text(SETTINGS % overlay, encoding="utf-8")
    after = Manifests.read(render(folder))
    assert {container.image.rpartition(":")[2] for container in after.containers if container.is_ours} <= {
        "9.9.9",
        "9.9.9-cuda",
    }
    before = render_overlay(overlay)
    assert list(rejected_changes(before, after)) == []
    assert list(rejected_changes(after, before)) == []  # a rollback


def _cluster() -> list[dict[str, Any]]:
    selector = {"matchLabels": {"a": "b"}}
    return [
        document("apps/v1", "Deployment", "d", spec={"selector": selector, "template": {"spec": {}}}),
        document("batch/v1", "Job", "j", spec={"template": {"spec": {}}}),
        document("batch/v1", "CronJob", "c", spec={"jobTemplate": {"spec": {"template": {"spec": {}}}}}),
        document("apps/v1", "StatefulSet", "s", spec={"template": {"spec": {}}, "volumeClaimTemplates": []}),
        document("v1", "Service", "v", spec={"clusterIP": "None"}),
        document("v1", "ConfigMap", "m", immutable=True, data={"a": "1"}),
    ]


@pytest.mark.parametrize(
    ("index", "path", "value", "message"),
    [
        (0, "spec.selector.matchLabels", {"a": "c"}, "Deployment/d: spec.selector"),
        (0, "spec.template.spec.nodeName", "x", ""),
        (1, "spec.template.spec.nodeName", "x", "Job/j: spec.template"),
        (2, "spec.jobTemplate.spec.template.spec.nodeName", "x", ""),
        (3, "spec.volumeClaimTemplates", [{}], "StatefulSet/s: spec.volumeClaimTemplates"),
        (3, "spec.serviceName", "x", "StatefulSet/s: spec.serviceName"),
        (3, "spec.replicas", 2, ""),
        (4, "spec.clusterIP", "10.0.0.1", "Service/v: spec.clusterIP"),
        (5, "data.a", "2", "ConfigMap/m: data"),
    ],
)
def test_change_of_an_immutable_field_is_reported(index: int, path: str, value: object, message: str) -> None:
    before, after = _cluster(), _cluster()
    *parents, last = path.split(".")
    parent: Any = after[index]
    for key in parents:
        parent = parent[key]
    parent[last] = value
    found = list(rejected_changes(Manifests(tuple(before)), Manifests(tuple(after))))
    assert found == ([f"{message} cannot change"] if message else [])

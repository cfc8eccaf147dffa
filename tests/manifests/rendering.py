"""Rendering of overlays and components with `kubectl kustomize`."""

import json
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tests.manifests.deployment import Manifests

K8S = Path(__file__).parents[2] / "k8s"

_OVERLAY = {
    "apiVersion": "kustomize.config.k8s.io/v1beta1",
    "kind": "Kustomization",
    "namespace": "hugginggpt",
    "resources": ["../../base"],
}


def overlays() -> list[str]:
    """Names of all overlays."""
    return sorted(path.parent.name for path in K8S.glob("overlays/*/kustomization.yaml"))


def components() -> list[str]:
    """Paths of all components below k8s/components."""
    folder = K8S / "components"
    return sorted(str(path.parent.relative_to(folder)) for path in folder.rglob("kustomization.yaml"))


@cache
def render_overlay(name: str) -> Manifests:
    return Manifests.read(render(K8S / "overlays" / name))


def render_components(components: Sequence[str], folder: Path) -> Manifests:
    """Renders the base with the given components, as an overlay.

    Args:
        components: Paths below k8s/components, in order.
        folder: Receives a copy of the manifests.
    """
    overlay = shutil.copytree(K8S, folder / "k8s") / "overlays" / "composed"
    overlay.mkdir()
    paths = [f"../../components/{component}" for component in components]
    (overlay / "kustomization.yaml").write_text(json.dumps(_OVERLAY | {"components": paths}))
    return Manifests.read(render(overlay))


def render(folder: Path) -> str:
    """Returns what kubectl would apply, as YAML.

    Raises:
        AssertionError: The folder does not render, or kubectl prints a warning.
    """
    done = subprocess.run(["kubectl", "kustomize", str(folder)], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not done.stderr, f"kubectl warns: {done.stderr}"
    return done.stdout

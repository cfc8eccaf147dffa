"""Overlays as kubectl renders them."""

import json
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tests.manifests.deployment import House

K8S = Path(__file__).parents[2] / "k8s"

_OVERLAY = {
    "apiVersion": "kustomize.config.k8s.io/v1beta1",
    "kind": "Kustomization",
    "namespace": "hugginggpt",
    "resources": ["../../base"],
}


def overlays() -> list[str]:
    """Their names."""
    return sorted(path.parent.name for path in K8S.glob("overlays/*/kustomization.yaml"))


def components() -> list[str]:
    """Their paths below k8s/components."""
    folder = K8S / "components"
    return sorted(str(path.parent.relative_to(folder)) for path in folder.rglob("kustomization.yaml"))


@cache
def overlay(name: str) -> House:
    return House.read(rendered(K8S / "overlays" / name))


def composed(components: Sequence[str], folder: Path) -> House:
    """The base with components, as an overlay of its own would have them.

    Args:
        components: paths below k8s/components, in order.
        folder: where a copy of the manifests is made.
    """
    place = shutil.copytree(K8S, folder / "k8s") / "overlays" / "composed"
    place.mkdir()
    named = [f"../../components/{component}" for component in components]
    (place / "kustomization.yaml").write_text(json.dumps(_OVERLAY | {"components": named}))
    return House.read(rendered(place))


def rendered(folder: Path) -> str:
    """What kubectl would apply, as YAML.

    Raises:
        AssertionError: the folder does not render; says why.
    """
    told = subprocess.run(["kubectl", "kustomize", str(folder)], check=False, capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    assert not told.stderr, f"kubectl warns: {told.stderr}"
    return told.stdout

"""Overlays as kubectl renders them."""

import subprocess
from functools import cache
from pathlib import Path

from tests.manifests.house import House

K8S = Path(__file__).parents[2] / "k8s"


def overlays() -> list[str]:
    """Their names."""
    return sorted(path.parent.name for path in K8S.glob("overlays/*/kustomization.yaml"))


def components() -> list[str]:
    """Their names."""
    return sorted(path.parent.name for path in K8S.glob("components/*/kustomization.yaml"))


@cache
def overlay(name: str) -> House:
    return House.read(rendered(K8S / "overlays" / name))


def rendered(folder: Path) -> str:
    """What kubectl would apply, as YAML.

    Raises:
        AssertionError: the folder does not render; says why.
    """
    told = subprocess.run(["kubectl", "kustomize", str(folder)], check=False, capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    assert not told.stderr, f"kubectl warns: {told.stderr}"
    return told.stdout

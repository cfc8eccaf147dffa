"""Images for GPUs: what they need of a node is in their labels and on the page of GPU pools."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.manifests.deployment import Workload
from tests.manifests.environment import image_environment
from tests.manifests.parts.workloads import server

ROOT = Path(__file__).parents[2]
GPU_PAGE = (ROOT / "k8s" / "components" / "gpu" / "README.md").read_text(encoding="utf-8")

DRIVERS = {"13": "580", "12": "525"}
"""Oldest NVIDIA driver by major version of CUDA, from NVIDIA's table of minor version compatibility."""
CAPABILITIES = {"13": "7.5", "12": "5.0"}
"""Oldest compute capability for which libraries of a major version of CUDA are built."""


@pytest.fixture(scope="module")
def cuda() -> str:
    """Major version of CUDA in the lock of torch."""
    lock = (ROOT / "docker" / "torch-cuda.lock").read_text(encoding="utf-8")
    return str(re.findall(r"^nvidia-cuda-runtime==(\d+)\.", lock, re.MULTILINE)[0])


def build_command(image: str, torch: str) -> str:
    """The command that make would run to build an image."""
    command = [str(shutil.which("make")), "--dry-run", "images", f"IMAGES={image}", f"TORCH={torch}", "ENGINE=docker"]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=60).stdout


def test_gpu_image_has_the_minimum_driver_and_capability_as_labels(cuda: str) -> None:
    command = build_command("expert-text", "cuda")
    assert f"--label dev.hugginggpt.nvidia-driver={DRIVERS[cuda]}" in command
    assert f"--label dev.hugginggpt.compute-capability={CAPABILITIES[cuda]}" in command


@pytest.mark.parametrize(("image", "torch"), [("expert-text", "cpu"), ("expert-lite", "cuda"), ("core", "cuda")])
def test_image_without_cuda_has_no_gpu_labels(image: str, torch: str) -> None:
    assert "--label" not in build_command(image, torch)


def test_page_states_the_minimum_driver_and_capability(cuda: str) -> None:
    assert f"driver {DRIVERS[cuda]} or newer" in GPU_PAGE
    assert f"compute capability {CAPABILITIES[cuda]} or newer" in GPU_PAGE


def test_expert_image_finds_the_driver_of_gke() -> None:
    expert = next(Workload(each) for each in server("expert-text", "experts.text") if each["kind"] == "Deployment")
    assert image_environment(expert.containers[0])["LD_LIBRARY_PATH"] == "/usr/local/nvidia/lib64"

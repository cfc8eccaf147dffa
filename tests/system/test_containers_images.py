"""Contents, size and user of the built images."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from experts.text.tasks import TASKS as TEXT_TASKS
from tests.containers import CONTAINERS
from tests.containers.fixtures import VERSION
from tests.containers.images import BASE, ROOT, Builder, image_for_tests
from tests.containers.podman import Podman

pytestmark = CONTAINERS

CORE_BYTES = 150 * 2**20
"""Maximum size of the core image above its base image."""

RunInContainer = Callable[..., str]


@pytest.fixture(params=["core", "lite", "text"])
def image(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"{request.param}_image"))


@pytest.fixture
def run_in_container(podman: Podman, image: str) -> RunInContainer:
    """Runs a shell command in a container of the image, restricted as in Kubernetes and without network."""

    def run(command: str) -> str:
        strict = ("--read-only", "--cap-drop=all", "--security-opt=no-new-privileges", "--network=none")
        return podman("run", "--rm", *strict, "--entrypoint", "/bin/sh", image, "-c", command)

    return run


def inspect_image(podman: Podman, image: str) -> Any:
    return json.loads(podman("image", "inspect", image))[0]


def test_image_has_unprivileged_user_labels_and_health_check(podman: Podman, image: str) -> None:
    image_data = inspect_image(podman, image)
    config = image_data["Config"]
    assert config["User"] == "65532:65532"
    assert config["Entrypoint"] == ["python", "-m"]
    assert config["Labels"]["org.opencontainers.image.version"] == VERSION
    assert config["Labels"]["org.opencontainers.image.licenses"]
    assert image_data["Healthcheck"]["Test"][:4] == ["CMD", "python", "-m", "services.common.probe"]


def test_image_contains_no_build_tools_or_build_settings(
    podman: Podman, image: str, run_in_container: RunInContainer
) -> None:
    assert [variable for variable in inspect_image(podman, image)["Config"]["Env"] if variable.startswith("PIP_")] == []
    assert run_in_container("ls -d /etc/pip.conf /source /opt/tools 2>/dev/null; ls -A /mnt /srv /tmp") == (
        "/mnt:\n\n/srv:\n\n/tmp:"
    )
    assert set(run_in_container("ls /opt").split()) <= {"venv", "locks"}
    assert run_in_container("command -v gcc cc g++ ld make; true") == ""
    assert run_in_container("ls /opt/venv/bin /opt/venv/lib/python3.11/site-packages | grep -x pip; true") == ""


def test_image_files_are_not_writable_by_its_user(run_in_container: RunInContainer) -> None:
    assert run_in_container("find /app /opt /usr /etc -writable -not -type l -print -quit 2>/dev/null; true") == ""


def test_core_image_is_small_and_contains_no_ml_library(builder: Builder, podman: Podman, core_image: str) -> None:
    assert builder.size(core_image) - builder.size(BASE) <= CORE_BYTES
    heavy = "torch|transformers|diffusers|onnxruntime|cv2|huggingface_hub|scipy|sklearn"
    listed = f"ls /opt/venv/lib/python3.11/site-packages | grep -xE '{heavy}'; ls /app | grep -xE 'experts|tests'; true"
    assert podman("run", "--rm", "--entrypoint", "/bin/sh", core_image, "-c", listed) == ""


@pytest.mark.parametrize(("name", "task"), [("lite", "image-to-text"), ("text", next(iter(TEXT_TASKS)))])
def test_expert_image_describes_itself_without_network(
    podman: Podman, request: pytest.FixtureRequest, name: str, task: str
) -> None:
    image = request.getfixturevalue(f"{name}_image")
    command = ("--read-only", "--network=none", image, f"experts.{name}", "--describe")
    described = json.loads(podman("run", "--rm", *command))
    assert described["expert"] == name
    assert task in {model["task"] for model in described["models"]}


def test_code_of_several_experts_is_theirs_and_what_they_share(builder: Builder, podman: Podman) -> None:
    file, image = ROOT / "docker" / "expert.Dockerfile", image_for_tests(f"hugginggpt/bulk-code:{VERSION}")
    built = builder.build(image, file, target="code", EXPERTS="bulk lite text")
    listed = podman("run", "--rm", "--entrypoint", "/bin/ls", built, "/app/experts")
    shared = {"__init__.py", "__pycache__", "endpoints", "host", "llm", "torch_host"}
    assert set(listed.split()) == {"bulk", "lite", "text"} | shared

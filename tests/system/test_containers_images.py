"""What is in the images, and what is not."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from experts.text.tasks import TASKS as TEXT_TASKS
from tests.containers import CONTAINERS
from tests.containers.fixtures import VERSION
from tests.containers.images import BASE, Builder
from tests.containers.podman import Podman

pytestmark = CONTAINERS

CORE_BYTES = 150 * 2**20
"""Above the base."""

Inside = Callable[..., str]


@pytest.fixture(params=["core", "lite", "text"])
def image(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"{request.param}_image"))


@pytest.fixture
def inside(podman: Podman, image: str) -> Inside:
    """What a shell in a container of the image prints, with as few rights as in a cluster and no network."""

    def run(command: str) -> str:
        strict = ("--read-only", "--cap-drop=all", "--security-opt=no-new-privileges", "--network=none")
        return podman("run", "--rm", *strict, "--entrypoint", "/bin/sh", image, "-c", command)

    return run


def inspected(podman: Podman, image: str) -> Any:
    return json.loads(podman("image", "inspect", image))[0]


def test_it_runs_as_nobody_in_particular_and_says_what_it_is(podman: Podman, image: str) -> None:
    whole = inspected(podman, image)
    told = whole["Config"]
    assert told["User"] == "65532:65532"
    assert told["Entrypoint"] == ["python", "-m"]
    assert told["Labels"]["org.opencontainers.image.version"] == VERSION
    assert told["Labels"]["org.opencontainers.image.licenses"]
    assert whole["Healthcheck"]["Test"][:4] == ["CMD", "python", "-m", "services.common.probe"]


def test_nothing_of_how_it_was_built_is_left(podman: Podman, image: str, inside: Inside) -> None:
    assert [variable for variable in inspected(podman, image)["Config"]["Env"] if variable.startswith("PIP_")] == []
    assert inside("ls -d /etc/pip.conf /source /opt/tools 2>/dev/null; ls -A /mnt /srv /tmp") == (
        "/mnt:\n\n/srv:\n\n/tmp:"
    )
    assert set(inside("ls /opt").split()) <= {"venv", "locks"}
    assert inside("command -v gcc cc g++ ld make; true") == ""
    assert inside("ls /opt/venv/bin /opt/venv/lib/python3.11/site-packages | grep -x pip; true") == ""


def test_none_of_it_can_be_written_by_its_user(inside: Inside) -> None:
    assert inside("find /app /opt /usr /etc -writable -not -type l -print -quit 2>/dev/null; true") == ""


def test_core_is_light_and_knows_no_model(builder: Builder, podman: Podman, core_image: str) -> None:
    assert builder.size(core_image) - builder.size(BASE) <= CORE_BYTES
    heavy = "torch|transformers|diffusers|onnxruntime|cv2|huggingface_hub|scipy|sklearn"
    listed = f"ls /opt/venv/lib/python3.11/site-packages | grep -xE '{heavy}'; ls /app | grep -xE 'experts|tests'; true"
    assert podman("run", "--rm", "--entrypoint", "/bin/sh", core_image, "-c", listed) == ""


@pytest.mark.parametrize(("name", "task"), [("lite", "image-to-text"), ("text", next(iter(TEXT_TASKS)))])
def test_an_expert_describes_itself_without_a_network(
    podman: Podman, request: pytest.FixtureRequest, name: str, task: str
) -> None:
    image = request.getfixturevalue(f"{name}_image")
    command = ("--read-only", "--network=none", image, f"experts.{name}", "--describe")
    described = json.loads(podman("run", "--rm", *command))
    assert described["expert"] == name
    assert task in {model["task"] for model in described["models"]}

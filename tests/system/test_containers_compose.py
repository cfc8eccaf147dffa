"""docker/compose.yaml, used as its README shows: start, read the first API key, send a request."""

from collections.abc import Iterator
from functools import partial

import httpx
import pytest

from gateway.client import HuggingGPT
from tests.containers import CONTAINERS
from tests.containers.compose import Composition, composition
from tests.containers.podman import Podman
from tests.system.conftest import ROOT, eventually

pytestmark = CONTAINERS

SIGN = ROOT / "tests" / "data" / "sign.png"
SERVICES = ("gateway", "orchestrator", "planner", "selector", "responder", "expert-lite")
HEALTHY_SECONDS = 120.0


@pytest.fixture(scope="module")
def composed(podman: Podman, core_image: str, lite_image: str) -> Iterator[Composition]:
    """The default profile, started and healthy."""
    with composition(podman, core=core_image, expert_lite=lite_image) as composed:
        composed.up()
        for service in SERVICES:
            eventually(partial(composed.is_healthy, service), HEALTHY_SECONDS)
        yield composed


@pytest.fixture(scope="module")
def key(composed: Composition) -> str:
    return composed.execute("gateway", "cat", "/data/first-key")


def test_first_key_is_accepted(composed: Composition, key: str) -> None:
    with HuggingGPT(composed.url, api_key=key) as client:
        run = client.ask("Read the text in this image aloud", [SIGN])
    assert run.is_completed, run.failure
    assert [task.task["task"] for task in run.tasks] == ["image-to-text", "text-to-speech"]


def test_request_without_key_is_rejected(composed: Composition) -> None:
    assert httpx.get(f"{composed.url}/v1/tasks", trust_env=False).status_code == httpx.codes.UNAUTHORIZED


def test_first_key_is_not_logged(composed: Composition, key: str) -> None:
    secret = key.rpartition("_")[2]
    assert [service for service, each in composed.containers().items() if secret in each.log()] == []


def test_only_the_gateway_is_published_on_localhost(composed: Composition, podman: Podman) -> None:
    published = {service: podman("port", each.id) for service, each in composed.containers().items()}
    addresses = published.pop("gateway").splitlines()
    assert sorted(address.partition(" -> ")[0] for address in addresses) == ["50051/tcp", "8080/tcp"]
    assert all(address.partition(" -> ")[2].startswith("127.0.0.1:") for address in addresses)
    assert set(published.values()) == {""}


def test_runs_and_keys_survive_recreated_containers(composed: Composition, key: str) -> None:
    with HuggingGPT(composed.url, api_key=key) as client:
        before = client.ask("Is this text happy: I love it")
    composed.down()
    composed.up()
    eventually(lambda: composed.is_healthy("gateway"), HEALTHY_SECONDS)
    assert composed.execute("gateway", "cat", "/data/first-key") == key
    with HuggingGPT(composed.url, api_key=key) as client:
        assert client.get(before.run_id) == before

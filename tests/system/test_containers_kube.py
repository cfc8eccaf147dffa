"""The rendered local overlay runs as pods, and is asked through its gateway."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from gateway.client import AsyncHuggingGPT
from tests.containers import CONTAINERS
from tests.containers import peers as beside
from tests.containers.container import Container
from tests.containers.engine import Engine, Network
from tests.containers.images import Builder
from tests.containers.podman import Podman
from tests.manifests import rendering
from tests.manifests.deployment import House
from tests.manifests.environment import told
from tests.manifests.kube_play import Pod, played
from tests.manifests.rules.security import USER
from tests.support.postgres import PASSWORD
from tests.system.conftest import ROOT

pytestmark = [*CONTAINERS, pytest.mark.needs("kubectl")]

SIGN = ROOT / "tests" / "data" / "sign.png"


@pytest.fixture(scope="module")
def local() -> House:
    return rendering.overlay("local")


@pytest.fixture(scope="module")
def network(local: House, engine: Engine, builder: Builder) -> Iterator[Network]:
    """With the database that the overlay's Secret names, and an S3 API."""
    with engine.network() as network:
        _make_database(beside.start(engine, builder, network).postgres, _database(local))
        yield network


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kube")


@pytest.fixture(scope="module")
def images(core_image: str, lite_image: str) -> tuple[str, str]:
    return core_image, lite_image


@pytest.fixture(scope="module")
def pods(
    local: House, podman: Podman, network: Network, folder: Path, images: tuple[str, str]
) -> Iterator[Mapping[str, Pod]]:
    """All of them, once they are ready."""
    with played(podman, network, local, folder) as pods:
        for pod in pods.values():
            pod.ready()
        yield pods


def _database(house: House) -> str:
    orchestrator = next(each for each in house.workloads if each.name == "orchestrator")
    return told(house, orchestrator.containers[0])["ORCHESTRATOR_JOURNAL"].strip()


def _make_database(postgres: Container, url: str) -> None:
    parts = urlsplit(url)
    role = f"CREATE ROLE {parts.username} LOGIN PASSWORD '{parts.password}'"
    database = f"CREATE DATABASE {parts.path.removeprefix('/')} OWNER {parts.username}"
    for command in (role, database):
        psql = ("psql", "--host=127.0.0.1", "--username=postgres", f"--command={command}")
        postgres.inside("env", f"PGPASSWORD={PASSWORD}", *psql)


async def test_it_is_asked_through_its_gateway(pods: Mapping[str, Pod]) -> None:
    gateway = pods["gateway"]
    key = gateway.inside("python", "-m", "gateway.cli", "keys", "create")
    async with AsyncHuggingGPT(f"http://{gateway.address(8080)}", api_key=key) as client:
        run = await client.ask("Read the text in this image aloud", [SIGN])
    assert run.is_completed, run.failure
    assert [task.task["task"] for task in run.tasks] == ["image-to-text", "text-to-speech"]


def test_containers_are_held_to_what_the_manifests_say(pods: Mapping[str, Pod]) -> None:
    for name, pod in pods.items():
        told = pod.held_to()
        assert told["HostConfig"]["ReadonlyRootfs"], name
        assert told["Config"]["User"].partition(":")[0] == str(USER), name
        assert told["EffectiveCaps"] in (None, []), name
        assert "no-new-privileges" in told["HostConfig"]["SecurityOpt"], name
        assert told["HostConfig"]["Memory"] > 0, name

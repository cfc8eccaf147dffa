"""The rendered local overlay runs as pods and completes a request through its gateway."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from gateway.client import AsyncHuggingGPT
from tests.containers import CONTAINERS, peers
from tests.containers.container import Container
from tests.containers.engine import Engine, Network
from tests.containers.images import Builder
from tests.containers.podman import Podman
from tests.manifests import rendering
from tests.manifests.deployment import Manifests
from tests.manifests.environment import environment_of
from tests.manifests.kube_play import Pod, play
from tests.manifests.rules.security import USER
from tests.support.postgres import PASSWORD
from tests.system.conftest import ROOT

pytestmark = [*CONTAINERS, pytest.mark.needs("kubectl")]

SIGN = ROOT / "tests" / "data" / "sign.png"


@pytest.fixture(scope="module")
def local() -> Manifests:
    return rendering.render_overlay("local")


@pytest.fixture(scope="module")
def network(local: Manifests, engine: Engine, builder: Builder) -> Iterator[Network]:
    """Network with the database that the overlay's Secret names, and an S3 API."""
    with engine.network() as network:
        _create_database(peers.start(engine, builder, network).postgres, _database_url(local))
        yield network


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kube")


@pytest.fixture(scope="module")
def images(core_image: str, lite_image: str) -> tuple[str, str]:
    return core_image, lite_image


@pytest.fixture(scope="module")
def pods(
    local: Manifests, podman: Podman, network: Network, folder: Path, images: tuple[str, str]
) -> Iterator[Mapping[str, Pod]]:
    """All pods by workload name, ready."""
    with play(podman, network, local, folder) as pods:
        for pod in pods.values():
            pod.wait_until_ready()
        yield pods


def _database_url(manifests: Manifests) -> str:
    orchestrator = next(each for each in manifests.workloads if each.name == "orchestrator")
    return environment_of(manifests, orchestrator.containers[0])["ORCHESTRATOR_JOURNAL"].strip()


def _create_database(postgres: Container, url: str) -> None:
    parts = urlsplit(url)
    role = f"CREATE ROLE {parts.username} LOGIN PASSWORD '{parts.password}'"
    database = f"CREATE DATABASE {parts.path.removeprefix('/')} OWNER {parts.username}"
    for command in (role, database):
        psql = ("psql", "--host=127.0.0.1", "--username=postgres", f"--command={command}")
        postgres.execute("env", f"PGPASSWORD={PASSWORD}", *psql)


async def test_request_completes_through_the_gateway(pods: Mapping[str, Pod]) -> None:
    gateway = pods["gateway"]
    key = gateway.execute("python", "-m", "gateway.cli", "keys", "create")
    async with AsyncHuggingGPT(f"http://{gateway.address(8080)}", api_key=key) as client:
        run = await client.ask("Read the text in this image aloud", [SIGN])
    assert run.is_completed, run.failure
    assert [task.task["task"] for task in run.tasks] == ["image-to-text", "text-to-speech"]


def test_pods_apply_the_manifests_security_and_memory_limits(pods: Mapping[str, Pod]) -> None:
    for name, pod in pods.items():
        state = pod.inspect()
        assert state["HostConfig"]["ReadonlyRootfs"], name
        assert state["Config"]["User"].partition(":")[0] == str(USER), name
        assert state["EffectiveCaps"] in (None, []), name
        assert "no-new-privileges" in state["HostConfig"]["SecurityOpt"], name
        assert state["HostConfig"]["Memory"] > 0, name

"""Session fixtures of container tests."""

from collections.abc import Iterator
from importlib.metadata import version

import pytest

from tests.containers import deployment as deployments
from tests.containers import engine as engines
from tests.containers import peers
from tests.containers.deployment import Deployment
from tests.containers.engine import Engine, Network
from tests.containers.images import ROOT, Builder, image_for_tests
from tests.containers.peers import Peers
from tests.containers.podman import Podman

VERSION = version("hugginggpt")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", 'containers: builds and runs real images, in minutes; -m "not containers"')


@pytest.fixture(scope="session")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Podman:
    return Podman.in_folder(tmp_path_factory.mktemp("podman"))


@pytest.fixture(scope="session")
def builder(podman: Podman, tmp_path_factory: pytest.TempPathFactory) -> Builder:
    return Builder(podman, tmp_path_factory.mktemp("builder"))


@pytest.fixture(scope="session")
def engine(podman: Podman) -> Iterator[Engine]:
    """Starts containers, and removes them at the end of the session."""
    with engines.engine(podman) as engine:
        yield engine


@pytest.fixture(scope="session")
def core_image(builder: Builder) -> str:
    """Image of gateway, services and command line."""
    file = ROOT / "docker" / "core.Dockerfile"
    return builder.build(image_for_tests(f"hugginggpt/core:{VERSION}"), file, VERSION=VERSION)


@pytest.fixture(scope="session")
def lite_image(builder: Builder) -> str:
    return _expert(builder, "lite", torch="none")


@pytest.fixture(scope="session")
def text_image(builder: Builder) -> str:
    """Image of an expert with torch."""
    return _expert(builder, "text", torch="cpu")


def _expert(builder: Builder, name: str, *, torch: str) -> str:
    file, image = ROOT / "docker" / "expert.Dockerfile", f"hugginggpt/expert-{name}:{VERSION}"
    return builder.build(image_for_tests(image), file, EXPERTS=name, TORCH=torch, VERSION=VERSION)


@pytest.fixture(scope="session")
def deployment_network(engine: Engine) -> Iterator[Network]:
    with engine.network() as network:
        yield network


@pytest.fixture(scope="session")
def deployment_peers(engine: Engine, builder: Builder, deployment_network: Network) -> Peers:
    """PostgreSQL and S3 on the network of container_deployment."""
    return peers.start(engine, builder, deployment_network)


@pytest.fixture(scope="session")
def container_deployment(
    engine: Engine, deployment_network: Network, core_image: str, deployment_peers: Peers
) -> Iterator[Deployment]:
    """All services without experts; tests remove the experts that they start."""
    with deployments.start_services(engine, deployment_network, core_image, deployment_peers) as deployment:
        yield deployment

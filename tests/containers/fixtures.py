"""What tests with containers ask for; each is made once, when the first of them asks."""

from collections.abc import Iterator
from importlib.metadata import version

import pytest

from tests.containers import deployment as houses
from tests.containers import engine as engines
from tests.containers import peers as beside
from tests.containers.deployment import House
from tests.containers.engine import Engine, Network
from tests.containers.images import ROOT, Builder, of_tests
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
    """Whatever it has started ends with the session."""
    with engines.engine(podman) as engine:
        yield engine


@pytest.fixture(scope="session")
def core_image(builder: Builder) -> str:
    """Gateway, light services and command line."""
    file = ROOT / "docker" / "core.Dockerfile"
    return builder.build(of_tests(f"hugginggpt/core:{VERSION}"), file, VERSION=VERSION)


@pytest.fixture(scope="session")
def lite_image(builder: Builder) -> str:
    return _expert(builder, "lite", torch="none")


@pytest.fixture(scope="session")
def text_image(builder: Builder) -> str:
    """The one expert with torch that tests build."""
    return _expert(builder, "text", torch="cpu")


def _expert(builder: Builder, name: str, *, torch: str) -> str:
    file, image = ROOT / "docker" / "expert.Dockerfile", f"hugginggpt/expert-{name}:{VERSION}"
    return builder.build(of_tests(image), file, EXPERT=name, TORCH=torch, VERSION=VERSION)


@pytest.fixture(scope="session")
def house_network(engine: Engine) -> Iterator[Network]:
    with engine.network() as network:
        yield network


@pytest.fixture(scope="session")
def house_peers(engine: Engine, builder: Builder, house_network: Network) -> Peers:
    """PostgreSQL and S3 on the network of the house."""
    return beside.start(engine, builder, house_network)


@pytest.fixture(scope="session")
def container_house(engine: Engine, house_network: Network, core_image: str, house_peers: Peers) -> Iterator[House]:
    """The house without experts; tests leave it as they found it."""
    with houses.standing(engine, house_network, core_image, house_peers) as house:
        yield house

"""The house as containers on one network, its runs in PostgreSQL and its files in S3."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from gateway.client import AsyncHuggingGPT, HuggingGPT
from tests.containers.container import HEALTH_PORT, Container
from tests.containers.engine import Engine, Network
from tests.containers.peers import Peers
from tests.system.conftest import eventually

HTTP_PORT = 8080
LEASE_SECONDS = 3
LEARNT_SECONDS = 10.0
"""What is promised of an expert that stands: after so long it is planned and chosen."""

_OURS = {
    "SELECTOR_EXPERTS": "dns:///experts:50051",
    "ORCHESTRATOR_LEASE_SECONDS": str(LEASE_SECONDS),
    "HEALTH_LISTEN": f"0.0.0.0:{HEALTH_PORT}",
}


@dataclass(frozen=True)
class Starter:
    """Starts programs of the house on a network.

    Args:
        core: the image of the light services.
        settings: what all of them are told.
    """

    engine: Engine
    network: Network
    core: str
    settings: Mapping[str, str]

    def service(self, name: str, module: str, *aliases: str, ports: Sequence[int] = (), **settings: str) -> Container:
        """A light service, found by its name and by its aliases."""
        return self._start(self.core, module, aliases=(name, *aliases), ports=ports, settings=settings)

    def expert(self, image: str, *module: str, volumes: Sequence[str] = (), **settings: str) -> Container:
        """An expert of which nobody is told.

        Args:
            image: it runs in.
            module: the command.
            volumes: folders of this machine and where they are found inside, as podman takes them.
            settings: its own.
        """
        return self._start(image, *module, aliases=("experts",), volumes=volumes, settings=settings)

    def _start(
        self,
        image: str,
        *command: str,
        aliases: Sequence[str],
        settings: Mapping[str, str],
        ports: Sequence[int] = (),
        volumes: Sequence[str] = (),
    ) -> Container:
        mounted = [f"--volume={volume}" for volume in volumes]
        return self.engine.run(
            image,
            *command,
            network=self.network,
            aliases=aliases,
            environment={**self.settings, **settings},
            ports=(HEALTH_PORT, *ports),
            options=["--volume=/data", "--tmpfs=/tmp", *mounted],
        )


@dataclass(frozen=True)
class House:
    """What stands, and how more of it is started."""

    start: Starter
    peers: Peers
    gateway: Container
    orchestrators: Mapping[str, Container]
    """By the addresses at which each alone is reached."""
    key: str

    @property
    def url(self) -> str:
        return f"http://{self.gateway.address(HTTP_PORT)}"

    def offers(self, task: str, revision: str = "") -> None:
        """Waits until a kind of task can be planned, for as long as a new expert may take to be known.

        Args:
            task: its name.
            revision: of a model that does it; "": any.
        """
        with HuggingGPT(self.url, api_key=self.key) as client:

            def offered() -> bool:
                return any(revision in ("", getattr(model, "revision", "")) for model in client.models(task))

            eventually(offered, LEARNT_SECONDS)

    def owner(self, run_id: str) -> Container:
        """The orchestrator that drives a run."""
        address = self.peers.asked(f"SELECT owner_address FROM runs.runs WHERE id = '{run_id}'")
        return self.orchestrators[address]

    def client(self) -> AsyncHuggingGPT:
        return AsyncHuggingGPT(self.url, api_key=self.key)


@contextmanager
def standing(engine: Engine, network: Network, core: str, peers: Peers) -> Iterator[House]:
    """The light services, two orchestrators and a gateway with a key; no expert yet."""
    start = Starter(engine, network, core, {**peers.environment, **_OURS})
    orchestrators = {f"{name}:50051": _orchestrator(start, name) for name in ("orchestrator-1", "orchestrator-2")}
    others = [start.service(name, f"services.{name}") for name in ("planner", "selector", "responder")]
    gateway = start.service("gateway", "gateway", ports=[HTTP_PORT])
    everybody = (*orchestrators.values(), *others, gateway)
    try:
        for each in everybody:
            each.ready()
        yield House(start, peers, gateway, orchestrators, key=gateway.inside("hugginggpt", "keys", "create"))
    finally:
        for each in everybody:
            each.remove()


def _orchestrator(start: Starter, name: str) -> Container:
    return start.service(name, "services.orchestrator", "orchestrator", ORCHESTRATOR_ADDRESS=f"{name}:50051")

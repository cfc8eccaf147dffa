"""All services as containers on one network, with runs in PostgreSQL and artifacts in S3."""

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
DISCOVERY_SECONDS = 10.0
"""Documented limit after which a new expert is planned and selected."""

_SETTINGS = {
    "SELECTOR_EXPERTS": "dns:///experts:50051",
    "ORCHESTRATOR_LEASE_SECONDS": str(LEASE_SECONDS),
    "HEALTH_LISTEN": f"0.0.0.0:{HEALTH_PORT}",
}


@dataclass(frozen=True)
class Starter:
    """Starts HuggingGPT's programs on a network.

    Args:
        core: Image of gateway and services.
        settings: Environment variables of all programs.
    """

    engine: Engine
    network: Network
    core: str
    settings: Mapping[str, str]

    def service(self, name: str, module: str, *aliases: str, ports: Sequence[int] = (), **settings: str) -> Container:
        """Starts a service; it has its name and the aliases on the network."""
        return self._start(self.core, module, aliases=(name, *aliases), ports=ports, settings=settings)

    def expert(self, image: str, *module: str, volumes: Sequence[str] = (), **settings: str) -> Container:
        """Starts an expert, which the services discover by themselves.

        Args:
            image: Image of the expert.
            module: Command line after the entry point.
            volumes: Values of podman's --volume.
            settings: Environment variables of this expert.
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
class Deployment:
    """Running containers of one deployment, and a starter for more."""

    starter: Starter
    peers: Peers
    gateway: Container
    orchestrators: Mapping[str, Container]
    """Orchestrators by their own address."""
    key: str

    @property
    def url(self) -> str:
        return f"http://{self.gateway.address(HTTP_PORT)}"

    def wait_for_task(self, task: str, revision: str = "") -> None:
        """Waits up to DISCOVERY_SECONDS until a task is offered.

        Args:
            task: Name of the task.
            revision: Revision that one of its models must have; "" for any.
        """
        with HuggingGPT(self.url, api_key=self.key) as client:

            def is_offered() -> bool:
                return any(revision in ("", getattr(model, "revision", "")) for model in client.models(task))

            eventually(is_offered, DISCOVERY_SECONDS)

    def owner(self, run_id: str) -> Container:
        """The orchestrator that owns a run."""
        address = self.peers.query(f"SELECT owner_address FROM runs.runs WHERE id = '{run_id}'")
        return self.orchestrators[address]

    def client(self) -> AsyncHuggingGPT:
        return AsyncHuggingGPT(self.url, api_key=self.key)


@contextmanager
def start_services(engine: Engine, network: Network, core: str, peers: Peers) -> Iterator[Deployment]:
    """Starts all services, two orchestrators and a gateway with an API key, but no expert; removes them at exit."""
    starter = Starter(engine, network, core, {**peers.environment, **_SETTINGS})
    orchestrators = {f"{name}:50051": _orchestrator(starter, name) for name in ("orchestrator-1", "orchestrator-2")}
    others = [starter.service(name, f"services.{name}") for name in ("planner", "selector", "responder")]
    gateway = starter.service("gateway", "gateway", ports=[HTTP_PORT])
    containers = (*orchestrators.values(), *others, gateway)
    try:
        for each in containers:
            each.wait_until_ready()
        yield Deployment(starter, peers, gateway, orchestrators, key=gateway.execute("hugginggpt", "keys", "create"))
    finally:
        for each in containers:
            each.remove()


def _orchestrator(starter: Starter, name: str) -> Container:
    return starter.service(name, "services.orchestrator", "orchestrator", ORCHESTRATOR_ADDRESS=f"{name}:50051")

"""Starts containers and networks of a test session; a label identifies them for removal."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import uuid4

from tests.containers.container import Container
from tests.containers.podman import Podman

LABEL = "hugginggpt.tests"
"""Label of all containers, networks and images of tests; its value is the session."""

PUBLISHED_ADDRESS = "127.0.0.2"
"""Loopback address of published ports. The firewall redirects connections to a published port to the container, even
after a session that was killed; on 127.0.0.1 this would affect servers of other tests."""

_RESTRICTED = ("--read-only", "--cap-drop", "all", "--security-opt", "no-new-privileges")


@dataclass(frozen=True)
class Network:
    """A container network with name resolution."""

    name: str


@dataclass(frozen=True)
class Engine:
    """Starts containers and networks for one session."""

    podman: Podman
    session: str

    @property
    def label(self) -> str:
        return f"{LABEL}={self.session}"

    def run(
        self,
        image: str,
        *command: str,
        network: Network,
        aliases: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        ports: Sequence[int] = (),
        options: Sequence[str] = (),
    ) -> Container:
        """Starts a container without capabilities and with a read-only root file system, as in Kubernetes.

        Args:
            image: Name of the image.
            command: Arguments after the entry point.
            network: Network of the container.
            aliases: Names on the network; several containers may share one.
            environment: Variables that override the image's.
            ports: Ports to publish on PUBLISHED_ADDRESS.
            options: Further options of `podman run`.
        """
        alias_options = ",".join(f"alias={alias}" for alias in aliases)
        network_option = f"--network={network.name}{':' if alias_options else ''}{alias_options}"
        variables = [f"--env={name}={value}" for name, value in (environment or {}).items()]
        published = [f"--publish={PUBLISHED_ADDRESS}::{port}" for port in ports]
        container = self.podman(
            *("run", "--detach", "--label", self.label, network_option),
            *(*_RESTRICTED, *variables, *published, *options, image, *command),
        )
        return Container(container, self.podman)

    @contextmanager
    def network(self) -> Iterator[Network]:
        """Creates a network; removes it with all its containers at exit."""
        name = f"hugginggpt-{uuid4().hex[:12]}"
        self.podman("network", "create", "--label", self.label, name)
        try:
            yield Network(name)
        finally:
            self.podman("network", "rm", "--force", "--time", "0", name)

    def clear(self) -> None:
        """Removes all containers and networks of this session."""
        session_filter = f"label={self.label}"
        if containers := self.podman("ps", "--all", "--quiet", "--filter", session_filter).split():
            self.podman("rm", "--force", "--volumes", "--time", "0", *containers)
        if networks := self.podman("network", "ls", "--quiet", "--filter", session_filter).split():
            self.podman("network", "rm", "--force", *networks)


@contextmanager
def engine(podman: Podman) -> Iterator[Engine]:
    """Yields an engine, and removes all its containers and networks at exit."""
    running = Engine(podman, uuid4().hex)
    try:
        yield running
    finally:
        running.clear()

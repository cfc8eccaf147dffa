"""What runs containers: each bears a label, and goes in the end."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import uuid4

from tests.containers.container import Container
from tests.containers.podman import Podman

LABEL = "hugginggpt.tests"
"""On everything that tests make: which session it was."""

_RESTRICTED = ("--read-only", "--cap-drop", "all", "--security-opt", "no-new-privileges")


@dataclass(frozen=True)
class Network:
    """Where containers find each other by name."""

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
        """Starts a container as a cluster with strict rules would: nothing of the image can be written.

        Args:
            image: its name.
            command: what follows its entry point.
            network: where it is.
            aliases: names by which others there find it; many may have the same.
            environment: over the image's own.
            ports: reached from outside.
            options: of podman run.
        """
        named = ",".join(f"alias={alias}" for alias in aliases)
        given = [f"--env={name}={value}" for name, value in (environment or {}).items()]
        published = [f"--publish=127.0.0.1::{port}" for port in ports]
        made = self.podman(
            *("run", "--detach", "--label", self.label, f"--network={network.name}{':' if named else ''}{named}"),
            *(*_RESTRICTED, *given, *published, *options, image, *command),
        )
        return Container(made, self.podman)

    @contextmanager
    def network(self) -> Iterator[Network]:
        """A network of its own, with names; nobody on it outlives it."""
        name = f"hugginggpt-{uuid4().hex[:12]}"
        self.podman("network", "create", "--label", self.label, name)
        try:
            yield Network(name)
        finally:
            self.podman("network", "rm", "--force", "--time", "0", name)

    def clear(self) -> None:
        """Removes what this session has run."""
        mine = f"label={self.label}"
        if containers := self.podman("ps", "--all", "--quiet", "--filter", mine).split():
            self.podman("rm", "--force", "--volumes", "--time", "0", *containers)
        if networks := self.podman("network", "ls", "--quiet", "--filter", mine).split():
            self.podman("network", "rm", "--force", *networks)


@contextmanager
def engine(podman: Podman) -> Iterator[Engine]:
    """An engine; in the end nothing runs that it has started."""
    running = Engine(podman, uuid4().hex)
    try:
        yield running
    finally:
        running.clear()

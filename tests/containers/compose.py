"""docker/compose.yaml brought up by podman-compose, on ports of its own."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import uuid4

from services.local.ports import free_address
from tests.containers.container import Container
from tests.containers.images import ROOT
from tests.containers.podman import Podman

UP_SECONDS = 300.0
_FILE = ROOT / "docker" / "compose.yaml"
_REPOSITORY = "localhost/hugginggpt"


@dataclass(frozen=True)
class Composition:
    """A project of podman-compose.

    Args:
        http: host:port of its gateway.
        grpc: likewise.
        name: of the project, and the tag of its images.
    """

    podman: Podman
    http: str
    grpc: str
    name: str

    @property
    def url(self) -> str:
        return f"http://{self.http}"

    def up(self) -> None:
        self._compose("up", "--detach")

    def down(self, *options: str) -> None:
        self._compose("down", "--timeout", "20", *options)

    def containers(self) -> dict[str, Container]:
        """Those that run, by service."""
        label = "io.podman.compose.service"
        mine = f"label=io.podman.compose.project={self.name}"
        told = self.podman("ps", "--filter", mine, "--format", f'{{{{index .Labels "{label}"}}}} {{{{.ID}}}}')
        pairs = (line.split() for line in told.splitlines())
        return {service: Container(container, self.podman) for service, container in pairs}

    def is_healthy(self, service: str) -> bool:
        """Whether its image's own health check says so; nobody runs that by the clock here."""
        found = self.containers().get(service)
        return found is not None and self._succeeds("podman", "healthcheck", "run", found.id)

    def inside(self, service: str, *command: str) -> str:
        """What a command prints that is run in a service, as the README has people do it."""
        return self._compose("exec", "-T", service, *command)

    def _succeeds(self, *command: str) -> bool:
        done = subprocess.run(command, env=self.podman.environment, capture_output=True, check=False, timeout=60)
        return done.returncode == 0

    def _compose(self, *arguments: str) -> str:
        ports = (f"HTTP_PORT={self.http.rpartition(':')[2]}", f"GRPC_PORT={self.grpc.rpartition(':')[2]}")
        told = ("env", f"TAG={self.name}", *ports, "podman-compose")
        return self.podman.told(
            *told, "--project-name", self.name, "--file", str(_FILE), *arguments, seconds=UP_SECONDS
        )


@contextmanager
def composition(podman: Podman, **images: str) -> Iterator[Composition]:
    """A project; in the end nothing of it is left.

    Args:
        podman: runs it.
        images: by the names that the file has for them, with _ for -.
    """
    name = f"hugginggpt-{uuid4().hex[:12]}"
    tags = {f"{_REPOSITORY}/{image.replace('_', '-')}:{name}": built for image, built in images.items()}
    for tag, built in tags.items():
        podman("tag", built, tag)
    composed = Composition(
        podman, free_address("127.0.0.1:0", option="http"), free_address("127.0.0.1:0", option="grpc"), name
    )
    try:
        yield composed
    finally:
        composed.down("--volumes")
        for tag in tags:
            podman("untag", tag, tag)

"""Starts docker/compose.yaml with podman-compose on free ports."""

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
        http: host:port of the gateway's HTTP server.
        grpc: host:port of the gateway's gRPC server.
        name: Name of the project, and tag of its images.
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
        """Running containers by service."""
        label = "io.podman.compose.service"
        project_filter = f"label=io.podman.compose.project={self.name}"
        output = self.podman(
            "ps", "--filter", project_filter, "--format", f'{{{{index .Labels "{label}"}}}} {{{{.ID}}}}'
        )
        pairs = (line.split() for line in output.splitlines())
        return {service: Container(container, self.podman) for service, container in pairs}

    def is_healthy(self, service: str) -> bool:
        """Runs the image's health check once: podman without systemd does not schedule it."""
        found = self.containers().get(service)
        return found is not None and self._succeeds("podman", "healthcheck", "run", found.id)

    def execute(self, service: str, *command: str) -> str:
        """Runs a command in a service's container, as the README shows, and returns its output."""
        return self._compose("exec", "-T", service, *command)

    def _succeeds(self, *command: str) -> bool:
        done = subprocess.run(command, env=self.podman.environment, capture_output=True, check=False, timeout=60)
        return done.returncode == 0

    def _compose(self, *arguments: str) -> str:
        ports = (f"HTTP_PORT={self.http.rpartition(':')[2]}", f"GRPC_PORT={self.grpc.rpartition(':')[2]}")
        program = ("env", f"TAG={self.name}", *ports, "podman-compose")
        return self.podman.run(
            *program, "--project-name", self.name, "--file", str(_FILE), *arguments, seconds=UP_SECONDS
        )


@contextmanager
def composition(podman: Podman, **images: str) -> Iterator[Composition]:
    """Yields a project that is not started yet; removes its containers, volumes and tags at exit.

    Args:
        podman: Runs the project.
        images: Image ids by the name in compose.yaml, with _ instead of -.
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

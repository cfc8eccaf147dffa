"""A container started by podman."""

import json
import subprocess
from dataclasses import dataclass
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.containers.podman import Podman

HEALTH_PORT = 50052
READY_SECONDS = 90.0
_NO_PROXY = (("grpc.enable_http_proxy", 0),)


@dataclass(frozen=True)
class Container:
    """A started container, controlled with podman commands."""

    id: str
    podman: Podman

    def address(self, port: int) -> str:
        """host:port of a published port on this machine."""
        return self.podman("port", self.id, str(port)).splitlines()[0]

    def execute(self, *command: str) -> str:
        """Runs a command in the container and returns its output."""
        return self.podman("exec", self.id, *command)

    def log(self) -> str:
        """The container's standard output and error so far."""
        command = ["podman", "logs", self.id]
        done = subprocess.run(
            command,
            env=self.podman.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=True,
        )
        return done.stdout

    def wait_for_log(self, text: str, seconds: float = READY_SECONDS) -> str:
        """Waits for a log line that contains a text, and returns the line."""
        with self.podman.follow_log(self.id, seconds) as lines:
            for line in lines:
                if text in line:
                    return line
        raise AssertionError(f"the container did not log {text!r}: {self.log()[-4000:]}")

    def state(self) -> Any:
        """The state that `podman inspect` reports."""
        return json.loads(self.podman("inspect", self.id))[0]["State"]

    def wait_until_ready(self, name: str = "readiness", seconds: float = READY_SECONDS) -> None:
        """Waits until the container's health service reports SERVING."""
        with grpc.insecure_channel(self.address(HEALTH_PORT), options=_NO_PROXY) as channel:
            stub: Any = health_pb2_grpc.HealthStub(channel)
            request = health_pb2.HealthCheckRequest(service=name)
            watch = stub.Watch(request, timeout=seconds, wait_for_ready=True)
            try:
                next(reply for reply in watch if reply.status == health_pb2.HealthCheckResponse.SERVING)
            except (grpc.RpcError, StopIteration) as error:
                raise AssertionError(f"the container is not ready: {self.log()[-4000:]}") from error
            watch.cancel()

    def stop(self, seconds: int) -> None:
        """Sends SIGTERM, and SIGKILL after the given seconds, as Kubernetes does."""
        self.podman("stop", "--time", str(seconds), self.id, seconds=seconds + 30)

    def kill(self) -> None:
        """Sends SIGKILL."""
        self.podman("kill", "--signal", "KILL", self.id)

    def start(self) -> None:
        """Restarts the container with its files."""
        self.podman("start", self.id)

    def remove(self) -> None:
        self.podman("rm", "--force", "--volumes", "--time", "0", self.id)

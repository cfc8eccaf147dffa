"""A container that runs, or ran."""

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
    """Told what to do by podman."""

    id: str
    podman: Podman

    def address(self, port: int) -> str:
        """host:port at which one of its published ports is reached from outside."""
        return self.podman("port", self.id, str(port)).splitlines()[0]

    def inside(self, *command: str) -> str:
        """What a command prints that is run in it."""
        return self.podman("exec", self.id, *command)

    def log(self) -> str:
        """What it has written on standard output and error."""
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

    def said(self, words: str, seconds: float = READY_SECONDS) -> str:
        """The first line with these words, once it is written."""
        with self.podman.following(self.id, seconds) as lines:
            for line in lines:
                if words in line:
                    return line
        raise AssertionError(f"it never said {words!r}: {self.log()[-4000:]}")

    def state(self) -> Any:
        """As podman inspect says."""
        return json.loads(self.podman("inspect", self.id))[0]["State"]

    def ready(self, name: str = "readiness", seconds: float = READY_SECONDS) -> None:
        """Waits until it serves, going by the health that it publishes."""
        with grpc.insecure_channel(self.address(HEALTH_PORT), options=_NO_PROXY) as channel:
            stub: Any = health_pb2_grpc.HealthStub(channel)
            request = health_pb2.HealthCheckRequest(service=name)
            watch = stub.Watch(request, timeout=seconds, wait_for_ready=True)
            try:
                next(reply for reply in watch if reply.status == health_pb2.HealthCheckResponse.SERVING)
            except (grpc.RpcError, StopIteration) as error:
                raise AssertionError(f"it is not ready: {self.log()[-4000:]}") from error
            watch.cancel()

    def stop(self, seconds: int) -> None:
        """As a cluster does: SIGTERM, and so many seconds until SIGKILL."""
        self.podman("stop", "--time", str(seconds), self.id, seconds=seconds + 30)

    def kill(self) -> None:
        """Without a word."""
        self.podman("kill", "--signal", "KILL", self.id)

    def start(self) -> None:
        """Again, with what it had."""
        self.podman("start", self.id)

    def remove(self) -> None:
        self.podman("rm", "--force", "--volumes", "--time", "0", self.id)

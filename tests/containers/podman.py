"""Runs podman and buildah, configured for machines that do not allow raising resource limits."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Timer

SECONDS = 60.0

_CONF = """\
[containers]
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
[engine]
runtime = "runc"
[network]
network_backend = "netavark"
"""


@dataclass(frozen=True)
class Podman:
    """Runs commands with its own containers.conf."""

    conf: Path

    @classmethod
    def in_folder(cls, folder: Path) -> "Podman":
        conf = folder / "containers.conf"
        conf.write_text(_CONF)
        return cls(conf)

    @property
    def environment(self) -> dict[str, str]:
        """Environment for programs that run podman themselves."""
        programs = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
        return {**os.environ, "CONTAINERS_CONF": str(self.conf), "PATH": programs}

    def __call__(self, *arguments: str, seconds: float = SECONDS) -> str:
        """Runs podman and returns its standard output."""
        return self.run("podman", *arguments, seconds=seconds)

    def run(self, *command: str, seconds: float = SECONDS) -> str:
        """Runs a command and returns its standard output.

        Raises:
            RuntimeError: The command failed; the message contains the end of its output.
        """
        try:
            done = subprocess.run(
                command, env=self.environment, capture_output=True, text=True, check=True, timeout=seconds
            )
        except subprocess.CalledProcessError as error:
            output_tail = (error.stdout + error.stderr)[-6000:]
            raise RuntimeError(f"{' '.join(command)} ended with {error.returncode}: {output_tail}") from None
        return done.stdout.strip()

    @contextmanager
    def follow_log(self, container: str, seconds: float) -> Iterator[Iterator[str]]:
        """Yields the lines of a container's log, existing and new, for at most `seconds`."""
        command = ["podman", "logs", "--follow", container]
        with subprocess.Popen(
            command, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            assert process.stdout
            limit = Timer(seconds, process.kill)
            limit.start()
            try:
                yield iter(process.stdout)
            finally:
                limit.cancel()
                process.kill()

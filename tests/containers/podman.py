"""Podman's and buildah's commands, told how to work where limits cannot be raised."""

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
    """What runs commands; its set-up is in a file of its own."""

    conf: Path

    @classmethod
    def in_folder(cls, folder: Path) -> "Podman":
        conf = folder / "containers.conf"
        conf.write_text(_CONF)
        return cls(conf)

    @property
    def environment(self) -> dict[str, str]:
        """For programs that run podman themselves."""
        programs = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
        return {**os.environ, "CONTAINERS_CONF": str(self.conf), "PATH": programs}

    def __call__(self, *arguments: str, seconds: float = SECONDS) -> str:
        """What podman prints on standard output."""
        return self.told("podman", *arguments, seconds=seconds)

    def told(self, *command: str, seconds: float = SECONDS) -> str:
        """What a command prints on standard output.

        Raises:
            RuntimeError: it failed; its last words are told.
        """
        try:
            done = subprocess.run(
                command, env=self.environment, capture_output=True, text=True, check=True, timeout=seconds
            )
        except subprocess.CalledProcessError as error:
            last = (error.stdout + error.stderr)[-6000:]
            raise RuntimeError(f"{' '.join(command)} ended with {error.returncode}: {last}") from None
        return done.stdout.strip()

    @contextmanager
    def following(self, container: str, seconds: float) -> Iterator[Iterator[str]]:
        """The lines that a container has written and writes, for so long at most."""
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

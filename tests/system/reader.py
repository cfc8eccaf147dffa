"""A reader of the documentation, who types its commands and programs at a running local stack."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.system.conftest import ROOT, LocalStack, environment

SECONDS = 150.0


class Reader:
    """Types in a folder that contains tests/ and nothing else of the repository.

    Args:
        folder: an empty folder.
        stack: answers in place of the local stack at the default address.
    """

    def __init__(self, folder: Path, stack: LocalStack) -> None:
        self.folder, self.python = folder, sys.executable
        self._stack = stack
        (folder / "tests").symlink_to(ROOT / "tests")
        self._environment = environment(stack.home, HUGGINGGPT_URL=stack.url)
        self._environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

    def type(self, commands: str, status: int = 0) -> str:
        """Runs shell commands until one fails, and returns their output, standard error included."""
        done = self._run(self._shell(commands))
        assert done.returncode == status, f"{commands}\n{done.stdout}"
        return done.stdout

    def succeeds(self, command: str) -> bool:
        """Whether a shell command exits with status 0."""
        return self._run(self._shell(command)).returncode == 0

    def run_program(self, program: str) -> str:
        """Runs a Python program and returns its output, standard error included."""
        done = self._run([self.python, "-c", self._at_stack(program)])
        assert done.returncode == 0, done.stdout
        return done.stdout

    @contextmanager
    def background(self, command: str) -> Iterator[None]:
        """Runs one shell command while the block is active."""
        with subprocess.Popen(
            ["bash", "-c", f"exec env {command}"],
            cwd=self.folder,
            env=self._environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process:
            try:
                yield
            finally:
                process.terminate()

    def _shell(self, commands: str) -> Sequence[str]:
        return ["bash", "-eo", "pipefail", "-c", self._at_stack(commands)]

    def _at_stack(self, text: str) -> str:
        return text.replace("http://127.0.0.1:8080", self._stack.url)

    def _run(self, command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            command,
            cwd=self.folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
            check=False,
        )

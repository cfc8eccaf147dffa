"""Fixtures of system tests: a local stack, that is all services in a subprocess with its own ports and home folder."""

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import httpx
import psutil
import pytest

from services.common.channel import dial
from services.local.ports import Ports
from tests.service.conftest import peer_addresses, peers

__all__ = ["peer_addresses", "peers"]

ROOT = Path(__file__).parents[2]
START_SECONDS = 90.0
EXPERTS_SECONDS = 100.0
ANY_PORTS = ("--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0")


@dataclass(frozen=True)
class CommandResult:
    """Exit status and output of a command."""

    status: int
    out: str
    err: str


@dataclass(frozen=True)
class LocalStack:
    """A running local stack.

    Args:
        process: the supervisor.
        home: the folder with its journal, artifacts and log.
        url: of the HTTP API.
        grpc: host:port of the gRPC API.
        children: process ids at the start, by name.
        log: the file with standard error of all processes.
    """

    process: "subprocess.Popen[str]"
    home: Path
    url: str
    grpc: str
    children: Mapping[str, int]
    log: Path

    def run_cli(self, *arguments: str, seconds: float = 60) -> CommandResult:
        return run_cli(self.home, *arguments, url=self.url, seconds=seconds)

    def child_pids(self) -> frozenset[int]:
        """Current process ids of the supervisor's children."""
        return frozenset(child.pid for child in psutil.Process(self.process.pid).children())

    def expert_pid(self, name: str) -> int:
        """Current process id of an expert."""
        children = psutil.Process(self.process.pid).children()
        (found,) = (child.pid for child in children if f"experts.{name}" in child.cmdline())
        return found

    def wait_for_experts(self, *names: str, seconds: float = EXPERTS_SECONDS) -> None:
        """Waits until each of these experts answers and offers tasks."""

        def are_ready() -> bool:
            listed = httpx.get(f"{self.url}/v1/experts", timeout=10, trust_env=False).raise_for_status().json()["data"]
            ready = {expert["name"] for expert in listed if expert.get("addresses") and expert.get("tasks")}
            return ready.issuperset(names)

        eventually(are_ready, seconds)

    def ask(self, request: str, *files: Path, fresh: bool = False, seconds: float = 60) -> Any:
        """Runs `hugginggpt ask --json` and returns the document that it prints."""
        options = [argument for file in files for argument in ("--file", str(file))] + ["--fresh"] * fresh
        result = self.run_cli("ask", request, *options, "--out", str(self.home / "out"), "--json", seconds=seconds)
        assert result.out, result.err
        return json.loads(result.out)


def environment(home: Path, **settings: str) -> dict[str, str]:
    """Returns the environment of a process without settings of this machine for HuggingGPT."""
    prefixes = (
        "LLM_",
        "PLANNER_",
        "SELECTOR_",
        "RESPONDER_",
        "GATEWAY_",
        "HUGGINGGPT_",
        "ARTIFACTS_",
        "LOG_",
        "DRAIN_",
    )
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(prefixes)}
    defaults = {"PYTHONPATH": str(ROOT), "HUGGINGGPT_HOME": str(home), "NO_COLOR": "1", "COLUMNS": "200"}
    return {**inherited, **defaults, **settings}


def run_cli(home: Path, *arguments: str, url: str = "", seconds: float = 60) -> CommandResult:
    """Runs the command line of HuggingGPT."""
    done = subprocess.run(
        [sys.executable, "-m", "gateway.cli", *arguments],
        env=environment(home, **({"HUGGINGGPT_URL": url} if url else {})),
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    return CommandResult(done.returncode, done.stdout, done.stderr)


@contextmanager
def start_local_stack(home: Path, *options: str, **settings: str) -> Iterator[LocalStack]:
    """Starts a local stack and kills it when the block exits.

    Args:
        home: folder for everything that it stores.
        options: of its command line.
        settings: additional environment variables.
    """
    home.mkdir(parents=True, exist_ok=True)
    log = home / "log"
    command = [sys.executable, "-m", "services.local", *ANY_PORTS, *options]
    with (
        log.open("wb") as written,
        subprocess.Popen(
            command, env=environment(home, **settings), stdout=subprocess.PIPE, stderr=written, text=True
        ) as process,
    ):
        try:
            ready = _ready(process, log)
            yield LocalStack(process, home, ready["url"], ready["grpc"], ready["children"], log)
        finally:
            process.kill()
    wait_for_exit(*ready["children"].values())


@contextmanager
def run_expert(home: Path, *module: str) -> Iterator[str]:
    """Runs an expert's module as a separate process and yields its address."""
    with Ports() as ports:
        address = ports.reserve()
        command = [sys.executable, "-m", *module]
        with subprocess.Popen(
            command, env=environment(home, EXPERT_LISTEN=address), stderr=subprocess.DEVNULL
        ) as process:
            try:
                yield address
            finally:
                process.terminate()


def _ready(process: "subprocess.Popen[str]", log: Path) -> Any:
    assert process.stdout
    readable, _, _ = select.select([process.stdout], [], [], START_SECONDS)
    line = process.stdout.readline() if readable else ""
    assert line, log.read_text()
    return json.loads(line)


@pytest.fixture(scope="session")
def local_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    """A stack shared by all tests of the session, which must leave it running."""
    with start_local_stack(tmp_path_factory.mktemp("home")) as local_stack:
        yield local_stack


@pytest.fixture
async def http(local_stack: LocalStack) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=local_stack.url, timeout=80, trust_env=False) as client:
        yield client


@pytest.fixture
async def channel(local_stack: LocalStack) -> AsyncIterator[grpc.aio.Channel]:
    async with dial(local_stack.grpc) as channel:
        yield channel


def eventually(holds: Callable[[], bool], seconds: float = 30) -> None:
    """Polls a condition until it is true.

    Raises:
        AssertionError: it is still false after these seconds.
    """
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"the condition was still false after {seconds} s"
        time.sleep(0.1)


def wait_for_exit(*pids: int) -> None:
    """Waits until processes have ended; a zombie counts as ended."""

    def is_over(pid: int) -> bool:
        try:
            return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    eventually(lambda: all(map(is_over, pids)))

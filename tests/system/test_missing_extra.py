"""Experts whose extra is not installed, in local services started as a user starts them."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.system.conftest import ANY_PORTS, ROOT, environment, start_local_stack

pytestmark = pytest.mark.slow

BLOCKING = """
import os, sys

class Blocked:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in os.environ["BLOCKED_MODULES"].split(","):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked)
"""
"""Makes modules absent in every process that starts with it on its path."""


@pytest.fixture
def without(tmp_path: Path) -> Any:
    """Environment in which modules appear not to be installed."""
    folder = tmp_path / "blocking"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(BLOCKING)

    def of(*modules: str) -> dict[str, str]:
        return {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", "BLOCKED_MODULES": ",".join(modules)}

    return of


def up(home: Path, experts: str, settings: dict[str, str]) -> str:
    """Standard error of `hugginggpt up`, which is stopped once it is ready and has named an install command."""
    command = [sys.executable, "-m", "gateway.cli", "up", *ANY_PORTS, "--experts", experts]
    home.mkdir(exist_ok=True)
    with subprocess.Popen(command, env=environment(home, **settings), stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr
            output: list[str] = []
            while not all(part in "".join(output) for part in ("is ready", "pip install")):
                output.append(process.stderr.readline())
            process.send_signal(signal.SIGINT)
            output += process.stderr  # communicate() would skip what is already buffered here
        finally:
            process.kill()
    return "".join(output)


def offered(url: str) -> set[str]:
    return {expert["name"] for expert in httpx.get(f"{url}/v1/experts", timeout=10).json()["data"]}


def test_services_start_without_an_expert_whose_extra_is_missing(tmp_path: Path, without: Any) -> None:
    settings = without("huggingface_hub")
    with start_local_stack(tmp_path / "home", "--experts", "lite,remote", **settings) as services:
        assert offered(services.url) == {"lite"}
        assert "remote" not in services.children
        log = services.log.read_text()
    lines = [json.loads(line) for line in log.splitlines() if "expert not started" in line]
    assert [line["expert"] for line in lines] == ["remote"]
    assert "pip install" in lines[0]["remedy"]
    assert "[remote]" in lines[0]["remedy"]
    assert "huggingface_hub" in lines[0]["error"]
    assert "Traceback" not in log


def test_services_start_though_every_expert_lacks_its_extra(tmp_path: Path, without: Any) -> None:
    with start_local_stack(
        tmp_path / "home", "--experts", "remote,text", **without("huggingface_hub", "torch")
    ) as services:
        assert offered(services.url) == set()
        log = services.log.read_text()
    assert "child died" not in log
    assert log.count("expert not started") == 2


def test_up_names_the_expert_that_lacks_its_extra_in_one_line(tmp_path: Path, without: Any) -> None:
    output = up(tmp_path / "home", "remote", without("huggingface_hub"))
    assert "HuggingGPT is ready" in output
    lines = [line for line in output.splitlines() if "pip install" in line]
    assert len(lines) == 1, output
    assert "remote" in lines[0]
    assert "Traceback" not in output

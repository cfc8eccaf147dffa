"""The commands of README.md, in the order in which a reader types them, at a running local stack."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.readme import README
from tests.support.pages import read_section
from tests.system.conftest import ROOT, LocalStack, environment

pytestmark = [pytest.mark.slow, pytest.mark.needs("bash"), pytest.mark.needs("curl")]

SECTIONS = ("Start", "Call it", "Store a pipeline and run it over files")
NOT_RUN = re.compile(r"git clone |make |export PATH=")
"""Installation and start, which `make demo` and the local stack do here."""


def commands(section: str) -> list[str]:
    """Lines of the shell samples of a section, without those that install and start."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", read_section(README, section), re.DOTALL | re.MULTILINE)
    return [line for block in blocks for line in block.splitlines() if not NOT_RUN.match(line)]


@pytest.mark.timeout(600)  # reads twenty images, on a machine that may be busy
def test_commands_succeed_in_order(local_stack: LocalStack, tmp_path: Path) -> None:
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    environ = environment(local_stack.home, HUGGINGGPT_URL=local_stack.url)
    environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environ["PYTHONPATH"] = str(ROOT)
    for section in SECTIONS:
        for line in commands(section):
            command = line.replace("http://127.0.0.1:8080", local_stack.url)
            done = subprocess.run(
                ["bash", "-c", command], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False
            )
            expected = 1 if "exit status 1" in line else 0
            assert done.returncode == expected, (line, done.stdout, done.stderr)
    assert (tmp_path / "spoken" / "results.csv").is_file()
    assert "\nformat: hugginggpt/pipeline/1\n" in (tmp_path / "read-aloud.yaml").read_text(encoding="utf-8")

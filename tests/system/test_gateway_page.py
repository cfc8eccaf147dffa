"""The shell commands of gateway/README.md, run in the order of the page against a local stack."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.system.conftest import ROOT, LocalStack, environment

pytestmark = [pytest.mark.slow, pytest.mark.needs("bash", "curl")]

PAGE = (ROOT / "gateway" / "README.md").read_text(encoding="utf-8")


def commands(section: str) -> str:
    """The first shell block of a section."""
    text = PAGE.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    found = re.search(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert found
    return found[1]


def run_commands(stack: LocalStack, folder: Path, text: str) -> str:
    """Runs commands in a folder that contains tests/, and returns their output. A failing one is an error."""
    (folder / "tests").symlink_to(ROOT / "tests")
    variables = environment(stack.home, HUGGINGGPT_URL=stack.url)
    variables["PATH"] = f"{Path(sys.executable).parent}:{variables['PATH']}"
    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", text.replace("http://127.0.0.1:8080", stack.url)],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_http_requests_return_a_run_and_its_events(local_stack: LocalStack, tmp_path: Path) -> None:
    output = run_commands(local_stack, tmp_path, commands("HTTP"))
    assert "691.74" in output
    assert "run_ended" in output


def test_command_line_examples_succeed(local_stack: LocalStack, tmp_path: Path) -> None:
    output = run_commands(local_stack, tmp_path, commands("Command line"))
    assert "image-to-text" in output


def test_pipeline_examples_save_run_and_export(local_stack: LocalStack, tmp_path: Path) -> None:
    before_batches = commands("Pipelines and batches").partition("hugginggpt batch ")[0]
    output = run_commands(local_stack, tmp_path, before_batches)
    assert "read-aloud" in output
    assert (tmp_path / "read-aloud.yaml").is_file()

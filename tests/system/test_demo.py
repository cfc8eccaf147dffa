"""The commands of `make demo` at a running local stack: a request, its saved plan, and a batch over twenty images."""

import csv
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.system.conftest import ROOT, LocalStack, environment

SECONDS = 250

MOODS = {"florist.png": "positive", "theatre.png": "positive", "road.png": "negative"}


@pytest.fixture
def demo(local_stack: LocalStack, tmp_path: Path) -> "subprocess.CompletedProcess[str]":
    """Runs the commands of the Makefile's target in a separate folder."""
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    python = f"PY={shlex.quote(sys.executable)}"
    dry_run = ["make", "--dry-run", "--assume-old=.venv/.laptop", "--directory", str(ROOT), "demo", python]
    commands = subprocess.run(dry_run, capture_output=True, text=True, check=True, env=os.environ | {"MAKEFLAGS": ""})
    script = "".join(line for line in commands.stdout.splitlines(keepends=True) if not line.startswith("make"))
    return subprocess.run(
        ["bash", "-e", "-c", script],
        cwd=tmp_path,
        env=environment(local_stack.home, HUGGINGGPT_URL=local_stack.url),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


@pytest.mark.needs("make")
@pytest.mark.timeout(300)  # reads twenty images, on a machine that may be busy
async def test_demo_batch_reports_its_one_broken_image(
    demo: "subprocess.CompletedProcess[str]", tmp_path: Path, http: httpx.AsyncClient
) -> None:
    assert demo.returncode == 0, demo.stderr
    assert "20 items: 19 completed, 1 failed" in demo.stdout
    assert "1 × cannot decode museum.png" in demo.stdout
    # Reused if another test has run the same commands at this local stack.
    assert "s per item" in demo.stdout or "every result was reused from an earlier run" in demo.stdout
    spoken = tmp_path / "out/spoken"
    found = [json.loads(line) for line in (spoken / "results.jsonl").read_text("utf-8").splitlines()]
    signs = sorted(path.name for path in (tmp_path / "out/signs").iterdir())
    assert [line["name"] for line in found] == signs
    assert len(found) == 20
    for line in found:
        assert (line["error"] is None) == (line["name"] != "museum.png"), line
        for output in line["outputs"].values():
            if isinstance(output, dict) and "path" in output:
                assert (spoken / output["path"]).stat().st_size == output["artifact"]["size_bytes"]
    with (spoken / "results.csv").open(encoding="utf-8", newline="") as rows:
        assert [row["name"] for row in csv.DictReader(rows)] == signs
    assert {line["name"]: sentiment(line) for line in found if line["name"] in MOODS} == MOODS
    for line in found:
        record = (await http.get(f"/v1/runs/{line['run_id']}/record")).json()
        assert [decision["controller"] for decision in record["planning"]] == ["supplied"]


def sentiment(line: dict[str, Any]) -> Any:
    """The sentiment reported for a sign."""
    (mood,) = (value for name, value in line["outputs"].items() if name.endswith(".text"))
    return mood

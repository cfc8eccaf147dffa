"""`hugginggpt resume` completes a batch with the usual results after the command and the services were killed."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.system.conftest import LocalStack, environment, eventually, run_cli, start_local_stack
from tests.system.test_local_stack_killed import ITEMS, PLAN, comparable_lines, kill

pytestmark = pytest.mark.slow

COMMAND = ("batch", "mood", "--max-at-once", "8", "--fresh", "--items")
SETTINGS = {"ORCHESTRATOR_LEASE_SECONDS": "2"}


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "results.jsonl").read_text("utf-8").splitlines()]


def current_batch(local_stack: LocalStack) -> Any:
    (batch,) = httpx.get(f"{local_stack.url}/v1/pipeline-batches", trust_env=False).raise_for_status().json()[
        "data"
    ] or [{}]
    return batch


def has_progress(local_stack: LocalStack) -> bool:
    return bool(current_batch(local_stack).get("counts", {}).get("completed", 0) >= ITEMS // 8)


def test_batch_resumes_after_command_and_services_were_killed(tmp_path: Path) -> None:
    """Some items lack their text; the command and all services are killed."""
    notes, killed, undisturbed = (str(tmp_path / name) for name in ("notes.csv", "killed", "undisturbed"))
    rows = (f"{number},{'' if number % 17 == 0 else f'Note {number} is good.'}\n" for number in range(1, ITEMS + 1))
    Path(notes).write_text("name,text\n" + "".join(rows), "utf-8")
    home = tmp_path / "home"
    with start_local_stack(home, **SETTINGS) as local_stack:
        saved = httpx.put(f"{local_stack.url}/v1/pipelines/mood", json={"plan": PLAN}, trust_env=False)
        assert saved.is_success, saved.text
        with subprocess.Popen(
            [sys.executable, "-m", "gateway.cli", *COMMAND, notes, "--out", killed],
            env=environment(home, HUGGINGGPT_URL=local_stack.url),
            stderr=subprocess.DEVNULL,
        ) as process:
            eventually(lambda: has_progress(local_stack))
            process.kill()
        batch = current_batch(local_stack)
        kill(local_stack.process.pid)
        assert batch["counts"]["waiting"] > 0
    with start_local_stack(home, **SETTINGS) as local_stack:
        resumed = run_cli(home, "resume", batch["batch_id"], "--out", killed, url=local_stack.url, seconds=100)
        again = run_cli(home, *COMMAND, notes, "--out", undisturbed, url=local_stack.url, seconds=100)
        assert resumed.status == 1, (resumed, again)
        assert again.status == 1, (resumed, again)
        assert comparable_lines(lines(Path(killed))) == comparable_lines(lines(Path(undisturbed)))
        assert len(lines(Path(killed))) == ITEMS

"""Batches that are cancelled, interrupted or confirmed by the user, and resumed."""

import asyncio
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from services.orchestrator.settings import Settings
from tests.service.test_cli_runs import Output
from tests.support.batches import given as named
from tests.support.orchestrator import END, ScriptedPeers, task
from tests.support.shell import ReadAloud, start_read_aloud

pytestmark = pytest.mark.slow

COMMAND = (sys.executable, "-m", "gateway.cli")
ALOUD = ("batch", "aloud", "--folder", "in", "--max-at-once", "1")


@pytest.fixture
async def read_aloud(peers: ScriptedPeers, settings: Settings, tmp_path: Path) -> AsyncIterator[ReadAloud]:
    async with start_read_aloud(peers, settings, tmp_path) as read_aloud:
        yield read_aloud


async def start_command(
    read_aloud: ReadAloud, *command: str, stdin: int = subprocess.DEVNULL
) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *command,
        cwd=read_aloud.folder,
        env=read_aloud.shell.environment(),
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


async def ended(process: asyncio.subprocess.Process) -> Output:
    async with asyncio.timeout(60):
        out, err = await process.communicate()
    return Output(process.returncode or 0, out.decode(), err.decode())


def states(folder: Path) -> list[str]:
    return [json.loads(line)["state"] for line in (folder / "out/results.jsonl").read_text().splitlines()]


def saved_files(folder: Path) -> dict[str, bytes]:
    """Content of the result files by path."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in (folder / "out/files").iterdir()}


async def only_batch(read_aloud: ReadAloud) -> dict[str, Any]:
    (batch,) = (await read_aloud.gateway.http.get("/v1/pipeline-batches")).json()["data"]
    assert isinstance(batch, dict)
    return batch


async def test_ctrl_c_cancels_batch_and_writes_results(read_aloud: ReadAloud) -> None:
    read_aloud.pictures(a="one", b="slow", c="two")
    process = await start_command(read_aloud, *COMMAND, *ALOUD)
    await read_aloud.reader.blocked.wait()
    process.send_signal(signal.SIGINT)
    output = await ended(process)
    assert output.status == 130, output
    assert states(read_aloud.folder) == ["completed", "cancelled", "queued"], output
    batch_id = (await only_batch(read_aloud))["batch_id"]
    assert output.err.startswith(
        f"{batch_id}: 3 items; resume if interrupted: hugginggpt resume {batch_id} --out out\n"
    )
    assert f"\nresume with: hugginggpt resume {batch_id} --out out" in output.err
    assert "3 items: 1 completed, 1 cancelled, 1 queued" in output.out
    read_aloud.reader.release.set()
    output = await read_aloud.shell.type("resume", batch_id)
    assert output.status == 0, output
    assert states(read_aloud.folder) == ["completed"] * 3, output
    assert read_aloud.reader.texts_read == ["one", "slow", "slow", "two"]
    assert sorted(saved_files(read_aloud.folder)) == [f"out/files/000{at}.audio.wav" for at in ("1-a", "2-b", "3-c")]


async def test_batch_continues_after_command_is_killed(read_aloud: ReadAloud) -> None:
    read_aloud.pictures(a="one", b="slow", c="two")
    process = await start_command(read_aloud, *COMMAND, *ALOUD)
    await read_aloud.reader.blocked.wait()
    process.kill()
    await process.wait()
    read_aloud.reader.release.set()
    output = await read_aloud.shell.type("resume", (await only_batch(read_aloud))["batch_id"])
    assert output.status == 0, output
    assert states(read_aloud.folder) == ["completed"] * 3, output
    assert read_aloud.reader.texts_read == ["one", "slow", "two"]


async def test_full_disk_stops_command_but_not_batch(read_aloud: ReadAloud) -> None:
    read_aloud.pictures(a="one", b="two")
    limited = "ulimit -f 100; exec " + shlex.join((*COMMAND, *ALOUD))
    output = await ended(await start_command(read_aloud, "bash", "-c", limited))
    batch_id = (await only_batch(read_aloud))["batch_id"]
    assert output.status == 1, output
    assert "cannot write to out: File too large" in output.err, output
    assert f"free disk space, then: hugginggpt resume {batch_id} --out out" in output.err
    assert saved_files(read_aloud.folder) == {}
    output = await read_aloud.shell.type("resume", batch_id)
    assert output.status == 0, output
    assert states(read_aloud.folder) == ["completed"] * 2, output
    assert len(saved_files(read_aloud.folder)) == 2, output
    assert read_aloud.reader.texts_read == ["one", "two"]


async def test_full_disk_is_detected_before_start(read_aloud: ReadAloud) -> None:
    read_aloud.pictures(a="one")
    output = await ended(
        await start_command(read_aloud, "bash", "-c", "ulimit -f 10; exec " + shlex.join((*COMMAND, *ALOUD)))
    )
    assert output.status == 2, output
    assert "cannot write to out" in output.err, output
    assert list((read_aloud.folder / "out").iterdir()) == []
    assert (await read_aloud.gateway.http.get("/v1/pipeline-batches")).json()["data"] == []


async def test_resume_failed_runs_only_failed_items(read_aloud: ReadAloud) -> None:
    read_aloud.pictures(a="one", b="broken", c="two")
    (read_aloud.folder / "in/d.png").write_bytes(b"")
    assert "retry the failed items" in (await read_aloud.shell.type(*ALOUD)).err
    before = saved_files(read_aloud.folder)
    batch_id = (await only_batch(read_aloud))["batch_id"]
    other = await read_aloud.shell.type("resume", batch_id, "--failed", "--out", "in")
    assert other.status == 1  # the folder has no results of this batch
    read_aloud.reader.unreadable = ""
    output = await read_aloud.shell.type("resume", batch_id, "--failed")
    assert output.status == 1, output
    assert states(read_aloud.folder) == ["completed"] * 3 + ["failed"], output
    assert "1 × d.png is empty" in output.out
    assert "the failed items cannot succeed as sent" in output.err
    assert read_aloud.reader.texts_read == ["one", "broken", "two", "broken", "broken"]
    assert saved_files(read_aloud.folder).items() > before.items()


async def test_plan_of_request_needs_confirmation(read_aloud: ReadAloud) -> None:
    read_aloud.pictures(a="one")
    read_aloud.gateway.peers.plan(task(1, "image-to-text", image=named("file1")), END)
    command = (*COMMAND, "batch", "--request", "read it", "--folder", "in")
    for answer, status, batches in ((b"n\n", 1, 0), (b"y\n", 0, 1)):
        terminal, keyboard = os.openpty()
        process = await start_command(read_aloud, *command, stdin=keyboard)
        os.close(keyboard)
        os.write(terminal, answer)
        output = await ended(process)
        os.close(terminal)
        assert output.status == status, output
        assert "Run this on 1 item? [y/N]" in output.err, output
        assert len((await read_aloud.gateway.http.get("/v1/pipeline-batches")).json()["data"]) == batches

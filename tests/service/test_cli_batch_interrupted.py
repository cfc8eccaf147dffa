"""Batches that are stopped, cut off or agreed to on the way, and gone on with."""

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
from tests.service.test_cli_runs import Said
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


async def begun(read_aloud: ReadAloud, *command: str, stdin: int = subprocess.DEVNULL) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *command,
        cwd=read_aloud.folder,
        env=read_aloud.shell.environment(),
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


async def ended(process: asyncio.subprocess.Process) -> Said:
    async with asyncio.timeout(60):
        out, err = await process.communicate()
    return Said(process.returncode or 0, out.decode(), err.decode())


def states(folder: Path) -> list[str]:
    return [json.loads(line)["state"] for line in (folder / "out/results.jsonl").read_text().splitlines()]


def kept(folder: Path) -> dict[str, bytes]:
    """What is there of results, as far as it tells nothing of time."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in (folder / "out/files").iterdir()}


async def the_batch(read_aloud: ReadAloud) -> dict[str, Any]:
    (batch,) = (await read_aloud.keeping.http.get("/v1/batches")).json()["data"]
    assert isinstance(batch, dict)
    return batch


async def test_ctrl_c_cancels_and_keeps_what_there_is(read_aloud: ReadAloud) -> None:
    read_aloud.pictures(a="one", b="slow", c="two")
    process = await begun(read_aloud, *COMMAND, *ALOUD)
    await read_aloud.reader.holding.wait()
    process.send_signal(signal.SIGINT)
    said = await ended(process)
    assert (said.status, states(read_aloud.folder)) == (130, ["completed", "cancelled", "queued"]), said
    batch_id = (await the_batch(read_aloud))["batch_id"]
    assert said.err.startswith(f"{batch_id}: 3 items; go on after a break: hugginggpt resume {batch_id} --out out\n")
    assert f"\ngo on: hugginggpt resume {batch_id} --out out" in said.err
    assert "3 items: 1 completed, 1 cancelled, 1 queued" in said.out
    read_aloud.reader.go_on.set()
    said = await read_aloud.shell.type("resume", batch_id)
    assert (said.status, states(read_aloud.folder)) == (0, ["completed"] * 3), said
    assert read_aloud.reader.asked == ["one", "slow", "slow", "two"]
    assert sorted(kept(read_aloud.folder)) == [f"out/files/000{at}.audio.wav" for at in ("1-a", "2-b", "3-c")]


async def test_a_batch_goes_on_when_its_command_is_killed(read_aloud: ReadAloud) -> None:
    read_aloud.pictures(a="one", b="slow", c="two")
    process = await begun(read_aloud, *COMMAND, *ALOUD)
    await read_aloud.reader.holding.wait()
    process.kill()
    await process.wait()
    read_aloud.reader.go_on.set()
    said = await read_aloud.shell.type("resume", (await the_batch(read_aloud))["batch_id"])
    assert (said.status, states(read_aloud.folder)) == (0, ["completed"] * 3), said
    assert read_aloud.reader.asked == ["one", "slow", "two"]


async def test_a_full_disk_stops_the_command_not_the_batch(read_aloud: ReadAloud) -> None:
    read_aloud.pictures(a="one", b="two")
    limited = "ulimit -f 100; exec " + shlex.join((*COMMAND, *ALOUD))
    said = await ended(await begun(read_aloud, "bash", "-c", limited))
    batch_id = (await the_batch(read_aloud))["batch_id"]
    assert (said.status, "cannot write to out: File too large" in said.err) == (1, True), said
    assert f"make room, and go on: hugginggpt resume {batch_id} --out out" in said.err
    assert kept(read_aloud.folder) == {}
    said = await read_aloud.shell.type("resume", batch_id)
    assert (said.status, states(read_aloud.folder), len(kept(read_aloud.folder))) == (0, ["completed"] * 2, 2), said
    assert read_aloud.reader.asked == ["one", "two"]


async def test_no_room_at_all_is_known_before(read_aloud: ReadAloud) -> None:
    read_aloud.pictures(a="one")
    said = await ended(await begun(read_aloud, "bash", "-c", "ulimit -f 10; exec " + shlex.join((*COMMAND, *ALOUD))))
    assert (said.status, "cannot write to out" in said.err) == (2, True), said
    assert list((read_aloud.folder / "out").iterdir()) == []
    assert (await read_aloud.keeping.http.get("/v1/batches")).json()["data"] == []


async def test_only_what_failed_runs_again(read_aloud: ReadAloud) -> None:
    read_aloud.pictures(a="one", b="broken", c="two")
    (read_aloud.folder / "in/d.png").write_bytes(b"")
    assert "again the failed only" in (await read_aloud.shell.type(*ALOUD)).err
    before = kept(read_aloud.folder)
    batch_id = (await the_batch(read_aloud))["batch_id"]
    other = await read_aloud.shell.type("resume", batch_id, "--failed", "--out", "in")
    assert other.status == 1  # it goes anywhere that has no results
    read_aloud.reader.broken = ""
    said = await read_aloud.shell.type("resume", batch_id, "--failed")
    assert (said.status, states(read_aloud.folder)) == (1, ["completed"] * 3 + ["failed"]), said
    assert "1 × d.png is empty" in said.out
    assert "none of the failed can run as it was sent" in said.err
    assert read_aloud.reader.asked == ["one", "broken", "two", "broken", "broken"]
    assert kept(read_aloud.folder).items() > before.items()


async def test_a_person_is_asked_about_a_plan_made_of_words(read_aloud: ReadAloud) -> None:
    read_aloud.pictures(a="one")
    read_aloud.keeping.peers.plan(task(1, "image-to-text", image=named("file1")), END)
    command = (*COMMAND, "batch", "--request", "read it", "--folder", "in")
    for answer, status, batches in ((b"n\n", 1, 0), (b"y\n", 0, 1)):
        terminal, keyboard = os.openpty()
        process = await begun(read_aloud, *command, stdin=keyboard)
        os.close(keyboard)
        os.write(terminal, answer)
        said = await ended(process)
        os.close(terminal)
        assert (said.status, "Run this on 1 item? [y/N]" in said.err) == (status, True), said
        assert len((await read_aloud.keeping.http.get("/v1/batches")).json()["data"]) == batches

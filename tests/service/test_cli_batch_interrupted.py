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
from tests.support.orchestrator import END, Cast, task
from tests.support.shell import Speaking, opened_speaking

pytestmark = pytest.mark.slow

COMMAND = (sys.executable, "-m", "gateway.cli")
ALOUD = ("batch", "aloud", "--folder", "in", "--max-at-once", "1")


@pytest.fixture
async def speaking(cast: Cast, settings: Settings, tmp_path: Path) -> AsyncIterator[Speaking]:
    async with opened_speaking(cast, settings, tmp_path) as speaking:
        yield speaking


async def begun(speaking: Speaking, *command: str, stdin: int = subprocess.DEVNULL) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *command,
        cwd=speaking.folder,
        env=speaking.shell.environment(),
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


async def the_batch(speaking: Speaking) -> dict[str, Any]:
    (batch,) = (await speaking.keeping.http.get("/v1/batches")).json()["data"]
    assert isinstance(batch, dict)
    return batch


async def test_ctrl_c_cancels_and_keeps_what_there_is(speaking: Speaking) -> None:
    speaking.pictures(a="one", b="slow", c="two")
    process = await begun(speaking, *COMMAND, *ALOUD)
    await speaking.reader.holding.wait()
    process.send_signal(signal.SIGINT)
    said = await ended(process)
    assert (said.status, states(speaking.folder)) == (130, ["completed", "cancelled", "queued"]), said
    batch_id = (await the_batch(speaking))["batch_id"]
    assert said.err.startswith(f"{batch_id}: 3 items; go on after a break: hugginggpt resume {batch_id} --out out\n")
    assert f"\ngo on: hugginggpt resume {batch_id} --out out" in said.err
    assert "3 items: 1 completed, 1 cancelled, 1 queued" in said.out
    speaking.reader.go_on.set()
    said = await speaking.shell.type("resume", batch_id)
    assert (said.status, states(speaking.folder)) == (0, ["completed"] * 3), said
    assert speaking.reader.asked == ["one", "slow", "slow", "two"]
    assert sorted(kept(speaking.folder)) == [f"out/files/000{at}.audio.wav" for at in ("1-a", "2-b", "3-c")]


async def test_a_batch_goes_on_when_its_command_is_killed(speaking: Speaking) -> None:
    speaking.pictures(a="one", b="slow", c="two")
    process = await begun(speaking, *COMMAND, *ALOUD)
    await speaking.reader.holding.wait()
    process.kill()
    await process.wait()
    speaking.reader.go_on.set()
    said = await speaking.shell.type("resume", (await the_batch(speaking))["batch_id"])
    assert (said.status, states(speaking.folder)) == (0, ["completed"] * 3), said
    assert speaking.reader.asked == ["one", "slow", "two"]


async def test_a_full_disk_stops_the_command_not_the_batch(speaking: Speaking) -> None:
    speaking.pictures(a="one", b="two")
    limited = "ulimit -f 100; exec " + shlex.join((*COMMAND, *ALOUD))
    said = await ended(await begun(speaking, "bash", "-c", limited))
    batch_id = (await the_batch(speaking))["batch_id"]
    assert (said.status, "cannot write to out: File too large" in said.err) == (1, True), said
    assert f"make room, and go on: hugginggpt resume {batch_id} --out out" in said.err
    assert kept(speaking.folder) == {}
    said = await speaking.shell.type("resume", batch_id)
    assert (said.status, states(speaking.folder), len(kept(speaking.folder))) == (0, ["completed"] * 2, 2), said
    assert speaking.reader.asked == ["one", "two"]


async def test_no_room_at_all_is_known_before(speaking: Speaking) -> None:
    speaking.pictures(a="one")
    said = await ended(await begun(speaking, "bash", "-c", "ulimit -f 10; exec " + shlex.join((*COMMAND, *ALOUD))))
    assert (said.status, "cannot write to out" in said.err) == (2, True), said
    assert list((speaking.folder / "out").iterdir()) == []
    assert (await speaking.keeping.http.get("/v1/batches")).json()["data"] == []


async def test_only_what_failed_runs_again(speaking: Speaking) -> None:
    speaking.pictures(a="one", b="broken", c="two")
    (speaking.folder / "in/d.png").write_bytes(b"")
    assert "again the failed only" in (await speaking.shell.type(*ALOUD)).err
    before = kept(speaking.folder)
    batch_id = (await the_batch(speaking))["batch_id"]
    other = await speaking.shell.type("resume", batch_id, "--failed", "--out", "in")
    assert other.status == 1  # it goes anywhere that has no results
    speaking.reader.broken = ""
    said = await speaking.shell.type("resume", batch_id, "--failed")
    assert (said.status, states(speaking.folder)) == (1, ["completed"] * 3 + ["failed"]), said
    assert "1 × d.png is empty" in said.out
    assert "none of the failed can run as it was sent" in said.err
    assert speaking.reader.asked == ["one", "broken", "two", "broken", "broken"]
    assert kept(speaking.folder).items() > before.items()


async def test_a_person_is_asked_about_a_plan_made_of_words(speaking: Speaking) -> None:
    speaking.pictures(a="one")
    speaking.keeping.cast.plan(task(1, "image-to-text", image=named("file1")), END)
    command = (*COMMAND, "batch", "--request", "read it", "--folder", "in")
    for answer, status, batches in ((b"n\n", 1, 0), (b"y\n", 0, 1)):
        terminal, keyboard = os.openpty()
        process = await begun(speaking, *command, stdin=keyboard)
        os.close(keyboard)
        os.write(terminal, answer)
        said = await ended(process)
        os.close(terminal)
        assert (said.status, "Run this on 1 item? [y/N]" in said.err) == (status, True), said
        assert len((await speaking.keeping.http.get("/v1/batches")).json()["data"]) == batches

"""GPU utilization by the expert host, with models of production size."""

import asyncio
import os
import shutil
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import grpc

from tests.bench.expert_callers import ExpertCaller, open_channel
from tests.bench.host import CALLERS
from tests.bench.large.tasks import MODELS, TASK
from tests.bench.load import per_second
from tests.bench.processes import service
from tests.bench.rows import Row, gap, quantile

SECONDS = 8.0
"""Approximate duration of the load on each model."""
POLL_MILLISECONDS = "100"


async def rows() -> list[Row]:
    if why := await _missing():
        return [row for model in MODELS for row in _figures(model, why)]
    with TemporaryDirectory() as home:
        os.environ["ARTIFACTS_URL"] = (Path(home) / "artifacts").as_uri()
        async with (
            service("tests.bench.large", "EXPERT", Path(home), max_waiting="256", devices="*=cuda:0") as expert,
            open_channel(expert.address) as channel,
        ):
            return [row for model in MODELS for row in await _measure(channel, model)]


async def _missing() -> str:
    """The missing prerequisite; empty if there is none."""
    if not shutil.which("nvidia-smi") or not await _smi("--query-gpu=name"):
        return "no GPU"
    lacking = [name for name in ("torch", "transformers", "diffusers") if not find_spec(name)]
    return f"no {lacking[0]}" if lacking else ""


async def _measure(channel: grpc.aio.Channel, model: str) -> list[Row]:
    if not (offline := await _offline(model)):
        return _figures(model, f"the model does not run here; see: python -m tests.bench.large.tasks {model}")
    items, full, one = offline
    caller = ExpertCaller(channel, model, task=TASK)
    await caller.run_sequentially(3)
    await per_second(caller.call, callers=CALLERS, count=CALLERS)
    async with _utilization() as busy:
        served = await per_second(caller.call, callers=CALLERS, count=max(4 * CALLERS, int(SECONDS * items / full)))
    late = quantile(await caller.run_open_loop(served / 2, 200), 0.99)
    share, gain, busy_share = served * full / items, items * one / full, sum(busy) / len(busy) / 100
    note = f"of {items / full:.1f} a second offline, in batches of {items}; {CALLERS} callers, {served:.1f} calls/s"
    return _figures(model, note, share=share, late=late / full, busy=busy_share, gain=gain)


def _figures(
    model: str,
    note: str,
    *,
    share: float | None = None,
    late: float | None = None,
    busy: float | None = None,
    gain: float | None = None,
) -> list[Row]:
    """The rows of a model; gaps with the note for values that are None."""

    def row(
        figure: str, value: float | None, unit: str, about: str, target: float | None, *, at_least: bool = True
    ) -> Row:
        name = f"gpu.{model.replace('-', '_')}_{figure}"
        if value is None:
            return gap(name, unit, target, note, at_least=at_least)
        return Row(name, round(value, 3), unit, target, note=about, at_least=at_least)

    batching = "items a second offline in full batches, over those one at a time"
    return [
        row("throughput_share", share, "", note, 0.9),
        row("busy", busy, "", "utilization under that load, from nvidia-smi", 0.9),
        row("half_load_p99", late, "batches", "99th percentile at half load, over a full batch", 2.5, at_least=False),
        row("batching_gain", gain, "", batching, None),
    ]


async def _offline(model: str) -> tuple[int, float, float] | None:
    """Items of a full batch, its seconds, and those of one item, in a separate process; None if it fails."""
    command = (sys.executable, "-m", "tests.bench.large.tasks", model)
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=DEVNULL)
    output, _ = await process.communicate()
    if process.returncode:
        return None
    items, full, one = output.split()
    return int(items), float(full), float(one)


@asynccontextmanager
async def _utilization() -> AsyncIterator[list[float]]:
    """Utilization of the first GPU in percent, ten times a second; complete when the block has ended."""
    samples: list[float] = []
    command = ("nvidia-smi", "-i", "0", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits")
    process = await asyncio.create_subprocess_exec(*command, "-lms", POLL_MILLISECONDS, stdout=PIPE)

    async def read() -> None:
        assert process.stdout
        samples.extend([float(line) async for line in process.stdout])

    reading = asyncio.create_task(read())
    try:
        yield samples
    finally:
        process.terminate()
        await process.wait()
        await reading


async def _smi(query: str) -> str:
    command = ("nvidia-smi", query, "--format=csv,noheader")
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=DEVNULL)
    output, _ = await process.communicate()
    return "" if process.returncode else output.decode().strip()

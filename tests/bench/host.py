"""Overhead of the expert host, and the share of a model's offline throughput that it serves.

The model multiplies matrices: 15 ms of one core per item and 20 ms per batch, at most eight items in a batch. The
reference runs the same batches in a process without a server.
"""

import asyncio
import io
import os
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import grpc
from PIL import Image

from experts.host.handler import Call, Media
from experts.host.isolation import Configuration, running
from experts.host.media.images import decode_in_process, open_image
from tests.bench.batch_calls import ratio_row
from tests.bench.dense.tasks import EVICTABLE_MODELS, ITEMS, LAUNCH_SECONDS, MODEL_BYTES, TASK, Dense, noop
from tests.bench.expert_callers import ExpertCaller, open_channel
from tests.bench.floor import floor
from tests.bench.load import per_second
from tests.bench.offline_call import OfflineCall
from tests.bench.processes import read_line, service
from tests.bench.rows import Row, quantile

CALLS, CALLERS, ROUNDS = 1000, 64, 3
OVERHEAD_MS = 0.25
"""Most that the host may add to a call of a bare gRPC server."""
CAPPED_SECONDS = 0.05
"""Longest batch of background calls; one call if that takes longer."""

DECODES = 200
PHOTOGRAPH, PHOTOGRAPH_BYTES = (1024, 768), 200_000

ONE_CORE = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


async def rows() -> list[Row]:
    os.environ.update(ONE_CORE)
    settings = {"max_waiting": "256", "batch_items": "64", "memory_bytes": str(4 * MODEL_BYTES - 1)}
    with TemporaryDirectory() as home:
        async with (
            service("tests.bench.dense", "EXPERT", Path(home), **settings) as expert,
            open_channel(expert.address) as channel,
        ):
            noop, dense = ExpertCaller(channel, "noop", task=TASK), ExpertCaller(channel, "dense", task=TASK)
            await noop.run_sequentially(200)
            await dense.run_sequentially(5)
            batch_calls = await _batch_calls(channel)
            measured = [await _overhead(noop), *await _throughput(dense), await _interactive(channel, dense)]
            return [*measured, *batch_calls, await _eviction(channel), await asyncio.to_thread(_isolated_decode)]


async def _overhead(caller: ExpertCaller) -> Row:
    """Alternates between the host and a bare gRPC server, which costs only gRPC and the client."""
    ours, bare = list[float](), list[float]()
    async with floor() as address, open_channel(address) as channel:
        echo = ExpertCaller(channel, "noop", task=TASK)
        await echo.run_sequentially(200)
        for _ in range(ROUNDS):
            bare.append(quantile(await echo.run_sequentially(CALLS), 0.5))
            ours.append(quantile(await caller.run_sequentially(CALLS), 0.5))
    started = time.perf_counter()
    for _ in range(CALLS):
        noop({"text": "a few words"}, {})
    alone = (time.perf_counter() - started) / CALLS
    note = "a call through gRPC and the host, less the function it calls; one caller, median; reference: gRPC alone"
    overhead, reference = round((min(ours) - alone) * 1e3, 3), round(min(bare) * 1e3, 3)
    return Row("host.overhead_ms", overhead, "ms", round(reference + OVERHEAD_MS, 3), reference, note)


async def _throughput(caller: ExpertCaller) -> list[Row]:
    """Alternates between served and offline runs, so that a slow machine affects both."""
    ratios, served, full = [], 0.0, 0.0
    for _ in range(ROUNDS):
        offline, full = await _offline()
        served = await per_second(caller.call, callers=CALLERS, count=32 * ITEMS)
        ratios.append(served / offline)
    latencies = await caller.run_open_loop(served / 2, 200)
    note = f"of what the same model does offline, in batches of {ITEMS}; {CALLERS} callers; {served:.0f} calls/s"
    late = f"99th percentile at half load, over the {full * 1e3:.0f} ms of a full batch"
    return [
        Row("host.throughput_share", round(max(ratios), 3), "", 0.9, at_least=True, note=note),
        Row("host.half_load_p99", round(quantile(latencies, 0.99) / full, 2), "batches", 2.5, note=late),
    ]


async def _offline() -> tuple[float, float]:
    """Items per second of the model without a server, and seconds of a full batch, in a separate process."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.bench.host", stdout=asyncio.subprocess.PIPE
    )
    seconds = float(await read_line(process))
    await process.wait()
    return ITEMS / seconds, seconds


async def _interactive(channel: grpc.aio.Channel, caller: ExpertCaller) -> Row:
    calls = await caller.run_sequentially(60)
    alone, capped = quantile(calls, 0.95), max(CAPPED_SECONDS, quantile(calls, 0.5))
    background = ExpertCaller(channel, "dense", task=TASK, background=True)
    async with background.sustained_load(CALLERS):
        await caller.run_sequentially(20)
        among = quantile(await caller.run_sequentially(60), 0.95)
    note = (
        f"95th percentile with {CALLERS} background callers, {among * 1e3:.0f} ms, over that without, "
        f"{alone * 1e3:.0f} ms, plus one background batch, {capped * 1e3:.0f} ms"
    )
    return Row("host.interactive_p95", round(among / (alone + capped), 2), "", 1.2, note=note)


async def _batch_calls(channel: grpc.aio.Channel) -> list[Row]:
    launch = (
        f"the model takes {LAUNCH_SECONDS * 1e3:g} ms for a batch of any size, which stands in for a small model on a "
        "GPU and was not measured on one"
    )
    nothing = "the model does nothing, so that only gRPC and the host count; the target is for models that do something"
    return [
        await ratio_row("host.batch_call", channel, "launch", launch, task=TASK),
        await ratio_row("host.batch_call_noop", channel, "batching-noop", nothing, task=TASK, target=None),
    ]


async def _eviction(channel: grpc.aio.Channel) -> Row:
    """Calls eight models with memory for three: no call may fail."""
    rng, failed = random.Random(2), 0
    callers = [ExpertCaller(channel, model, task=TASK) for model in EVICTABLE_MODELS]

    async def call() -> None:
        nonlocal failed
        try:
            await rng.choice(callers).call()
        except grpc.aio.AioRpcError:
            failed += 1

    rate = await per_second(call, callers=16, count=600)
    note = f"of 600 calls to eight models of 64 MB with memory for three; {rate:.0f} calls/s"
    return Row("host.eviction_failures", failed, "", 0, note=note)


def _isolated_decode() -> Row:
    """Alternates between decoding in a worker process and in this one, so that a slow machine affects both."""
    picture = _photograph()
    isolated, here = list[float](), list[float]()
    with running(Configuration(), ahead=True):
        for _ in range(DECODES):
            for seconds, decode in ((isolated, open_image), (here, decode_in_process)):
                started = time.perf_counter()
                decode(picture)
                seconds.append(time.perf_counter() - started)
    alone = quantile(here, 0.5)
    extra = quantile(isolated, 0.5) - alone
    note = f"more than in-process, of {len(picture.content) // 1000} KB of JPEG; median; reference: in-process"
    return Row("host.isolated_decode_ms", round(extra * 1e3, 3), "ms", 2, round(alone * 1e3, 3), note)


def _photograph() -> Media:
    """A JPEG of 200 KB with as much detail as a phone's photograph of that size."""
    coarse = Image.effect_noise((256, 192), 64).resize(PHOTOGRAPH, Image.Resampling.BICUBIC)
    picture = Image.merge("RGB", [coarse, coarse.rotate(180), Image.effect_noise(PHOTOGRAPH, 24)])
    quality = 95
    while True:
        buffer = io.BytesIO()
        picture.save(buffer, "JPEG", quality=quality)
        if len(buffer.getvalue()) <= PHOTOGRAPH_BYTES:
            return Media(buffer.getvalue(), "image/jpeg", "photograph.jpg")
        quality -= 1


def _measure(batches: int = 12) -> float:
    """Seconds of a full batch: the mean of the faster half."""
    model, taken = Dense(), list[float]()
    items: Sequence[str] = ["a few words"] * ITEMS
    call: Call = OfflineCall()
    for _ in range(batches):
        started = time.perf_counter()
        for raw in model.run([model.prepare({"text": item}, {}) for item in items], call):
            model.finish(raw)
        taken.append(time.perf_counter() - started)
    return sum(sorted(taken)[: batches // 2]) / (batches // 2)


if __name__ == "__main__":
    print(_measure())

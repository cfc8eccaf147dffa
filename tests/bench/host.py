"""What the host of an expert costs, and how well it keeps a model busy.

The model of these figures multiplies matrices: 15 ms of one core for each item and 20 ms for any batch, of eight items
at most. What is compared with it runs the same batches in a process without a server.
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
from experts.host.media import decode_here, open_image
from tests.bench.dense.tasks import ITEMS, SHELVED_BYTES, SHELVES, TASK, Dense, nothing
from tests.bench.expert_callers import Asker, reaching
from tests.bench.floor import floor
from tests.bench.load import per_second
from tests.bench.no_server import Nobody
from tests.bench.processes import line, service
from tests.bench.rows import Row, quantile

CALLS, CALLERS, ROUNDS = 1000, 64, 3
CAPPED_SECONDS = 0.05
"""What a batch of background calls may take, or one of them if that takes longer."""

DECODES = 200
PHOTOGRAPH, PHOTOGRAPH_BYTES = (1024, 768), 200_000

ONE_CORE = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


async def rows() -> list[Row]:
    os.environ.update(ONE_CORE)
    settings = {"max_waiting": "256", "memory_bytes": str(4 * SHELVED_BYTES - 1)}
    with TemporaryDirectory() as home:
        async with (
            service("tests.bench.dense", "EXPERT", Path(home), **settings) as expert,
            reaching(expert.address) as channel,
        ):
            idle, busy = Asker(channel, "nothing", task=TASK), Asker(channel, "dense", task=TASK)
            await idle.in_turn(200)
            await busy.in_turn(5)
            measured = [await _overhead(idle), *await _throughput(busy), await _interactive(channel, busy)]
            return [*measured, await _shelves(channel), await asyncio.to_thread(_isolated_decode)]


async def _overhead(asker: Asker) -> Row:
    """Ours and a server with nothing behind it take turns: what the latter takes is gRPC's and the client's."""
    ours, bare = list[float](), list[float]()
    async with floor() as address, reaching(address) as channel:
        echo = Asker(channel, "nothing", task=TASK)
        await echo.in_turn(200)
        for _ in range(ROUNDS):
            bare.append(quantile(await echo.in_turn(CALLS), 0.5))
            ours.append(quantile(await asker.in_turn(CALLS), 0.5))
    begun = time.perf_counter()
    for _ in range(CALLS):
        nothing({"text": "a few words"}, {})
    alone = (time.perf_counter() - begun) / CALLS
    note = "a call through gRPC and the host, less the function it calls; one caller, median; reference: gRPC alone"
    overhead, reference = round((min(ours) - alone) * 1e3, 3), round(min(bare) * 1e3, 3)
    return Row("host.overhead_ms", overhead, "ms", 0.6, reference, note)


async def _throughput(asker: Asker) -> list[Row]:
    """Served and offline take turns, so that a slow minute of the machine is both's."""
    ratios, served, full = [], 0.0, 0.0
    for _ in range(ROUNDS):
        offline, full = await _offline()
        served = await per_second(asker.ask, callers=CALLERS, count=32 * ITEMS)
        ratios.append(served / offline)
    latencies = await asker.arriving(served / 2, 200)
    note = f"of what the same model does offline, in batches of {ITEMS}; {CALLERS} callers; {served:.0f} calls/s"
    late = f"99th percentile at half load, over the {full * 1e3:.0f} ms of a full batch"
    return [
        Row("host.throughput_share", round(max(ratios), 3), "", 0.9, at_least=True, note=note),
        Row("host.half_load_p99", round(quantile(latencies, 0.99) / full, 2), "batches", 2.5, note=late),
    ]


async def _offline() -> tuple[float, float]:
    """Items per second of the model alone, and the seconds of a full batch, in a process of its own."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.bench.host", stdout=asyncio.subprocess.PIPE
    )
    seconds = float(await line(process))
    await process.wait()
    return ITEMS / seconds, seconds


async def _interactive(channel: grpc.aio.Channel, asker: Asker) -> Row:
    calls = await asker.in_turn(60)
    alone, capped = quantile(calls, 0.95), max(CAPPED_SECONDS, quantile(calls, 0.5))
    background = Asker(channel, "dense", task=TASK, background=True)
    async with background.at_it(CALLERS):
        await asker.in_turn(20)
        among = quantile(await asker.in_turn(60), 0.95)
    note = (
        f"95th percentile among {CALLERS} background callers, {among * 1e3:.0f} ms, over that alone, "
        f"{alone * 1e3:.0f} ms, and a batch of theirs, {capped * 1e3:.0f} ms"
    )
    return Row("host.interactive_p95", round(among / (alone + capped), 2), "", 1.2, note=note)


async def _shelves(channel: grpc.aio.Channel) -> Row:
    """Eight models in the room of three: no call may fail."""
    chance, failed = random.Random(2), 0
    askers = [Asker(channel, model, task=TASK) for model in SHELVES]

    async def call() -> None:
        nonlocal failed
        try:
            await chance.choice(askers).ask()
        except grpc.aio.AioRpcError:
            failed += 1

    rate = await per_second(call, callers=16, count=600)
    note = f"of 600 calls to eight models of 64 MB in the room of three; {rate:.0f} calls/s"
    return Row("host.eviction_failures", failed, "", 0, note=note)


def _isolated_decode() -> Row:
    """Decoding in a worker process and in this one take turns, so that a slow minute of the machine is both's."""
    picture = _photograph()
    isolated, here = list[float](), list[float]()
    with running(Configuration(), ahead=True):
        for _ in range(DECODES):
            for seconds, decode in ((isolated, open_image), (here, decode_here)):
                begun = time.perf_counter()
                decode(picture)
                seconds.append(time.perf_counter() - begun)
    alone = quantile(here, 0.5)
    extra = quantile(isolated, 0.5) - alone
    note = f"more than in-process, of {len(picture.content) // 1000} KB of JPEG; median; reference: in-process"
    return Row("host.isolated_decode_ms", round(extra * 1e3, 3), "ms", 2, round(alone * 1e3, 3), note)


def _photograph() -> Media:
    """A picture of 200 KB, with as much detail as one of a telephone's has at that size."""
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
    """Seconds of a full batch: the best half of some."""
    model, call, taken = Dense(), Nobody(), list[float]()
    items: Sequence[str] = ["a few words"] * ITEMS
    given: Call = call
    for _ in range(batches):
        begun = time.perf_counter()
        for raw in model.run([model.prepare({"text": item}, {}) for item in items], given):
            model.finish(raw)
        taken.append(time.perf_counter() - begun)
    return sum(sorted(taken)[: batches // 2]) / (batches // 2)


if __name__ == "__main__":
    print(_measure())

"""Ten thousand small files, planned once, with an expert that does nothing; stopped half way, and let go on."""

import asyncio
import hashlib
import json
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import grpc

from protos.hugginggpt.v1.artifact_pb2 import Artifact, NamedValue, Value
from protos.hugginggpt.v1.batch_pb2 import Batch, NewItem
from services.common.channel import connect
from tests.bench.batches.client import asking, loaded
from tests.bench.cast import TALLY
from tests.bench.load import PATIENCE_SECONDS
from tests.bench.processes import Stage, staged
from tests.bench.rows import Row
from tests.bench.shapes import NAMED, Script
from tests.support.batches import Asking

ITEMS, FEW = 10_000, 1_000
CPU_MS, RESUME_SECONDS, GROWTH_MB = 2.0, 2.0, 15


async def rows() -> list[Row]:
    with TemporaryDirectory() as home:
        async with (
            staged(Path(home)) as stage,
            asking(stage.orchestrator.address) as asked,
            connect(stage.cast.address) as channel,
        ):
            return await _Thousands(stage, asked, channel).rows()


class _Thousands:
    def __init__(self, stage: Stage, asked: Asking, channel: grpc.aio.Channel) -> None:
        self._process, self._asked = stage.orchestrator, asked
        self._tally: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(TALLY)
        self._resident: list[float] = []

    async def rows(self) -> list[Row]:
        cpu, begun = self._process.cpu_seconds(), time.perf_counter()
        batch = await self._asked.start([_file(number) for number in range(ITEMS)], request=Script("single", 1).words)
        started = time.perf_counter() - begun
        await self._watched(batch.batch_id, ITEMS // 2)
        await self._asked.cancel(batch.batch_id)
        await self._watched(batch.batch_id, ITEMS)
        resumed = await self._resumed(batch.batch_id)
        ended = await self._watched(batch.batch_id, ITEMS)
        wall = time.perf_counter() - begun
        each = 1000 * (self._process.cpu_seconds() - cpu) / ITEMS
        if ended.counts.completed != ITEMS:
            raise RuntimeError(f"a batch of the benchmark failed: {ended.counts}{ended.failure.message}")
        told = await self._told()
        note = f"of the orchestrator; {ITEMS:,} small files, one no-op task each, {NAMED}"
        grown = f"{self._resident[0]:.0f} MB after {FEW:,} items, {max(self._resident):.0f} MB at most until {ITEMS:,}"
        asked = f"calls of the planner for it, to plan; {told['select']} choices of a model"
        return [
            Row("batches.cpu_per_task_ms", round(each, 2), "ms", CPU_MS, note=f"{note}; {loaded()}"),
            Row("batches.small_items_per_s", round(ITEMS / wall), "/s", note=f"all of it; {started:.1f} s to send it"),
            Row("batches.memory_mb", round(max(self._resident) - self._resident[0], 1), "MB", GROWTH_MB, note=grown),
            Row("batches.plans", told["plan"], "", 1, note=asked),
            Row(
                "batches.resume_s",
                round(resumed, 3),
                "s",
                RESUME_SECONDS,
                note="half of them done; to the first new item",
            ),
        ]

    async def _watched(self, batch_id: str, until: int) -> Batch:
        """The batch once so many items have completed, or once it is over."""
        async for batch in self._asked.watch(batch_id):
            if batch.counts.completed >= FEW:
                self._resident.append(await self._process.resident_mb())
            if batch.counts.completed >= until:
                break
        return batch

    async def _resumed(self, batch_id: str) -> float:
        before, begun = (await self._told())["infer"], time.perf_counter()
        await self._asked.resume(batch_id)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (await self._told())["infer"] == before:
                pass
        return time.perf_counter() - begun

    async def _told(self) -> Counter[str]:
        return Counter(json.loads(await self._tally(b"", timeout=10)))


def _file(number: int) -> NewItem:
    name = f"note-{number:05}.txt"
    artifact = Artifact(
        sha256=hashlib.sha256(name.encode()).hexdigest(), media_type="text/plain", size_bytes=len(name), name=name
    )
    return NewItem(name=name, inputs=[NamedValue(name="file1", value=Value(artifact=artifact))])

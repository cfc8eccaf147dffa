"""A batch of ten thousand small files with an expert that returns at once; cancelled half way, and resumed."""

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
from tests.bench.batches.client import batch_client, machine_load
from tests.bench.load import TIMEOUT_SECONDS
from tests.bench.processes import Testbed, start_testbed
from tests.bench.rows import Row
from tests.bench.scripted_services import TALLY
from tests.bench.shapes import NAMED, Script
from tests.support.batches import OrchestratorClient

ITEMS, FEW = 10_000, 1_000
CPU_MS, RESUME_SECONDS, GROWTH_MB = 2.0, 2.0, 15


async def rows() -> list[Row]:
    with TemporaryDirectory() as home:
        async with (
            start_testbed(Path(home)) as testbed,
            batch_client(testbed.orchestrator.address) as client,
            connect(testbed.scripted.address) as channel,
        ):
            return await _LargeBatch(testbed, client, channel).rows()


class _LargeBatch:
    def __init__(self, testbed: Testbed, client: OrchestratorClient, channel: grpc.aio.Channel) -> None:
        self._process, self._client = testbed.orchestrator, client
        self._tally: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(TALLY)
        self._resident: list[float] = []

    async def rows(self) -> list[Row]:
        cpu, started = self._process.cpu_seconds(), time.perf_counter()
        items = [_file(number) for number in range(ITEMS)]
        batch = await self._client.start(items, request=Script("single", 1).request)
        sent = time.perf_counter() - started
        await self._watch(batch.batch_id, ITEMS // 2)
        await self._client.cancel(batch.batch_id)
        await self._watch(batch.batch_id, ITEMS)
        resumed = await self._resume(batch.batch_id)
        ended = await self._watch(batch.batch_id, ITEMS)
        wall = time.perf_counter() - started
        each = 1000 * (self._process.cpu_seconds() - cpu) / ITEMS
        if ended.counts.completed != ITEMS:
            raise RuntimeError(f"a batch of the benchmark failed: {ended.counts}{ended.failure.message}")
        calls = await self._tally_calls()
        note = f"of the orchestrator; {ITEMS:,} small files, one no-op task each, {NAMED}"
        grown = f"{self._resident[0]:.0f} MB after {FEW:,} items, {max(self._resident):.0f} MB at most until {ITEMS:,}"
        planned = f"planner calls for the whole batch; {calls['select']} selector calls"
        return [
            Row("batches.cpu_per_task_ms", round(each, 2), "ms", CPU_MS, note=f"{note}; {machine_load()}"),
            Row("batches.small_items_per_s", round(ITEMS / wall), "/s", note=f"in all; {sent:.1f} s to send the items"),
            Row("batches.memory_mb", round(max(self._resident) - self._resident[0], 1), "MB", GROWTH_MB, note=grown),
            Row("batches.plans", calls["plan"], "", 1, note=planned),
            Row(
                "batches.resume_s",
                round(resumed, 3),
                "s",
                RESUME_SECONDS,
                note="half of the items done; until the first new item starts",
            ),
        ]

    async def _watch(self, batch_id: str, until: int) -> Batch:
        """Waits until this many items have completed or the batch has ended, and returns the batch."""
        async for batch in self._client.watch(batch_id):
            if batch.counts.completed >= FEW:
                self._resident.append(await self._process.resident_mb())
            if batch.counts.completed >= until:
                break
        return batch

    async def _resume(self, batch_id: str) -> float:
        """Resumes the batch, and returns the seconds until its next expert call."""
        before, started = (await self._tally_calls())["infer"], time.perf_counter()
        await self._client.resume(batch_id)
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while (await self._tally_calls())["infer"] == before:
                pass
        return time.perf_counter() - started

    async def _tally_calls(self) -> Counter[str]:
        return Counter(json.loads(await self._tally(b"", timeout=10)))


def _file(number: int) -> NewItem:
    name = f"note-{number:05}.txt"
    artifact = Artifact(
        sha256=hashlib.sha256(name.encode()).hexdigest(), media_type="text/plain", size_bytes=len(name), name=name
    )
    return NewItem(name=name, inputs=[NamedValue(name="file1", value=Value(artifact=artifact))])

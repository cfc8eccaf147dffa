"""Batches of very many items are stored page by page."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from protos.hugginggpt.v1 import artifact_pb2, batch_pb2, expert_pb2
from protos.hugginggpt.v1 import gateway_pb2 as pb
from tests.support.batches import PINNED, OrchestratorClient, note, state
from tests.support.orchestrator import OrchestratorUnderTest

pytestmark = pytest.mark.slow

ITEMS, PAGE = 100_000, 200
CONTENT = 1_000
"""Characters of an item; all items together have 100 MB."""


class MeasuredUpload:
    """Requests with all items; measures this process's memory while it sends and stores them."""

    def __init__(self) -> None:
        self._before = self._most = resident_bytes()

    def requests(self) -> Iterator[pb.CreateBatchRequest]:
        yield pb.CreateBatchRequest(spec=batch_pb2.BatchSpec(plan=PINNED))
        for begin in range(0, ITEMS, PAGE):
            items = [note(f"{number:>{CONTENT}}", f"note {number}") for number in range(begin + 1, begin + PAGE + 1)]
            yield pb.CreateBatchRequest(items=pb.NewItems(items=items))
            self._most = max(self._most, resident_bytes())
        yield pb.CreateBatchRequest(end=pb.BatchEnd(items=ITEMS))

    @property
    def growth(self) -> int:
        """Largest growth of the memory in bytes."""
        return self._most - self._before


def resident_bytes() -> int:
    """Resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


async def test_items_of_a_large_batch_are_not_all_in_memory(orchestrator: OrchestratorUnderTest) -> None:
    async def hang(_: expert_pb2.InferRequest) -> dict[str, artifact_pb2.Value]:
        await asyncio.Event().wait()
        return {}

    orchestrator.peers.infer["model"] = hang
    client, upload = OrchestratorClient(orchestrator.stub), MeasuredUpload()
    batch = await client.send(upload.requests())
    assert batch.counts.total == ITEMS
    assert upload.growth < ITEMS * CONTENT // 2
    await client.cancel(batch.batch_id)
    batch = await client.ended(batch.batch_id)
    assert state(batch) == "CANCELLED"
    assert batch.counts.completed == 0
    assert batch.counts.waiting + batch.counts.cancelled == ITEMS
    page = pb.ListBatchItemsRequest(batch_id=batch.batch_id, after_index=ITEMS - 3)
    last = (await orchestrator.stub.ListBatchItems(page, **client.call_options)).items
    assert [item.name for item in last] == [f"note {number}" for number in range(ITEMS - 2, ITEMS + 1)]

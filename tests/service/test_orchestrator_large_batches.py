"""Batches of very many items: what comes in page by page is kept so, too."""

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
"""Characters of an item: a hundred megabytes in all."""


class Measured:
    """A hundred thousand items, and the most memory that this process took while it sent and kept them."""

    def __init__(self) -> None:
        self.before = self.most = resident()

    def requests(self) -> Iterator[pb.CreateBatchRequest]:
        yield pb.CreateBatchRequest(spec=batch_pb2.BatchSpec(plan=PINNED))
        for begin in range(0, ITEMS, PAGE):
            items = [note(f"{number:>{CONTENT}}", f"note {number}") for number in range(begin + 1, begin + PAGE + 1)]
            yield pb.CreateBatchRequest(items=pb.NewItems(items=items))
            self.most = max(self.most, resident())
        yield pb.CreateBatchRequest(end=pb.BatchEnd(items=ITEMS))

    @property
    def grown(self) -> int:
        return self.most - self.before


def resident() -> int:
    """Bytes of memory that this process has."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


async def test_a_hundred_thousand_items_are_taken_in_without_being_held(orchestrator: OrchestratorUnderTest) -> None:
    async def hanging(_: expert_pb2.InferRequest) -> dict[str, artifact_pb2.Value]:
        await asyncio.Event().wait()
        return {}

    orchestrator.peers.infer["model"] = hanging
    asking, measured = OrchestratorClient(orchestrator.stub), Measured()
    batch = await asking.send(measured.requests())
    assert batch.counts.total == ITEMS
    assert measured.grown < ITEMS * CONTENT // 2
    await asking.cancel(batch.batch_id)
    batch = await asking.ended(batch.batch_id)
    assert (state(batch), batch.counts.completed) == ("CANCELLED", 0)
    assert batch.counts.waiting + batch.counts.cancelled == ITEMS
    page = pb.ListBatchItemsRequest(batch_id=batch.batch_id, after_index=ITEMS - 3)
    last = (await orchestrator.stub.ListBatchItems(page, **asking.call_options)).items
    assert [item.name for item in last] == [f"note {number}" for number in range(ITEMS - 2, ITEMS + 1)]

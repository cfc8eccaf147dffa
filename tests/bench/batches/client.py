"""An orchestrator asked for batches, and how loaded the machine is meanwhile."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from protos.hugginggpt.internal.v1.orchestrator_pb2_grpc import OrchestratorServiceStub
from protos.hugginggpt.v1.batch_pb2 import Batch
from protos.hugginggpt.v1.run_pb2 import RUN_STATE_COMPLETED
from services.common.channel import connect
from tests.bench.load import PATIENCE_SECONDS
from tests.support.batches import Asking

LONGEST_SECONDS = 5 * PATIENCE_SECONDS


@asynccontextmanager
async def asking(address: str) -> AsyncIterator[Asking]:
    async with connect(address) as channel:
        asked = Asking(OrchestratorServiceStub(channel))
        asked.means["timeout"] = LONGEST_SECONDS
        yield asked


def seconds(batch: Batch) -> float:
    """From the batch's first word to the end of its last item.

    Raises:
        RuntimeError: not all of it has completed.
    """
    if batch.state != RUN_STATE_COMPLETED:
        raise RuntimeError(f"a batch of the benchmark failed: {batch.counts}{batch.failure.message}")
    return (batch.end_time.ToNanoseconds() - batch.create_time.ToNanoseconds()) / 1e9


def loaded() -> str:
    """What else went on; figures of a busy machine are worse."""
    return f"load {os.getloadavg()[0]:.1f} of {os.cpu_count()} cores"

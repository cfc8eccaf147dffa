"""Client for batches at an orchestrator, and the load of the machine."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from protos.hugginggpt.internal.v1.orchestrator_pb2_grpc import OrchestratorServiceStub
from protos.hugginggpt.v1.batch_pb2 import Batch
from protos.hugginggpt.v1.run_pb2 import RUN_STATE_COMPLETED
from services.common.channel import connect
from tests.bench.load import TIMEOUT_SECONDS
from tests.support.batches import OrchestratorClient

LONGEST_SECONDS = 5 * TIMEOUT_SECONDS


@asynccontextmanager
async def batch_client(address: str) -> AsyncIterator[OrchestratorClient]:
    async with connect(address) as channel:
        client = OrchestratorClient(OrchestratorServiceStub(channel))
        client.call_options["timeout"] = LONGEST_SECONDS
        yield client


def seconds(batch: Batch) -> float:
    """Seconds from the creation of a batch to the end of its last item.

    Raises:
        RuntimeError: the batch did not complete.
    """
    if batch.state != RUN_STATE_COMPLETED:
        raise RuntimeError(f"a batch of the benchmark failed: {batch.counts}{batch.failure.message}")
    return (batch.end_time.ToNanoseconds() - batch.create_time.ToNanoseconds()) / 1e9


def machine_load() -> str:
    """Load average for notes, since figures of a busy machine are worse."""
    return f"load {os.getloadavg()[0]:.1f} of {os.cpu_count()} cores"

"""On which item the words of a batch are planned, also where that did not work at first."""

import grpc
import pytest

from protos.hugginggpt.v1 import batch_pb2, failure_pb2
from services.common.errors import from_rpc
from tests.support.batches import OrchestratorClient, given, notes, state
from tests.support.orchestrator import END, OrchestratorUnderTest, task

BROKEN = batch_pb2.NewItem(name="broken", failure=failure_pb2.Failure(reason="UNREADABLE", message="it is no file"))


@pytest.fixture
def orchestrator_client(orchestrator: OrchestratorUnderTest) -> OrchestratorClient:
    return OrchestratorClient(orchestrator.stub)


async def test_what_failed_without_a_plan_is_not_run_again_alone_and_the_batch_can_be_planned_later(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    orchestrator.peers.plan(END)
    orchestrator.peers.plan(task(1, text=given("note")), END)
    batch = await orchestrator_client.ended(
        (await orchestrator_client.start([BROKEN, *notes(2)], request="shorten the note")).batch_id
    )
    assert (state(batch), batch.failure.reason) == ("FAILED", "UNPLANNABLE")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await orchestrator_client.resume(batch.batch_id, failed_only=True)
    assert from_rpc(caught.value).reason == "UNPLANNED"
    await orchestrator_client.resume(batch.batch_id)
    batch = await orchestrator_client.ended(batch.batch_id)
    assert (state(batch), batch.counts.completed, batch.counts.failed) == ("INCOMPLETE", 2, 1)
    assert [port.name for port in batch.pipeline.inputs] == ["note"]

"""Planning the request of a batch: on its first valid item, and again after a failure."""

import pytest

from protos.hugginggpt.v1 import batch_pb2, failure_pb2
from tests.support.batches import OrchestratorClient, given, notes, rpc_error, state
from tests.support.orchestrator import END, OrchestratorUnderTest, task

UNREADABLE = batch_pb2.NewItem(
    name="photo.png", failure=failure_pb2.Failure(reason="UNREADABLE", message="photo.png cannot be read")
)


@pytest.fixture
def orchestrator_client(orchestrator: OrchestratorUnderTest) -> OrchestratorClient:
    return OrchestratorClient(orchestrator.stub)


async def test_failed_items_of_an_unplanned_batch_are_not_resumed_alone(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    orchestrator.peers.plan(END)
    batch = await orchestrator_client.start([UNREADABLE, *notes(2)], request="shorten the note")
    batch = await orchestrator_client.ended(batch.batch_id)
    assert state(batch) == "FAILED"
    assert batch.failure.reason == "UNPLANNABLE"
    error = await rpc_error(orchestrator_client.resume(batch.batch_id, failed_only=True))
    assert error.reason == "UNPLANNED"


async def test_batch_whose_planning_failed_can_be_planned_later(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    orchestrator.peers.plan(END)
    orchestrator.peers.plan(task(1, text=given("note")), END)
    batch = await orchestrator_client.start([UNREADABLE, *notes(2)], request="shorten the note")
    await orchestrator_client.ended(batch.batch_id)
    await orchestrator_client.resume(batch.batch_id)
    batch = await orchestrator_client.ended(batch.batch_id)
    assert state(batch) == "INCOMPLETE"
    assert batch.counts.completed == 2
    assert batch.counts.failed == 1
    assert [port.name for port in batch.pipeline.inputs] == ["note"]

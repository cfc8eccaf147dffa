"""On which item the words of a batch are planned, also where that did not work at first."""

import grpc
import pytest

from protos.hugginggpt.v1 import batch_pb2, failure_pb2
from services.common.errors import from_rpc
from tests.support.batches import Asking, given, notes, state
from tests.support.orchestrator import END, House, task

BROKEN = batch_pb2.NewItem(name="broken", failure=failure_pb2.Failure(reason="UNREADABLE", message="it is no file"))


@pytest.fixture
def asking(house: House) -> Asking:
    return Asking(house.stub)


async def test_what_failed_without_a_plan_is_not_run_again_alone_and_the_batch_can_be_planned_later(
    house: House, asking: Asking
) -> None:
    house.cast.plan(END)
    house.cast.plan(task(1, text=given("note")), END)
    batch = await asking.ended((await asking.start([BROKEN, *notes(2)], request="shorten the note")).batch_id)
    assert (state(batch), batch.failure.reason) == ("FAILED", "UNPLANNABLE")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await asking.resume(batch.batch_id, failed_only=True)
    assert from_rpc(caught.value).reason == "UNPLANNED"
    await asking.resume(batch.batch_id)
    batch = await asking.ended(batch.batch_id)
    assert (state(batch), batch.counts.completed, batch.counts.failed) == ("INCOMPLETE", 2, 1)
    assert [port.name for port in batch.pipeline.inputs] == ["note"]

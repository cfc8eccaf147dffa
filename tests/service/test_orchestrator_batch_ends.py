"""Batches that have ended, as whoever tells of them hears of them."""

from collections.abc import Sequence

import grpc
import pytest

from protos.hugginggpt.internal.v1 import orchestrator_pb2
from protos.hugginggpt.v1 import artifact_pb2, caller_pb2, expert_pb2, gateway_pb2, pipeline_pb2, run_pb2
from services.common.errors import InvalidRequest, from_rpc
from services.orchestrator.settings import Settings
from tests.support.batches import PLAN, Asking, notes
from tests.support.orchestrator import House, echo
from tests.support.postgres import emptied


@pytest.fixture(params=["sqlite", "postgres"])
async def settings(request: pytest.FixtureRequest, settings: Settings) -> Settings:
    if request.param == "sqlite":
        return settings
    return settings.model_copy(update={"journal": await emptied(request.getfixturevalue("postgres"))})


@pytest.fixture
def asking(house: House) -> Asking:
    return Asking(house.stub)


async def ends(house: House, size: int = 0, **wanted: object) -> Sequence[orchestrator_pb2.EndedBatch]:
    """All of them, page by page."""
    found: list[orchestrator_pb2.EndedBatch] = []
    request = orchestrator_pb2.ListEndedBatchesRequest(page_size=size, **wanted)  # type: ignore[arg-type]  # a field of it
    while page := await house.stub.ListEndedBatches(request, timeout=5):
        found += page.batches
        if not page.next_page_token:
            break
        request.page_token = page.next_page_token
    return found


async def test_batches_of_all_tenants_are_told_in_the_order_of_their_ends(house: House, asking: Asking) -> None:
    await asking.save(plan=PLAN)
    other = Asking(house.stub, "other")
    ids = [
        (await each.ended((await each.start(notes(2), **source)).batch_id)).batch_id
        for each, source in (
            (asking, {"pipeline": pipeline_pb2.PipelineRef(name="short")}),
            (other, {}),
            (asking, {"policy": caller_pb2.DATA_POLICY_LOCAL}),
        )
    ]
    told = await ends(house, 2)
    assert [batch.batch_id for batch in told] == ids
    assert [batch.caller.tenant for batch in told] == ["default", "other", "default"]
    assert [batch.caller.policy for batch in told] == [caller_pb2.DATA_POLICY_OPEN] * 2 + [caller_pb2.DATA_POLICY_LOCAL]
    assert [(batch.pipeline.name, batch.pipeline.version) for batch in told] == [("short", 1), ("", 0), ("", 0)]
    assert {(batch.counts.total, batch.counts.completed, batch.round) for batch in told} == {(2, 2, 1)}
    assert all(batch.create_time.ToNanoseconds() < batch.end_time.ToNanoseconds() for batch in told)
    later = await ends(house, ended_after=told[1].end_time)
    assert [batch.batch_id for batch in later] == ids[1:]


async def test_a_batch_that_is_resumed_ends_once_more(house: House, asking: Asking) -> None:
    async def broken(request: expert_pb2.InferRequest) -> dict[str, artifact_pb2.Value]:
        if request.inputs["text"].text == "note 2":
            raise InvalidRequest("it is broken", port="text")
        return await echo(request)

    house.cast.infer["model"] = broken
    batch = await asking.ended((await asking.start(notes(3))).batch_id)
    (first,) = await ends(house)
    assert (first.state, first.round, first.counts.failed) == (run_pb2.RUN_STATE_INCOMPLETE, 1, 1)
    house.cast.infer["model"] = echo
    await asking.resume(batch.batch_id, failed_only=True)
    await asking.ended(batch.batch_id)
    (second,) = await ends(house)
    assert (second.state, second.round, second.counts.completed) == (run_pb2.RUN_STATE_COMPLETED, 2, 3)
    assert second.end_time.ToNanoseconds() > first.end_time.ToNanoseconds()


async def test_what_runs_or_is_removed_is_not_told_of(house: House, asking: Asking) -> None:
    batch = await asking.ended((await asking.start(notes(1))).batch_id)
    await house.stub.DeleteBatch(gateway_pb2.DeleteBatchRequest(batch_id=batch.batch_id), **asking.means)
    house.cast.vanished.add("summarization")
    await asking.start(notes(1), request="never planned")
    assert await ends(house) == []


@pytest.mark.parametrize(
    "request_",
    [orchestrator_pb2.ListEndedBatchesRequest(page_size=-1), orchestrator_pb2.ListEndedBatchesRequest(page_token="x")],
)
async def test_a_page_that_cannot_be_is_refused(
    house: House, request_: orchestrator_pb2.ListEndedBatchesRequest
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await house.stub.ListEndedBatches(request_, timeout=5)
    assert from_rpc(caught.value).port in {"page_size", "page_token"}

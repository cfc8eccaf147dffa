"""Batches that have ended, as whoever tells of them hears of them."""

from collections.abc import Sequence

import grpc
import pytest

from protos.hugginggpt.internal.v1 import orchestrator_pb2
from protos.hugginggpt.v1 import artifact_pb2, caller_pb2, expert_pb2, gateway_pb2, pipeline_pb2, run_pb2
from services.common.errors import InvalidRequest, from_rpc
from services.orchestrator.settings import Settings
from tests.support.batches import PLAN, OrchestratorClient, notes
from tests.support.orchestrator import OrchestratorUnderTest, echo
from tests.support.postgres import emptied_database


@pytest.fixture(params=["sqlite", "postgres"])
async def settings(request: pytest.FixtureRequest, settings: Settings) -> Settings:
    if request.param == "sqlite":
        return settings
    return settings.model_copy(update={"journal": await emptied_database(request.getfixturevalue("postgres"))})


@pytest.fixture
def orchestrator_client(orchestrator: OrchestratorUnderTest) -> OrchestratorClient:
    return OrchestratorClient(orchestrator.stub)


async def ends(
    orchestrator: OrchestratorUnderTest, size: int = 0, **wanted: object
) -> Sequence[orchestrator_pb2.EndedBatch]:
    """All of them, page by page."""
    found: list[orchestrator_pb2.EndedBatch] = []
    request = orchestrator_pb2.ListEndedBatchesRequest(page_size=size, **wanted)  # type: ignore[arg-type]  # a field of it
    while page := await orchestrator.stub.ListEndedBatches(request, timeout=5):
        found += page.batches
        if not page.next_page_token:
            break
        request.page_token = page.next_page_token
    return found


async def test_batches_of_all_tenants_are_told_in_the_order_of_their_ends(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    await orchestrator_client.save(plan=PLAN)
    other = OrchestratorClient(orchestrator.stub, "other")
    ids = [
        (await each.ended((await each.start(notes(2), **source)).batch_id)).batch_id
        for each, source in (
            (orchestrator_client, {"pipeline": pipeline_pb2.PipelineRef(name="short")}),
            (other, {}),
            (orchestrator_client, {"policy": caller_pb2.DATA_POLICY_LOCAL}),
        )
    ]
    told = await ends(orchestrator, 2)
    assert [batch.batch_id for batch in told] == ids
    assert [batch.caller.tenant for batch in told] == ["default", "other", "default"]
    assert [batch.caller.policy for batch in told] == [caller_pb2.DATA_POLICY_OPEN] * 2 + [caller_pb2.DATA_POLICY_LOCAL]
    assert [(batch.pipeline.name, batch.pipeline.version) for batch in told] == [("short", 1), ("", 0), ("", 0)]
    assert {(batch.counts.total, batch.counts.completed, batch.round) for batch in told} == {(2, 2, 1)}
    assert all(batch.create_time.ToNanoseconds() < batch.end_time.ToNanoseconds() for batch in told)
    later = await ends(orchestrator, ended_after=told[1].end_time)
    assert [batch.batch_id for batch in later] == ids[1:]


async def test_a_batch_that_is_resumed_ends_once_more(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    async def broken(request: expert_pb2.InferRequest) -> dict[str, artifact_pb2.Value]:
        if request.inputs["text"].text == "note 2":
            raise InvalidRequest("it is broken", port="text")
        return await echo(request)

    orchestrator.peers.infer["model"] = broken
    batch = await orchestrator_client.ended((await orchestrator_client.start(notes(3))).batch_id)
    (first,) = await ends(orchestrator)
    assert (first.state, first.round, first.counts.failed) == (run_pb2.RUN_STATE_INCOMPLETE, 1, 1)
    orchestrator.peers.infer["model"] = echo
    await orchestrator_client.resume(batch.batch_id, failed_only=True)
    await orchestrator_client.ended(batch.batch_id)
    (second,) = await ends(orchestrator)
    assert (second.state, second.round, second.counts.completed) == (run_pb2.RUN_STATE_COMPLETED, 2, 3)
    assert second.end_time.ToNanoseconds() > first.end_time.ToNanoseconds()


async def test_what_runs_or_is_removed_is_not_told_of(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    batch = await orchestrator_client.ended((await orchestrator_client.start(notes(1))).batch_id)
    await orchestrator.stub.DeleteBatch(
        gateway_pb2.DeleteBatchRequest(batch_id=batch.batch_id), **orchestrator_client.call_options
    )
    orchestrator.peers.vanished.add("summarization")
    await orchestrator_client.start(notes(1), request="never planned")
    assert await ends(orchestrator) == []


@pytest.mark.parametrize(
    "request_",
    [orchestrator_pb2.ListEndedBatchesRequest(page_size=-1), orchestrator_pb2.ListEndedBatchesRequest(page_token="x")],
)
async def test_a_page_that_cannot_be_is_refused(
    orchestrator: OrchestratorUnderTest, request_: orchestrator_pb2.ListEndedBatchesRequest
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await orchestrator.stub.ListEndedBatches(request_, timeout=5)
    assert from_rpc(caught.value).port in {"page_size", "page_token"}

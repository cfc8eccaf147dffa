"""ListEndedBatches: the ended batches of all tenants, for webhooks."""

from collections.abc import Sequence
from typing import Any

import pytest

from protos.hugginggpt.internal.v1 import orchestrator_pb2
from protos.hugginggpt.v1 import artifact_pb2, caller_pb2, expert_pb2, pipeline_pb2, run_pb2
from services.common.errors import InvalidRequest
from services.orchestrator.settings import Settings
from tests.support.batches import PLAN, OrchestratorClient, notes, rpc_error
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


async def ended_batches(
    orchestrator: OrchestratorUnderTest, page_size: int = 0, **fields: Any
) -> Sequence[orchestrator_pb2.EndedBatch]:
    """Lists all ended batches, page by page."""
    batches: list[orchestrator_pb2.EndedBatch] = []
    request = orchestrator_pb2.ListEndedBatchesRequest(page_size=page_size, **fields)
    while page := await orchestrator.stub.ListEndedBatches(request, timeout=5):
        batches += page.batches
        if not page.next_page_token:
            break
        request.page_token = page.next_page_token
    return batches


async def test_ended_batches_of_all_tenants_are_listed_in_the_order_of_their_ends(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    await orchestrator_client.save(plan=PLAN)
    other = OrchestratorClient(orchestrator.stub, "other")
    ids = [
        (await client.ended((await client.start(notes(2), **source)).batch_id)).batch_id
        for client, source in (
            (orchestrator_client, {"pipeline": pipeline_pb2.PipelineRef(name="short")}),
            (other, {}),
            (orchestrator_client, {"policy": caller_pb2.DATA_POLICY_LOCAL}),
        )
    ]
    ended = await ended_batches(orchestrator, page_size=2)
    assert [batch.batch_id for batch in ended] == ids
    assert [batch.caller.tenant for batch in ended] == ["default", "other", "default"]
    assert [batch.caller.policy for batch in ended] == [
        caller_pb2.DATA_POLICY_OPEN,
        caller_pb2.DATA_POLICY_OPEN,
        caller_pb2.DATA_POLICY_LOCAL,
    ]
    assert [(batch.pipeline.name, batch.pipeline.version) for batch in ended] == [("short", 1), ("", 0), ("", 0)]
    assert {(batch.counts.total, batch.counts.completed, batch.round) for batch in ended} == {(2, 2, 1)}
    assert all(batch.create_time.ToNanoseconds() < batch.end_time.ToNanoseconds() for batch in ended)
    later = await ended_batches(orchestrator, ended_after=ended[1].end_time)
    assert [batch.batch_id for batch in later] == ids[1:]


async def test_resumed_batch_is_listed_with_its_latest_end(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    async def fail_second(request: expert_pb2.InferRequest) -> dict[str, artifact_pb2.Value]:
        if request.inputs["text"].text == "note 2":
            raise InvalidRequest("the text is damaged", port="text")
        return await echo(request)

    orchestrator.peers.infer["model"] = fail_second
    batch = await orchestrator_client.ended((await orchestrator_client.start(notes(3))).batch_id)
    (first,) = await ended_batches(orchestrator)
    assert first.state == run_pb2.RUN_STATE_INCOMPLETE
    assert first.round == 1
    assert first.counts.failed == 1
    orchestrator.peers.infer["model"] = echo
    await orchestrator_client.resume(batch.batch_id, failed_only=True)
    await orchestrator_client.ended(batch.batch_id)
    (second,) = await ended_batches(orchestrator)
    assert second.state == run_pb2.RUN_STATE_COMPLETED
    assert second.round == 2
    assert second.counts.completed == 3
    assert second.end_time.ToNanoseconds() > first.end_time.ToNanoseconds()


async def test_deleted_batch_is_not_listed(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    batch = await orchestrator_client.ended((await orchestrator_client.start(notes(1))).batch_id)
    await orchestrator_client.delete(batch.batch_id)
    assert await ended_batches(orchestrator) == []


async def test_active_batch_is_not_listed(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    orchestrator.peers.unavailable_tasks.add("summarization")
    await orchestrator_client.start(notes(1), request="never planned")
    assert await ended_batches(orchestrator) == []


@pytest.mark.parametrize(
    ("fields", "port"), [({"page_size": -1}, "page_size"), ({"page_token": "x"}, "page_token")], ids=["size", "token"]
)
async def test_invalid_page_is_refused(orchestrator: OrchestratorUnderTest, fields: dict[str, Any], port: str) -> None:
    request = orchestrator_pb2.ListEndedBatchesRequest(**fields)
    assert (await rpc_error(orchestrator.stub.ListEndedBatches(request, timeout=5))).port == port

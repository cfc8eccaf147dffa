"""What is too large for one page of a list comes in several, and what nobody reads there is left out."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import grpc
import pytest

from protos.hugginggpt.v1 import artifact_pb2, batch_pb2, expert_pb2, plan_pb2, run_pb2
from protos.hugginggpt.v1 import gateway_pb2 as pb
from services.common.errors import from_rpc
from services.orchestrator.journal.batches import BatchStore
from services.orchestrator.journal.queries import PAGE_BYTES
from services.orchestrator.settings import Settings
from tests.support.batches import OrchestratorClient, given, notes, step
from tests.support.orchestrator import OrchestratorUnderTest, echo, text
from tests.support.postgres import emptied_database

pytestmark = pytest.mark.slow

INPUTS, INPUT_BYTES = 24, 200_000
"""Of a large item, of which a page has a few."""
WORDS = text("x" * 250_000)
LARGE = plan_pb2.Plan(tasks=[step(1, text=given("note")), *(step(task, text=WORDS) for task in range(2, 30))])
"""More than seven megabytes."""


@pytest.fixture(params=["sqlite", "postgres"])
async def settings(request: pytest.FixtureRequest, settings: Settings) -> Settings:
    if request.param == "sqlite":
        return settings
    return settings.model_copy(update={"journal": await emptied_database(request.getfixturevalue("postgres"))})


@pytest.fixture
def orchestrator_client(orchestrator: OrchestratorUnderTest) -> OrchestratorClient:
    return OrchestratorClient(orchestrator.stub)


def large(number: int) -> batch_pb2.NewItem:
    content = artifact_pb2.Value(text="x" * INPUT_BYTES)
    inputs = [artifact_pb2.NamedValue(name=f"t{at}", value=content) for at in range(INPUTS)]
    return batch_pb2.NewItem(name=f"large {number}", inputs=inputs)


async def test_large_items_are_listed_a_few_at_a_time_and_their_outcomes_at_once(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    plan = plan_pb2.Plan(tasks=[step(at + 1, text=given(f"t{at}"), model="model") for at in range(INPUTS)])
    batch = await orchestrator_client.start([large(number) for number in range(20)], 5, plan=plan, max_at_once=1)
    await orchestrator_client.cancel(batch.batch_id)
    first = await orchestrator.stub.ListBatchItems(
        pb.ListBatchItemsRequest(batch_id=batch.batch_id), **orchestrator_client.call_options
    )
    assert 0 < first.ByteSize() <= PAGE_BYTES + 100_000
    items = await orchestrator_client.items(batch.batch_id)
    assert [item.name for item in items] == [f"large {number}" for number in range(20)]
    assert all(len(item.inputs) == INPUTS for item in items)
    brief = pb.ListBatchItemsRequest(batch_id=batch.batch_id, view=batch_pb2.BATCH_ITEM_VIEW_BASIC)
    told = await orchestrator.stub.ListBatchItems(brief, **orchestrator_client.call_options)
    assert [item.name for item in told.items] == [item.name for item in items]
    assert not told.next_page_token
    assert not any(item.inputs for item in told.items)


async def test_large_pipelines_and_their_versions_are_listed_a_few_at_a_time(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    for number in range(3):
        await orchestrator_client.save(f"large{number}", plan=LARGE)
        await orchestrator_client.save("large", plan=plan_pb2.Plan(tasks=[*LARGE.tasks, step(40 + number)]))
    names = await _pages(orchestrator.stub.ListPipelines, orchestrator_client, pb.ListPipelinesRequest)
    assert [[each.name for each in page.pipelines] for page in names] == [["large"], ["large0"], ["large1"], ["large2"]]
    of_one = partial(pb.ListPipelinesRequest, name="large")
    versions = await _pages(orchestrator.stub.ListPipelines, orchestrator_client, of_one)
    assert [[each.version for each in page.pipelines] for page in versions] == [[3], [2], [1]]


async def test_batches_with_large_plans_are_listed_a_few_at_a_time(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    ids = [(await orchestrator_client.start(notes(1), plan=LARGE, max_at_once=1)).batch_id for _ in range(3)]
    for batch_id in ids:
        await orchestrator_client.cancel(batch_id)
    pages = await _pages(orchestrator.stub.ListBatches, orchestrator_client, pb.ListBatchesRequest)
    assert [[batch.batch_id for batch in page.batches] for page in pages] == [[batch_id] for batch_id in ids[::-1]]
    assert not any(batch.pipeline.plan.tasks or batch.spec.plan.tasks for page in pages for batch in page.batches)


async def test_a_state_is_asked_for_as_often_as_one_likes(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    batch = await orchestrator_client.ended((await orchestrator_client.start(notes(2))).batch_id)
    often = [run_pb2.RUN_STATE_COMPLETED] * 300_000
    assert len(await orchestrator_client.items(batch.batch_id, states=often)) == 2
    assert (
        len(
            (
                await orchestrator.stub.ListBatches(
                    pb.ListBatchesRequest(states=often), **orchestrator_client.call_options
                )
            ).batches
        )
        == 1
    )
    await orchestrator.stub.ListRuns(pb.ListRunsRequest(states=often), **orchestrator_client.call_options)
    strange: list[tuple[Any, Any]] = [
        (orchestrator.stub.ListBatchItems, pb.ListBatchItemsRequest(batch_id=batch.batch_id, states=[77])),  # type: ignore[list-item]
        (orchestrator.stub.ListBatches, pb.ListBatchesRequest(states=[77])),  # type: ignore[list-item]
        (orchestrator.stub.ListRuns, pb.ListRunsRequest(states=[77])),  # type: ignore[list-item]
    ]
    for call, request in strange:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(request, **orchestrator_client.call_options)
        assert from_rpc(caught.value).port == "states"


async def test_who_watches_is_told_the_plan_once_and_all_share_one_look(
    orchestrator_client: OrchestratorClient, orchestrator: OrchestratorUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, counts = 0, BatchStore.counts
    go_on = [asyncio.Event() for _ in range(3)]

    async def counted(self: BatchStore, batch_id: str, since: float) -> Any:
        nonlocal looks
        looks += 1
        return await counts(self, batch_id, since)

    async def one_by_one(request: expert_pb2.InferRequest) -> dict[str, artifact_pb2.Value]:
        await go_on[int(request.inputs["text"].text.split()[1]) - 1].wait()
        return await echo(request)

    orchestrator.peers.infer["model"] = one_by_one
    batch = await orchestrator_client.start(notes(3), max_at_once=1)
    monkeypatch.setattr(BatchStore, "counts", counted)
    told: list[list[batch_pb2.Batch]] = [[] for _ in range(20)]

    async def watch(seen: list[batch_pb2.Batch]) -> None:
        async for shown in orchestrator_client.watch(batch.batch_id):
            seen.append(shown)
            if all(told) and all(each[-1].counts.completed == shown.counts.completed for each in told):
                for event in go_on[: shown.counts.completed + 1]:
                    event.set()

    await asyncio.gather(*(watch(seen) for seen in told))
    assert looks < 3 * len(told)
    for seen in told:
        assert [bool(shown.pipeline.plan.tasks) for shown in seen] == [True] + [False] * (len(seen) - 1)
        assert [bool(shown.spec.plan.tasks) for shown in seen] == [True] + [False] * (len(seen) - 1)
        assert len(seen) > 2
        assert all(shown.HasField("pipeline") for shown in seen)


async def _pages(call: Any, orchestrator_client: OrchestratorClient, request: Callable[..., Any]) -> list[Any]:
    found = [await call(request(), **orchestrator_client.call_options)]
    while found[-1].next_page_token:
        found.append(await call(request(page_token=found[-1].next_page_token), **orchestrator_client.call_options))
    return found

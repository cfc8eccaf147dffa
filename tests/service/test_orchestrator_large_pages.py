"""Large lists come in pages limited by bytes, and leave out what lists do not show."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from protos.hugginggpt.v1 import artifact_pb2, batch_pb2, expert_pb2, plan_pb2, run_pb2
from protos.hugginggpt.v1 import gateway_pb2 as pb
from services.orchestrator.journal.batches import BatchStore
from services.orchestrator.journal.store import PAGE_BYTES
from services.orchestrator.settings import Settings
from tests.support.batches import OrchestratorClient, given, notes, rpc_error, step
from tests.support.orchestrator import OrchestratorUnderTest, echo, text
from tests.support.postgres import emptied_database

pytestmark = pytest.mark.slow

INPUTS, INPUT_BYTES = 24, 200_000
"""Inputs of a large item, and bytes of each: a page has a few such items."""
LONG_TEXT = text("x" * 250_000)
LARGE_PLAN = plan_pb2.Plan(tasks=[step(1, text=given("note")), *(step(task, text=LONG_TEXT) for task in range(2, 30))])
"""A plan of more than 7 MB."""


@pytest.fixture(params=["sqlite", "postgres"])
async def settings(request: pytest.FixtureRequest, settings: Settings) -> Settings:
    if request.param == "sqlite":
        return settings
    return settings.model_copy(update={"journal": await emptied_database(request.getfixturevalue("postgres"))})


@pytest.fixture
def orchestrator_client(orchestrator: OrchestratorUnderTest) -> OrchestratorClient:
    return OrchestratorClient(orchestrator.stub)


def large_item(number: int) -> batch_pb2.NewItem:
    content = artifact_pb2.Value(text="x" * INPUT_BYTES)
    inputs = [artifact_pb2.NamedValue(name=f"t{index}", value=content) for index in range(INPUTS)]
    return batch_pb2.NewItem(name=f"large {number}", inputs=inputs)


async def test_large_items_are_listed_in_several_pages_and_without_inputs_in_one(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    plan = plan_pb2.Plan(tasks=[step(index + 1, text=given(f"t{index}"), model="model") for index in range(INPUTS)])
    batch = await orchestrator_client.start([large_item(number) for number in range(20)], 5, plan=plan, max_at_once=1)
    await orchestrator_client.cancel(batch.batch_id)
    first = await orchestrator.stub.ListBatchItems(
        pb.ListBatchItemsRequest(batch_id=batch.batch_id), **orchestrator_client.call_options
    )
    assert 0 < first.ByteSize() <= PAGE_BYTES + 100_000
    items = await orchestrator_client.items(batch.batch_id)
    assert [item.name for item in items] == [f"large {number}" for number in range(20)]
    assert all(len(item.inputs) == INPUTS for item in items)
    basic = pb.ListBatchItemsRequest(batch_id=batch.batch_id, view=batch_pb2.BATCH_ITEM_VIEW_BASIC)
    outcomes = await orchestrator.stub.ListBatchItems(basic, **orchestrator_client.call_options)
    assert [item.name for item in outcomes.items] == [item.name for item in items]
    assert not outcomes.next_page_token
    assert not any(item.inputs for item in outcomes.items)


async def test_large_pipelines_and_their_versions_are_listed_in_several_pages(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    for number in range(3):
        await orchestrator_client.save(f"large{number}", plan=LARGE_PLAN)
        await orchestrator_client.save("large", plan=plan_pb2.Plan(tasks=[*LARGE_PLAN.tasks, step(40 + number)]))
    names = await _pages(orchestrator.stub.ListPipelines, orchestrator_client, pb.ListPipelinesRequest)
    assert [[each.name for each in page.pipelines] for page in names] == [["large"], ["large0"], ["large1"], ["large2"]]
    of_one = partial(pb.ListPipelinesRequest, name="large")
    versions = await _pages(orchestrator.stub.ListPipelines, orchestrator_client, of_one)
    assert [[each.version for each in page.pipelines] for page in versions] == [[3], [2], [1]]


async def test_batches_with_large_plans_are_listed_in_several_pages_without_the_plans(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    ids = [(await orchestrator_client.start(notes(1), plan=LARGE_PLAN, max_at_once=1)).batch_id for _ in range(3)]
    for batch_id in ids:
        await orchestrator_client.cancel(batch_id)
    pages = await _pages(orchestrator.stub.ListBatches, orchestrator_client, pb.ListBatchesRequest)
    assert [[batch.batch_id for batch in page.batches] for page in pages] == [[batch_id] for batch_id in ids[::-1]]
    assert not any(batch.pipeline.plan.tasks or batch.spec.plan.tasks for page in pages for batch in page.batches)


async def test_repeated_states_of_a_filter_count_once(orchestrator_client: OrchestratorClient) -> None:
    batch = await orchestrator_client.ended((await orchestrator_client.start(notes(2))).batch_id)
    states = [run_pb2.RUN_STATE_COMPLETED] * 300_000
    assert len(await orchestrator_client.items(batch.batch_id, states=states)) == 2
    assert len((await orchestrator_client.list_batches(states=states)).batches) == 1
    assert list(await orchestrator_client.list_runs(states=states)) == []


async def test_unknown_state_of_a_filter_is_refused(orchestrator_client: OrchestratorClient) -> None:
    batch = await orchestrator_client.start(notes(1))
    for call in (
        orchestrator_client.items(batch.batch_id, states=[77]),
        orchestrator_client.list_batches(states=[77]),
        orchestrator_client.list_runs(states=[77]),
    ):
        assert (await rpc_error(call)).port == "states"


async def test_watchers_get_the_plan_once_and_share_reads(
    orchestrator_client: OrchestratorClient, orchestrator: OrchestratorUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, counts = 0, BatchStore.counts
    released = [asyncio.Event() for _ in range(3)]

    async def count_reads(self: BatchStore, batch_id: str, since: float) -> Any:
        nonlocal reads
        reads += 1
        return await counts(self, batch_id, since)

    async def infer_once_released(request: expert_pb2.InferRequest) -> dict[str, artifact_pb2.Value]:
        await released[int(request.inputs["text"].text.split()[1]) - 1].wait()
        return await echo(request)

    orchestrator.peers.infer["model"] = infer_once_released
    batch = await orchestrator_client.start(notes(3), max_at_once=1)
    monkeypatch.setattr(BatchStore, "counts", count_reads)
    watchers: list[list[batch_pb2.Batch]] = [[] for _ in range(20)]

    async def watch(seen: list[batch_pb2.Batch]) -> None:
        """Watches the batch; releases the next item once all watchers have seen the end of the one before."""
        async for shown in orchestrator_client.watch(batch.batch_id):
            seen.append(shown)
            if all(watchers) and all(each[-1].counts.completed == shown.counts.completed for each in watchers):
                for event in released[: shown.counts.completed + 1]:
                    event.set()

    await asyncio.gather(*(watch(seen) for seen in watchers))
    assert reads < 3 * len(watchers)
    for seen in watchers:
        assert [bool(shown.pipeline.plan.tasks) for shown in seen] == [True] + [False] * (len(seen) - 1)
        assert [bool(shown.spec.plan.tasks) for shown in seen] == [True] + [False] * (len(seen) - 1)
        assert len(seen) > 2
        assert all(shown.HasField("pipeline") for shown in seen)


async def _pages(call: Any, orchestrator_client: OrchestratorClient, request: Callable[..., Any]) -> list[Any]:
    """Lists all pages."""
    pages = [await call(request(), **orchestrator_client.call_options)]
    while pages[-1].next_page_token:
        pages.append(await call(request(page_token=pages[-1].next_page_token), **orchestrator_client.call_options))
    return pages

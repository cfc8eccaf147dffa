"""Batches: one plan over many items, each of which ends by itself."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from protos.hugginggpt.internal.v1 import orchestrator_pb2
from protos.hugginggpt.v1 import (
    artifact_pb2,
    batch_pb2,
    caller_pb2,
    expert_pb2,
    failure_pb2,
    gateway_pb2,
    plan_pb2,
    run_pb2,
    task_pb2,
)
from services.common.errors import InvalidRequest, from_rpc
from services.orchestrator.journal.batches import BatchStore
from services.orchestrator.settings import Settings
from tests.support.batches import PINNED, PLAN, OrchestratorClient, given, note, notes, parts, state, step
from tests.support.orchestrator import END, OrchestratorUnderTest, echo, task
from tests.support.postgres import emptied_database


@pytest.fixture(params=["sqlite", "postgres"])
async def settings(request: pytest.FixtureRequest, settings: Settings) -> Settings:
    if request.param == "sqlite":
        return settings
    return settings.model_copy(update={"journal": await emptied_database(request.getfixturevalue("postgres"))})


@pytest.fixture
def orchestrator_client(orchestrator: OrchestratorUnderTest) -> OrchestratorClient:
    return OrchestratorClient(orchestrator.stub)


async def bad_seventeenth(request: expert_pb2.InferRequest) -> dict[str, artifact_pb2.Value]:
    if int(request.inputs["text"].text.split()[1]) % 17 == 0:
        raise InvalidRequest("it is broken", port="text", remedy="mend it")
    return await echo(request)


async def test_bad_items_cost_themselves_and_results_stand_in_the_order_of_the_input(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    orchestrator.peers.infer["model"] = bad_seventeenth
    batch = await orchestrator_client.ended((await orchestrator_client.start(notes(200), 30, plan=PINNED)).batch_id)
    assert (state(batch), batch.counts.completed, batch.counts.failed) == ("INCOMPLETE", 189, 11)
    items = await orchestrator_client.items(batch.batch_id, 33)
    assert [item.index for item in items] == list(range(1, 201))
    assert [item.name for item in items] == [f"note {number}" for number in range(1, 201)]
    for item in items:
        if item.index % 17:
            assert (state(item), item.outputs["text"].text) == ("COMPLETED", f"{item.name}!")
        else:
            assert (state(item), item.failure.message, item.failure.port) == ("FAILED", "it is broken", "text")
        assert item.run_id
        assert item.usage.HasField("elapsed")
        assert item.inputs[0].value.text == item.name
    failed = await orchestrator_client.items(batch.batch_id, states=[run_pb2.RUN_STATE_FAILED])
    assert [item.index for item in failed] == list(range(17, 200, 17))


async def test_items_make_no_planner_call_and_with_pins_none_asks_the_selector(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    batch = await orchestrator_client.ended((await orchestrator_client.start(notes(40), plan=PINNED)).batch_id)
    assert state(batch) == "COMPLETED"
    assert [request.goal.WhichOneof("kind") for request in orchestrator.peers.planned] == ["check"]
    assert len(orchestrator.peers.selected) <= 3  # before and after the first word of the catalogue, whatever the items
    assert orchestrator.peers.answered == []


async def test_an_item_is_a_run_for_nobody_in_particular_that_lists_leave_out(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    batch = await orchestrator_client.ended((await orchestrator_client.start(notes(2))).batch_id)
    (first, _) = await orchestrator_client.items(batch.batch_id)
    run = await orchestrator.stub.GetRun(
        gateway_pb2.GetRunRequest(run_id=first.run_id), **orchestrator_client.call_options
    )
    assert (run.batch.batch_id, run.batch.index, run.batch.name) == (batch.batch_id, 1, "note 1")
    assert (
        await orchestrator.stub.ListRuns(gateway_pb2.ListRunsRequest(), **orchestrator_client.call_options)
    ).runs == []
    listed = await orchestrator.stub.ListRuns(
        gateway_pb2.ListRunsRequest(batch_id=batch.batch_id), **orchestrator_client.call_options
    )
    assert {each.run_id for each in listed.runs} == {
        item.run_id for item in await orchestrator_client.items(batch.batch_id)
    }
    ended = await orchestrator.stub.ListEndedRuns(
        orchestrator_pb2.ListEndedRunsRequest(), **orchestrator_client.call_options
    )
    assert {each.caller.priority for each in ended.runs} == {caller_pb2.PRIORITY_BATCH}


async def test_as_many_items_as_wanted_are_under_way_at_once(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    under_way, most, full, go_on = 0, 0, asyncio.Event(), asyncio.Event()

    async def counted(request: expert_pb2.InferRequest) -> dict[str, artifact_pb2.Value]:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        if under_way == 3:
            full.set()
        await go_on.wait()
        under_way -= 1
        return await echo(request)

    orchestrator.peers.infer["model"] = counted
    batch = await orchestrator_client.start(notes(20), max_at_once=3)
    await full.wait()
    counts = (await orchestrator_client.get(batch.batch_id)).counts
    assert (counts.total, counts.running, counts.waiting) == (20, 3, 17)
    go_on.set()
    assert (await orchestrator_client.ended(batch.batch_id)).counts.completed == 20
    assert most == 3


async def test_words_are_planned_once_on_the_first_item(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    planned = task_pb2.Task(
        id=1, task="summarization", arguments={"text": task_pb2.Argument(input=task_pb2.InputRef(name="note"))}
    )
    orchestrator.peers.plan(type(END)(task=planned), END)
    batch = await orchestrator_client.ended(
        (await orchestrator_client.start(notes(5), request="shorten the note")).batch_id
    )
    assert (state(batch), batch.pipeline.inputs[0].name) == ("COMPLETED", "note")
    asked = [request for request in orchestrator.peers.planned if not request.goal.HasField("check")]
    assert [request.inputs[0].value.text for request in asked] == ["note 1"]


async def test_words_that_cannot_be_planned_end_the_batch_before_its_items(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    orchestrator.peers.plan(END)
    batch = await orchestrator_client.ended((await orchestrator_client.start(notes(5), request="dance")).batch_id)
    assert (state(batch), batch.failure.reason, batch.counts.waiting) == ("FAILED", "UNPLANNABLE", 5)
    orchestrator.peers.plan(task(1), END)
    await orchestrator_client.resume(batch.batch_id)
    batch = await orchestrator_client.ended(batch.batch_id)
    assert (state(batch), batch.HasField("failure")) == ("FAILED", False)  # the plan takes no note
    assert {item.failure.port for item in await orchestrator_client.items(batch.batch_id)} == {"note"}


async def test_an_item_that_does_not_fit_costs_itself(orchestrator_client: OrchestratorClient) -> None:
    picture = artifact_pb2.Value(artifact=artifact_pb2.Artifact(sha256="a" * 64, media_type="image/png"))
    odd = batch_pb2.NewItem(name="photo", inputs=[artifact_pb2.NamedValue(name="note", value=picture)])
    twice = batch_pb2.NewItem(inputs=[*note("a").inputs, *note("b").inputs])
    long = note("x" * 300_000, "long")
    batch = await orchestrator_client.start([note("a"), odd, batch_pb2.NewItem(name="empty"), twice, long, note("a")])
    batch = await orchestrator_client.ended(batch.batch_id)
    assert (state(batch), batch.counts.completed, batch.counts.failed) == ("INCOMPLETE", 2, 4)
    items = await orchestrator_client.items(batch.batch_id)
    assert [state(item)[0] for item in items] == list("CFFFFC")
    assert [item.failure.message for item in items[1:4]] == [
        "input note is an image, but the plan takes a text",
        "input note is missing",
        "input note is given twice",
    ]
    assert items[4].failure.reason == "TOO_LARGE"
    assert items[0].run_id != items[5].run_id, "two items of one name are two items"


@pytest.mark.parametrize(
    ("requests", "message"),
    [
        ([*parts([])], "no items"),
        ([*parts([batch_pb2.NewItem(), batch_pb2.NewItem()])], "no item is valid: input note is missing"),
        ([*parts(notes(1), plan=plan_pb2.Plan())], "no task"),
        ([*parts(notes(1), request=" ")], "names no work to run"),
        ([*parts(notes(1), max_at_once=-1)], "negative"),
        ([gateway_pb2.CreateBatchRequest(items=gateway_pb2.NewItems(items=notes(1)))], "no batch spec"),
        ([], "no batch spec"),
        ([*parts(notes(1)), *parts(notes(1))], "one spec"),
        ([*parts(notes(2))][:-1], "ended without the number of its items"),
        ([*[*parts(notes(2))][:-1], *[*parts(notes(1))][-1:]], "2 of 1 items were received"),
    ],
    ids=range(10),
)
async def test_what_cannot_be_a_batch_is_refused_and_leaves_nothing(
    orchestrator: OrchestratorUnderTest,
    orchestrator_client: OrchestratorClient,
    requests: list[gateway_pb2.CreateBatchRequest],
    message: str,
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await orchestrator_client.send(list(requests))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert message in (caught.value.details() or "")
    assert (
        await orchestrator.stub.ListBatches(gateway_pb2.ListBatchesRequest(), **orchestrator_client.call_options)
    ).batches == []


async def test_a_key_stands_for_one_batch(orchestrator_client: OrchestratorClient) -> None:
    first = await orchestrator_client.start(notes(3), idempotency_key="k")
    assert (await orchestrator_client.start(notes(3), 1, idempotency_key="k")).batch_id == first.batch_id
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await orchestrator_client.start(notes(4), idempotency_key="k")
    assert from_rpc(caught.value).reason == "IDEMPOTENCY"
    assert (await orchestrator_client.ended(first.batch_id)).counts.completed == 3


async def test_batches_are_listed_newest_first_page_by_page(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    ids = [(await orchestrator_client.start(notes(1))).batch_id for _ in range(3)]
    first = await orchestrator.stub.ListBatches(
        gateway_pb2.ListBatchesRequest(page_size=2), **orchestrator_client.call_options
    )
    rest = gateway_pb2.ListBatchesRequest(page_size=2, page_token=first.next_page_token)
    second = await orchestrator.stub.ListBatches(rest, **orchestrator_client.call_options)
    assert [batch.batch_id for batch in (*first.batches, *second.batches)] == ids[::-1]
    assert not second.next_page_token


async def test_other_tenants_see_nothing_of_a_batch(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    batch = await orchestrator_client.ended((await orchestrator_client.start(notes(1))).batch_id)
    stranger = OrchestratorClient(orchestrator.stub, "stranger")
    for call in (stranger.get, stranger.ended, stranger.items, stranger.cancel, stranger.resume):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(batch.batch_id)
        assert from_rpc(caught.value).reason == "BATCH"
    assert (
        await orchestrator.stub.ListBatches(gateway_pb2.ListBatchesRequest(), **stranger.call_options)
    ).batches == []


async def test_a_removed_batch_takes_its_runs_along(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    batch = await orchestrator_client.ended((await orchestrator_client.start(notes(3))).batch_id)
    (first, *_) = await orchestrator_client.items(batch.batch_id)
    await orchestrator.stub.DeleteBatch(
        gateway_pb2.DeleteBatchRequest(batch_id=batch.batch_id), **orchestrator_client.call_options
    )
    for call in (
        orchestrator.stub.GetBatch(
            gateway_pb2.GetBatchRequest(batch_id=batch.batch_id), **orchestrator_client.call_options
        ),
        orchestrator.stub.GetRun(gateway_pb2.GetRunRequest(run_id=first.run_id), **orchestrator_client.call_options),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_a_removed_run_leaves_no_result_in_its_batch(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    batch = await orchestrator_client.ended((await orchestrator_client.start(notes(2))).batch_id)
    (first, _) = await orchestrator_client.items(batch.batch_id)
    await orchestrator.stub.DeleteRun(
        gateway_pb2.DeleteRunRequest(run_id=first.run_id), **orchestrator_client.call_options
    )
    first, second = await orchestrator_client.items(batch.batch_id)
    assert (state(first), len(first.outputs)) == ("COMPLETED", 0)
    assert second.outputs


async def test_a_local_batch_runs_for_nobody_who_may_leave(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    await orchestrator_client.ended(
        (await orchestrator_client.start(notes(1), policy=caller_pb2.DATA_POLICY_LOCAL)).batch_id
    )
    ended = await orchestrator.stub.ListEndedRuns(
        orchestrator_pb2.ListEndedRunsRequest(), **orchestrator_client.call_options
    )
    assert {each.caller.policy for each in ended.runs} == {caller_pb2.DATA_POLICY_LOCAL}


async def test_several_ends_are_told_apart_by_their_tasks(orchestrator_client: OrchestratorClient) -> None:
    plan = plan_pb2.Plan(tasks=[step(1), step(2)])
    batch = await orchestrator_client.ended((await orchestrator_client.start(notes(1), plan=plan)).batch_id)
    assert {port.name for port in batch.pipeline.outputs} >= {"task1.text", "task2.text"}
    (item,) = await orchestrator_client.items(batch.batch_id)
    assert set(item.outputs) == {"task1.text", "task2.text"}


async def test_the_plan_of_a_run_is_run_on_items(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    events = await orchestrator_client.run(plan=PLAN, inputs=note("hello").inputs)
    batch = await orchestrator_client.ended(
        (await orchestrator_client.start(notes(2), run_id=events[0].run_id)).batch_id
    )
    assert batch.counts.completed == 2


async def streamed(
    requests: list[gateway_pb2.CreateBatchRequest], broken: asyncio.Event
) -> AsyncIterator[gateway_pb2.CreateBatchRequest]:
    for request in requests:
        yield request
    broken.set()
    await asyncio.Event().wait()


async def test_a_batch_whose_sender_goes_away_never_runs(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    sent = asyncio.Event()
    call = orchestrator.stub.CreateBatch(streamed(list(parts(notes(3))), sent), **orchestrator_client.call_options)
    await sent.wait()
    call.cancel()
    assert (await orchestrator_client.ended((await orchestrator_client.start(notes(1))).batch_id)).counts.total == 1
    assert (
        len(
            (
                await orchestrator.stub.ListBatches(
                    gateway_pb2.ListBatchesRequest(), **orchestrator_client.call_options
                )
            ).batches
        )
        == 1
    )


async def test_a_batch_whose_sender_goes_away_once_it_is_kept_runs_to_its_end(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, kept = BatchStore.start, asyncio.Event()

    async def slow(*args: Any) -> str:
        batch_id = await start(*args)
        kept.set()
        await asyncio.sleep(0.1)  # as where the answer waits for a busy loop
        return batch_id

    monkeypatch.setattr(BatchStore, "start", slow)
    call = orchestrator.stub.CreateBatch(parts(notes(30)), **orchestrator_client.call_options)
    await kept.wait()
    call.cancel()
    (listed,) = (
        await orchestrator.stub.ListBatches(gateway_pb2.ListBatchesRequest(), **orchestrator_client.call_options)
    ).batches
    assert (await orchestrator_client.ended(listed.batch_id)).counts.completed == 30


async def test_an_item_that_cannot_be_run_says_so_before_and_after_it_is_tried_again(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    broken = batch_pb2.NewItem(
        name="in/3.png", failure=failure_pb2.Failure(reason="UNREADABLE", message="in/3.png is no file")
    )
    orchestrator.peers.plan(task(1, text=given("note")), END)
    batch = await orchestrator_client.start([broken, *notes(2)], request="shorten the note")
    batch = await orchestrator_client.ended(batch.batch_id)
    assert (state(batch), batch.counts.completed, batch.counts.failed) == ("INCOMPLETE", 2, 1)
    asked = [request for request in orchestrator.peers.planned if not request.goal.HasField("check")]
    assert asked[0].inputs[0].value.text == "note 1"
    await orchestrator_client.resume(batch.batch_id, failed_only=True)
    batch = await orchestrator_client.ended(batch.batch_id)
    assert (state(batch), batch.counts.completed, batch.counts.failed) == ("INCOMPLETE", 2, 1)
    (failed,) = await orchestrator_client.items(batch.batch_id, states=[run_pb2.RUN_STATE_FAILED])
    assert (failed.name, failed.failure.message, failed.run_id) == ("in/3.png", "in/3.png is no file", "")

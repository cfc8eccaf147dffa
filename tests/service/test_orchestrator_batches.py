"""Batches: one plan over many items, each a run of its own."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from protos.hugginggpt.v1 import (
    artifact_pb2,
    batch_pb2,
    caller_pb2,
    expert_pb2,
    failure_pb2,
    gateway_pb2,
    plan_pb2,
    run_pb2,
)
from services.common.errors import InvalidRequest
from services.orchestrator.journal.batches import BatchStore
from services.orchestrator.settings import Settings
from tests.support.batches import PINNED, PLAN, OrchestratorClient, given, note, notes, parts, rpc_error, state, step
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


async def fail_every_17th(request: expert_pb2.InferRequest) -> dict[str, artifact_pb2.Value]:
    if int(request.inputs["text"].text.split()[1]) % 17 == 0:
        raise InvalidRequest("the text is damaged", port="text", remedy="send it again")
    return await echo(request)


async def test_failed_items_do_not_affect_others(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    orchestrator.peers.infer["model"] = fail_every_17th
    batch = await orchestrator_client.ended((await orchestrator_client.start(notes(200), 30, plan=PINNED)).batch_id)
    assert state(batch) == "INCOMPLETE"
    assert batch.counts.completed == 189
    assert batch.counts.failed == 11
    for item in await orchestrator_client.items(batch.batch_id):
        if item.index % 17:
            assert state(item) == "COMPLETED"
            assert item.outputs["text"].text == f"{item.name}!"
        else:
            assert state(item) == "FAILED"
            assert item.failure.message == "the text is damaged"
            assert item.failure.port == "text"
        assert item.run_id
        assert item.usage.HasField("elapsed")


async def test_items_are_listed_in_input_order(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    orchestrator.peers.infer["model"] = fail_every_17th
    batch = await orchestrator_client.ended((await orchestrator_client.start(notes(200), 30, plan=PINNED)).batch_id)
    items = await orchestrator_client.items(batch.batch_id, 33)
    assert [item.index for item in items] == list(range(1, 201))
    assert [item.name for item in items] == [f"note {number}" for number in range(1, 201)]
    assert [item.inputs[0].value.text for item in items] == [item.name for item in items]
    failed = await orchestrator_client.items(batch.batch_id, states=[run_pb2.RUN_STATE_FAILED])
    assert [item.index for item in failed] == list(range(17, 200, 17))


async def test_items_with_pinned_models_call_neither_planner_nor_selector_nor_responder(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    batch = await orchestrator_client.ended((await orchestrator_client.start(notes(40), plan=PINNED)).batch_id)
    assert state(batch) == "COMPLETED"
    assert [request.goal.WhichOneof("kind") for request in orchestrator.peers.planned] == ["check"]
    assert len(orchestrator.peers.selected) <= 3, "for the catalogue before and after its first change, not per item"
    assert orchestrator.peers.answered == []


async def test_item_run_has_its_position_in_the_batch(orchestrator_client: OrchestratorClient) -> None:
    batch = await orchestrator_client.ended((await orchestrator_client.start(notes(2))).batch_id)
    (first, _) = await orchestrator_client.items(batch.batch_id)
    run = await orchestrator_client.get_run(first.run_id)
    assert run.batch.batch_id == batch.batch_id
    assert run.batch.index == 1
    assert run.batch.name == "note 1"


async def test_item_runs_are_listed_only_for_their_batch(orchestrator_client: OrchestratorClient) -> None:
    batch = await orchestrator_client.ended((await orchestrator_client.start(notes(2))).batch_id)
    assert list(await orchestrator_client.list_runs()) == []
    listed = {run.run_id for run in await orchestrator_client.list_runs(batch_id=batch.batch_id)}
    assert listed == {item.run_id for item in await orchestrator_client.items(batch.batch_id)}


async def test_item_runs_have_batch_priority(orchestrator_client: OrchestratorClient) -> None:
    await orchestrator_client.ended((await orchestrator_client.start(notes(2))).batch_id)
    priorities = {run.caller.priority for run in await orchestrator_client.ended_runs()}
    assert priorities == {caller_pb2.PRIORITY_BATCH}


async def test_no_more_items_run_at_once_than_requested(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    running, most, full, release = 0, 0, asyncio.Event(), asyncio.Event()

    async def count(request: expert_pb2.InferRequest) -> dict[str, artifact_pb2.Value]:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 3:
            full.set()
        await release.wait()
        running -= 1
        return await echo(request)

    orchestrator.peers.infer["model"] = count
    batch = await orchestrator_client.start(notes(20), max_at_once=3)
    await full.wait()
    counts = (await orchestrator_client.get(batch.batch_id)).counts
    assert counts.total == 20
    assert counts.running == 3
    assert counts.waiting == 17
    release.set()
    assert (await orchestrator_client.ended(batch.batch_id)).counts.completed == 20
    assert most == 3


async def test_request_is_planned_once_on_the_first_item(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    orchestrator.peers.plan(task(1, text=given("note")), END)
    batch = await orchestrator_client.start(notes(5), request="shorten the note")
    batch = await orchestrator_client.ended(batch.batch_id)
    assert state(batch) == "COMPLETED"
    assert batch.pipeline.inputs[0].name == "note"
    planned = [request for request in orchestrator.peers.planned if not request.goal.HasField("check")]
    assert [request.inputs[0].value.text for request in planned] == ["note 1"]


async def test_batch_fails_without_running_items_if_its_request_cannot_be_planned(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    orchestrator.peers.plan(END)
    batch = await orchestrator_client.ended((await orchestrator_client.start(notes(5), request="dance")).batch_id)
    assert state(batch) == "FAILED"
    assert batch.failure.reason == "UNPLANNABLE"
    assert batch.counts.waiting == 5


async def test_resumed_batch_is_planned_again(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    orchestrator.peers.plan(END)
    orchestrator.peers.plan(task(1), END)
    batch = await orchestrator_client.ended((await orchestrator_client.start(notes(5), request="dance")).batch_id)
    await orchestrator_client.resume(batch.batch_id)
    batch = await orchestrator_client.ended(batch.batch_id)
    assert state(batch) == "FAILED"
    assert not batch.HasField("failure"), "the plan takes no note, so each item has a failure of its own"
    assert {item.failure.port for item in await orchestrator_client.items(batch.batch_id)} == {"note"}


async def test_invalid_items_fail_alone(orchestrator_client: OrchestratorClient) -> None:
    image = artifact_pb2.Value(artifact=artifact_pb2.Artifact(sha256="a" * 64, media_type="image/png"))
    photo = batch_pb2.NewItem(name="photo", inputs=[artifact_pb2.NamedValue(name="note", value=image)])
    twice = batch_pb2.NewItem(inputs=[*note("a").inputs, *note("b").inputs])
    long = note("x" * 300_000, "long")
    batch = await orchestrator_client.start([note("a"), photo, batch_pb2.NewItem(name="empty"), twice, long, note("a")])
    batch = await orchestrator_client.ended(batch.batch_id)
    assert state(batch) == "INCOMPLETE"
    assert batch.counts.completed == 2
    assert batch.counts.failed == 4
    items = await orchestrator_client.items(batch.batch_id)
    assert [state(item) for item in items] == ["COMPLETED", *["FAILED"] * 4, "COMPLETED"]
    assert [item.failure.message for item in items[1:4]] == [
        "input note is an image, but the plan takes a text",
        "input note is missing",
        "input note is given twice",
    ]
    assert items[4].failure.reason == "TOO_LARGE"


async def test_items_with_equal_names_run_separately(orchestrator_client: OrchestratorClient) -> None:
    batch = await orchestrator_client.ended((await orchestrator_client.start([note("a"), note("a")])).batch_id)
    first, second = await orchestrator_client.items(batch.batch_id)
    assert first.run_id != second.run_id


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
    ids=[
        "no-items",
        "no-valid-item",
        "no-task",
        "blank-request",
        "negative-limit",
        "no-spec",
        "no-message",
        "two-specs",
        "no-end",
        "wrong-count",
    ],
)
async def test_invalid_batch_is_refused_and_not_stored(
    orchestrator_client: OrchestratorClient, requests: list[gateway_pb2.CreateBatchRequest], message: str
) -> None:
    error = await rpc_error(orchestrator_client.send(requests))
    assert error.code is grpc.StatusCode.INVALID_ARGUMENT
    assert message in error.message
    assert not (await orchestrator_client.list_batches()).batches


async def test_repeated_idempotency_key_returns_the_same_batch(orchestrator_client: OrchestratorClient) -> None:
    first = await orchestrator_client.start(notes(3), idempotency_key="k")
    assert (await orchestrator_client.start(notes(3), 1, idempotency_key="k")).batch_id == first.batch_id
    assert (await orchestrator_client.ended(first.batch_id)).counts.completed == 3


async def test_idempotency_key_of_another_batch_is_refused(orchestrator_client: OrchestratorClient) -> None:
    await orchestrator_client.start(notes(3), idempotency_key="k")
    assert (await rpc_error(orchestrator_client.start(notes(4), idempotency_key="k"))).reason == "IDEMPOTENCY"


async def test_batches_are_listed_newest_first(orchestrator_client: OrchestratorClient) -> None:
    ids = [(await orchestrator_client.start(notes(1))).batch_id for _ in range(3)]
    first = await orchestrator_client.list_batches(page_size=2)
    second = await orchestrator_client.list_batches(page_size=2, page_token=first.next_page_token)
    assert [batch.batch_id for batch in (*first.batches, *second.batches)] == ids[::-1]
    assert not second.next_page_token


async def test_batch_is_hidden_from_other_tenants(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    batch = await orchestrator_client.ended((await orchestrator_client.start(notes(1))).batch_id)
    other = OrchestratorClient(orchestrator.stub, "other")
    for call in (other.get, other.ended, other.items, other.cancel, other.resume):
        assert (await rpc_error(call(batch.batch_id))).reason == "BATCH"
    assert not (await other.list_batches()).batches


async def test_deleted_batch_is_deleted_with_its_runs(orchestrator_client: OrchestratorClient) -> None:
    batch = await orchestrator_client.ended((await orchestrator_client.start(notes(3))).batch_id)
    (first, *_) = await orchestrator_client.items(batch.batch_id)
    await orchestrator_client.delete(batch.batch_id)
    assert (await rpc_error(orchestrator_client.get(batch.batch_id))).code is grpc.StatusCode.NOT_FOUND
    assert (await rpc_error(orchestrator_client.get_run(first.run_id))).code is grpc.StatusCode.NOT_FOUND


async def test_item_of_a_deleted_run_has_no_outputs(orchestrator_client: OrchestratorClient) -> None:
    batch = await orchestrator_client.ended((await orchestrator_client.start(notes(2))).batch_id)
    (first, _) = await orchestrator_client.items(batch.batch_id)
    await orchestrator_client.delete_run(first.run_id)
    first, second = await orchestrator_client.items(batch.batch_id)
    assert state(first) == "COMPLETED"
    assert not first.outputs
    assert second.outputs


async def test_items_of_a_local_batch_are_local(orchestrator_client: OrchestratorClient) -> None:
    batch = await orchestrator_client.start(notes(1), policy=caller_pb2.DATA_POLICY_LOCAL)
    await orchestrator_client.ended(batch.batch_id)
    assert {run.caller.policy for run in await orchestrator_client.ended_runs()} == {caller_pb2.DATA_POLICY_LOCAL}


async def test_outputs_of_several_final_tasks_have_their_task_in_their_names(
    orchestrator_client: OrchestratorClient,
) -> None:
    plan = plan_pb2.Plan(tasks=[step(1), step(2)])
    batch = await orchestrator_client.ended((await orchestrator_client.start(notes(1), plan=plan)).batch_id)
    assert {port.name for port in batch.pipeline.outputs} >= {"task1.text", "task2.text"}
    (item,) = await orchestrator_client.items(batch.batch_id)
    assert set(item.outputs) == {"task1.text", "task2.text"}


async def test_batch_runs_the_plan_of_a_run(orchestrator_client: OrchestratorClient) -> None:
    events = await orchestrator_client.run(plan=PLAN, inputs=note("hello").inputs)
    batch = await orchestrator_client.start(notes(2), run_id=events[0].run_id)
    assert (await orchestrator_client.ended(batch.batch_id)).counts.completed == 2


# ---------------------------------------------------------------- disconnected clients


async def stream_without_end(
    requests: list[gateway_pb2.CreateBatchRequest], sent: asyncio.Event
) -> AsyncIterator[gateway_pb2.CreateBatchRequest]:
    for request in requests:
        yield request
    sent.set()
    await asyncio.Event().wait()


async def test_batch_whose_client_disconnects_during_upload_is_discarded(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    sent = asyncio.Event()
    requests = stream_without_end(list(parts(notes(3))), sent)
    call = orchestrator.stub.CreateBatch(requests, **orchestrator_client.call_options)
    await sent.wait()
    call.cancel()
    batch = await orchestrator_client.ended((await orchestrator_client.start(notes(1))).batch_id)
    assert [each.batch_id for each in (await orchestrator_client.list_batches()).batches] == [batch.batch_id]


async def test_stored_batch_runs_although_its_client_disconnects(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, stored = BatchStore.start, asyncio.Event()

    async def start_slowly(*args: Any) -> str:
        batch_id = await start(*args)
        stored.set()
        await asyncio.sleep(0.1)  # as on a late event loop
        return batch_id

    monkeypatch.setattr(BatchStore, "start", start_slowly)
    call = orchestrator.stub.CreateBatch(parts(notes(30)), **orchestrator_client.call_options)
    await stored.wait()
    call.cancel()
    (batch,) = (await orchestrator_client.list_batches()).batches
    assert (await orchestrator_client.ended(batch.batch_id)).counts.completed == 30


# ---------------------------------------------------------------- items that are invalid from the start

UNREADABLE = batch_pb2.NewItem(
    name="in/3.png", failure=failure_pb2.Failure(reason="UNREADABLE", message="in/3.png cannot be read")
)


async def test_item_sent_as_failed_is_not_run(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    orchestrator.peers.plan(task(1, text=given("note")), END)
    batch = await orchestrator_client.start([UNREADABLE, *notes(2)], request="shorten the note")
    batch = await orchestrator_client.ended(batch.batch_id)
    assert state(batch) == "INCOMPLETE"
    assert batch.counts.completed == 2
    assert batch.counts.failed == 1
    planned = [request for request in orchestrator.peers.planned if not request.goal.HasField("check")]
    assert planned[0].inputs[0].value.text == "note 1"


async def test_item_sent_as_failed_fails_again_when_failed_items_are_resumed(
    orchestrator_client: OrchestratorClient,
) -> None:
    batch = await orchestrator_client.ended((await orchestrator_client.start([UNREADABLE, *notes(2)])).batch_id)
    await orchestrator_client.resume(batch.batch_id, failed_only=True)
    batch = await orchestrator_client.ended(batch.batch_id)
    assert state(batch) == "INCOMPLETE"
    assert batch.counts.completed == 2
    assert batch.counts.failed == 1
    (failed,) = await orchestrator_client.items(batch.batch_id, states=[run_pb2.RUN_STATE_FAILED])
    assert failed.name == "in/3.png"
    assert failed.failure.message == "in/3.png cannot be read"
    assert failed.run_id == ""

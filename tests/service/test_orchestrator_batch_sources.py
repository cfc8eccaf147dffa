"""What a batch is to run: where that is none, or not the caller's to run, it is said before an item is taken."""

from typing import Any

import grpc
import pytest

from protos.hugginggpt.internal.v1 import orchestrator_pb2
from protos.hugginggpt.v1 import (
    artifact_pb2,
    batch_pb2,
    caller_pb2,
    gateway_pb2,
    pipeline_pb2,
    plan_pb2,
    run_pb2,
    task_pb2,
    usage_pb2,
)
from services.common.errors import ServiceError, from_rpc
from tests.support.batches import PINNED, PLAN, OrchestratorClient, note, notes, state, step
from tests.support.orchestrator import END, OrchestratorUnderTest, task, text

LONG = text("x" * 300_000)
AFTER = task_pb2.Argument(reference=task_pb2.Reference(task_id=1, output="text"))


@pytest.fixture
def orchestrator_client(orchestrator: OrchestratorUnderTest) -> OrchestratorClient:
    return OrchestratorClient(orchestrator.stub)


async def refused(call: Any) -> ServiceError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return from_rpc(caught.value)


async def nothing_is_left(orchestrator_client: OrchestratorClient) -> bool:
    return not (
        await orchestrator_client.stub.ListBatches(gateway_pb2.ListBatchesRequest(), **orchestrator_client.call_options)
    ).batches


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ({"pipeline": pipeline_pb2.PipelineRef(name="none")}, "PIPELINE"),
        ({"pipeline": pipeline_pb2.PipelineRef(name="short", version=9)}, "PIPELINE"),
        ({"pipeline": pipeline_pb2.PipelineRef(name="short", version=-1)}, "PIPELINE"),
        ({"run_id": "run_0"}, "RUN"),
        ({"run_id": ""}, "RUN"),
        ({"plan": plan_pb2.Plan(tasks=[step(1, "dancing")])}, "TASK_UNAVAILABLE"),
        ({"plan": plan_pb2.Plan(tasks=[step(1, model="gone")])}, "TASK_UNAVAILABLE"),
        ({"plan": plan_pb2.Plan(tasks=[step(1, text=LONG)])}, "TOO_LARGE"),
        ({"plan": plan_pb2.Plan(tasks=[step(1), step(2, text=AFTER)]), "budget": usage_pb2.Budget(tasks=1)}, "BUDGET"),
        ({"request": " \n"}, "EMPTY"),
    ],
    ids=["pipeline", "version", "odd-version", "run", "no-run", "task", "model", "long", "budget", "words"],
)
async def test_what_is_none_is_named_with_a_remedy(
    orchestrator_client: OrchestratorClient, source: dict[str, Any], reason: str
) -> None:
    await orchestrator_client.save(plan=PLAN)
    error = await refused(orchestrator_client.start(notes(2), **source))
    assert (error.reason, bool(error.remedy)) == (reason, True)
    assert await nothing_is_left(orchestrator_client)


async def test_a_vanished_model_is_named_with_one_that_fits(orchestrator_client: OrchestratorClient) -> None:
    error = await refused(orchestrator_client.start(notes(1), plan=plan_pb2.Plan(tasks=[step(1, model="gone")])))
    assert "task 1 (summarization by gone): no expert offers model gone" in error.message
    assert error.remedy == "pin model"


async def test_what_is_anothers_is_none(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    await orchestrator_client.save(plan=PLAN)
    run_id = (await orchestrator_client.run(plan=PLAN, inputs=note("a").inputs))[0].run_id
    stranger = OrchestratorClient(orchestrator.stub, "stranger")
    own = pipeline_pb2.PipelineRef(name="short")
    assert (await refused(stranger.start(notes(1), pipeline=own))).reason == "PIPELINE"
    assert (await refused(stranger.start(notes(1), run_id=run_id))).reason == "RUN"
    assert (await refused(stranger.save(run_id=run_id))).reason == "RUN"
    assert await nothing_is_left(stranger)


async def test_a_run_that_has_not_ended_has_no_plan_yet(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    orchestrator.peers.plan(task(1), END)
    spec = run_pb2.RunSpec(request="do it", mode=run_pb2.RUN_MODE_APPROVE)
    begun = await anext(
        aiter(
            orchestrator.stub.CreateRun(
                orchestrator_pb2.CreateRunRequest(spec=spec), **orchestrator_client.call_options
            )
        )
    )
    error = await refused(orchestrator_client.start(notes(1), run_id=begun.run_id))
    assert (error.reason, error.code) == ("RUNNING", grpc.StatusCode.FAILED_PRECONDITION)


async def test_a_policy_that_nobody_here_knows_keeps_in(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    newer: Any = 7
    assert (await orchestrator_client.save(plan=PINNED, policy=newer)).version == 1
    for source in ({"pipeline": pipeline_pb2.PipelineRef(name="short")}, {"plan": PINNED, "policy": newer}):
        await orchestrator_client.ended((await orchestrator_client.start(notes(1), **source)).batch_id)
    ended = await orchestrator.stub.ListEndedBatches(
        orchestrator_pb2.ListEndedBatchesRequest(), **orchestrator_client.call_options
    )
    assert [batch.caller.policy for batch in ended.batches] == [caller_pb2.DATA_POLICY_LOCAL] * 2


async def test_items_that_are_unlike_the_first_cost_themselves_where_the_plan_is_made_on_it(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    picture = artifact_pb2.Value(artifact=artifact_pb2.Artifact(sha256="a" * 64, media_type="image/png"))
    odd = batch_pb2.NewItem(name="photo", inputs=[artifact_pb2.NamedValue(name="note", value=picture)])
    other = batch_pb2.NewItem(
        name="other", inputs=[artifact_pb2.NamedValue(name="text", value=artifact_pb2.Value(text="a"))]
    )
    orchestrator.peers.plan(type(END)(task=PLAN.tasks[0]), END)
    batch = await orchestrator_client.start([note("a"), odd, other, note("b")], request="shorten the note")
    batch = await orchestrator_client.ended(batch.batch_id)
    assert (state(batch), batch.counts.completed, batch.counts.failed) == ("INCOMPLETE", 2, 2)
    failures = [
        item.failure for item in await orchestrator_client.items(batch.batch_id, states=[run_pb2.RUN_STATE_FAILED])
    ]
    assert [(failure.port, bool(failure.remedy)) for failure in failures] == [("note", True), ("text", True)]

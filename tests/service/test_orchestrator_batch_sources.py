"""Sources of a batch: a pipeline, plan, run or request; invalid ones are refused before any item is received."""

from typing import Any

import grpc
import pytest

from protos.hugginggpt.internal.v1 import orchestrator_pb2
from protos.hugginggpt.v1 import (
    artifact_pb2,
    batch_pb2,
    caller_pb2,
    pipeline_pb2,
    plan_pb2,
    run_pb2,
    usage_pb2,
)
from tests.support.batches import PINNED, PLAN, OrchestratorClient, note, notes, rpc_error, state, step
from tests.support.orchestrator import END, OrchestratorUnderTest, ref, task, text

LONG_TEXT = text("x" * 300_000)


@pytest.fixture
def orchestrator_client(orchestrator: OrchestratorUnderTest) -> OrchestratorClient:
    return OrchestratorClient(orchestrator.stub)


async def has_no_batches(client: OrchestratorClient) -> bool:
    return not (await client.list_batches()).batches


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
        ({"plan": plan_pb2.Plan(tasks=[step(1, text=LONG_TEXT)])}, "TOO_LARGE"),
        ({"plan": plan_pb2.Plan(tasks=[step(1), step(2, text=ref(1))]), "budget": usage_pb2.Budget(tasks=1)}, "BUDGET"),
        ({"request": " \n"}, "EMPTY"),
    ],
    ids=[
        "unknown-pipeline",
        "unknown-version",
        "negative-version",
        "unknown-run",
        "no-run",
        "unknown-task",
        "unknown-model",
        "large-value",
        "budget",
        "blank-request",
    ],
)
async def test_invalid_source_is_refused_with_a_remedy(
    orchestrator_client: OrchestratorClient, source: dict[str, Any], reason: str
) -> None:
    await orchestrator_client.save(plan=PLAN)
    error = await rpc_error(orchestrator_client.start(notes(2), **source))
    assert error.reason == reason
    assert error.remedy
    assert await has_no_batches(orchestrator_client)


async def test_error_for_a_model_that_is_not_offered_names_another(orchestrator_client: OrchestratorClient) -> None:
    plan = plan_pb2.Plan(tasks=[step(1, model="gone")])
    error = await rpc_error(orchestrator_client.start(notes(1), plan=plan))
    assert "task 1 (summarization by gone): no expert offers model gone" in error.message
    assert error.remedy == "pin model"


async def test_sources_of_another_tenant_are_not_found(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    await orchestrator_client.save(plan=PLAN)
    run_id = (await orchestrator_client.run(plan=PLAN, inputs=note("a").inputs))[0].run_id
    other = OrchestratorClient(orchestrator.stub, "other")
    pipeline = pipeline_pb2.PipelineRef(name="short")
    assert (await rpc_error(other.start(notes(1), pipeline=pipeline))).reason == "PIPELINE"
    assert (await rpc_error(other.start(notes(1), run_id=run_id))).reason == "RUN"
    assert (await rpc_error(other.save(run_id=run_id))).reason == "RUN"
    assert await has_no_batches(other)


async def test_active_run_is_refused_as_a_source(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    orchestrator.peers.plan(task(1), END)
    spec = run_pb2.RunSpec(request="do it", mode=run_pb2.RUN_MODE_APPROVE)
    request = orchestrator_pb2.CreateRunRequest(spec=spec)
    accepted = await anext(aiter(orchestrator.stub.CreateRun(request, **orchestrator_client.call_options)))
    error = await rpc_error(orchestrator_client.start(notes(1), run_id=accepted.run_id))
    assert error.reason == "RUNNING"
    assert error.code == grpc.StatusCode.FAILED_PRECONDITION


async def test_unknown_data_policy_counts_as_local(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    newer: Any = 7
    assert (await orchestrator_client.save(plan=PINNED, policy=newer)).version == 1
    for source in ({"pipeline": pipeline_pb2.PipelineRef(name="short")}, {"plan": PINNED, "policy": newer}):
        await orchestrator_client.ended((await orchestrator_client.start(notes(1), **source)).batch_id)
    request = orchestrator_pb2.ListEndedBatchesRequest()
    ended = await orchestrator.stub.ListEndedBatches(request, **orchestrator_client.call_options)
    assert [batch.caller.policy for batch in ended.batches] == [caller_pb2.DATA_POLICY_LOCAL] * 2


async def test_items_that_do_not_fit_the_plan_made_for_the_first_fail_alone(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    image = artifact_pb2.Value(artifact=artifact_pb2.Artifact(sha256="a" * 64, media_type="image/png"))
    photo = batch_pb2.NewItem(name="photo", inputs=[artifact_pb2.NamedValue(name="note", value=image)])
    other = batch_pb2.NewItem(
        name="other", inputs=[artifact_pb2.NamedValue(name="text", value=artifact_pb2.Value(text="a"))]
    )
    orchestrator.peers.plan(type(END)(task=PLAN.tasks[0]), END)
    batch = await orchestrator_client.start([note("a"), photo, other, note("b")], request="shorten the note")
    batch = await orchestrator_client.ended(batch.batch_id)
    assert state(batch) == "INCOMPLETE"
    assert batch.counts.completed == 2
    assert batch.counts.failed == 2
    failed = await orchestrator_client.items(batch.batch_id, states=[run_pb2.RUN_STATE_FAILED])
    assert [item.failure.port for item in failed] == ["note", "text"]
    assert all(item.failure.remedy for item in failed)

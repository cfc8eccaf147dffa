"""Data policy local of pipelines and batches: it holds for planning, selection and every item."""

from collections.abc import Mapping
from typing import Any

import grpc
import pytest

from protos.hugginggpt.internal.v1 import orchestrator_pb2, selector_pb2
from protos.hugginggpt.v1 import (
    artifact_pb2,
    caller_pb2,
    expert_pb2,
    pipeline_pb2,
    run_pb2,
)
from protos.hugginggpt.v1.caller_pb2 import DATA_POLICY_LOCAL, DATA_POLICY_OPEN
from protos.hugginggpt.v1.model_pb2 import MODEL_LOCATION_EXTERNAL
from services.common import call_context
from tests.support.batches import PLAN, OrchestratorClient, given, note, notes, rpc_error, state
from tests.support.orchestrator import END, OrchestratorUnderTest, echo, task


@pytest.fixture
def orchestrator_client(orchestrator: OrchestratorUnderTest) -> OrchestratorClient:
    """A client whose data policy is open."""
    return OrchestratorClient(orchestrator.stub)


async def local_run(orchestrator: OrchestratorUnderTest) -> str:
    """Executes a run of the same tenant with data policy local; returns its ID."""
    spec = run_pb2.RunSpec(plan=PLAN, inputs=note("a secret").inputs)
    caller = caller_pb2.Caller(tenant="default", policy=DATA_POLICY_LOCAL)
    request = orchestrator_pb2.CreateRunRequest(spec=spec)
    metadata = ((call_context.METADATA_KEY, caller.SerializeToString()),)
    events = [event async for event in orchestrator.stub.CreateRun(request, timeout=20, metadata=metadata)]
    return str(events[0].run_id)


async def remove_internal_models(orchestrator: OrchestratorUnderTest, client: OrchestratorClient) -> None:
    """Makes all models external, and waits until the orchestrator knows it."""
    orchestrator.peers.candidates[0].candidate.location = MODEL_LOCATION_EXTERNAL
    orchestrator.peers.changed.set()
    while True:
        try:
            await client.save("any", plan=PLAN, policy=DATA_POLICY_LOCAL)
        except grpc.aio.AioRpcError:
            return


async def test_calls_for_a_local_batch_have_policy_local(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    expert_callers: list[caller_pb2.Caller] = []

    async def record_caller(request: expert_pb2.InferRequest) -> dict[str, artifact_pb2.Value]:
        expert_callers.append(call_context.current())
        return await echo(request)

    orchestrator.peers.infer["model"] = record_caller
    orchestrator.peers.plan(task(1, text=given("note")), END)
    batch = await orchestrator_client.start(notes(3), request="shorten it", policy=DATA_POLICY_LOCAL)
    await orchestrator_client.ended(batch.batch_id)
    assert len(expert_callers) == 3
    assert {caller.policy for caller in (*expert_callers, *orchestrator.peers.callers)} == {DATA_POLICY_LOCAL}


async def test_items_of_a_local_batch_do_not_call_better_external_models(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    async def fail(_: expert_pb2.InferRequest) -> dict[str, artifact_pb2.Value]:
        raise AssertionError("an external expert was called")

    better = selector_pb2.SelectedCandidate()
    better.CopyFrom(orchestrator.peers.candidates[0])
    better.candidate.model_id, better.candidate.location = "better", MODEL_LOCATION_EXTERNAL
    orchestrator.peers.candidates.insert(0, better)
    orchestrator.peers.infer["better"] = fail
    batch = await orchestrator_client.start(notes(3), policy=DATA_POLICY_LOCAL)
    assert state(await orchestrator_client.ended(batch.batch_id)) == "COMPLETED"


@pytest.mark.parametrize("source", ["plan", "pipeline", "run", "local pipeline"])
async def test_local_batch_without_internal_model_is_refused(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient, source: str
) -> None:
    await orchestrator_client.save(plan=PLAN)
    await orchestrator_client.save("local", plan=PLAN, policy=DATA_POLICY_LOCAL)
    events = await orchestrator_client.run(plan=PLAN, inputs=note("open").inputs)
    await remove_internal_models(orchestrator, orchestrator_client)
    sources: Mapping[str, dict[str, Any]] = {
        "plan": {"plan": PLAN, "policy": DATA_POLICY_LOCAL},
        "pipeline": {"pipeline": pipeline_pb2.PipelineRef(name="short"), "policy": DATA_POLICY_LOCAL},
        "run": {"run_id": events[0].run_id, "policy": DATA_POLICY_LOCAL},
        "local pipeline": {"pipeline": pipeline_pb2.PipelineRef(name="local")},
    }
    error = await rpc_error(orchestrator_client.start(notes(2), **sources[source]))
    assert error.code == grpc.StatusCode.FAILED_PRECONDITION
    assert error.reason == "POLICY"
    assert error.remedy
    assert not (await orchestrator_client.list_batches()).batches


async def test_local_pipeline_without_internal_model_is_not_saved(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    orchestrator.peers.candidates[0].candidate.location = MODEL_LOCATION_EXTERNAL
    error = await rpc_error(orchestrator_client.save(plan=PLAN, policy=DATA_POLICY_LOCAL))
    assert error.reason == "POLICY"
    assert (await orchestrator_client.save(plan=PLAN)).policy != DATA_POLICY_LOCAL


async def test_pipelines_and_batches_of_a_local_run_are_local(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    run_id = await local_run(orchestrator)
    for policy in (caller_pb2.DATA_POLICY_UNSPECIFIED, DATA_POLICY_OPEN):
        assert (await orchestrator_client.save(run_id=run_id, policy=policy)).policy == DATA_POLICY_LOCAL
    batch = await orchestrator_client.start(notes(1), run_id=run_id, policy=DATA_POLICY_OPEN)
    batch = await orchestrator_client.ended(batch.batch_id)
    assert batch.pipeline.policy == DATA_POLICY_LOCAL
    request = orchestrator_pb2.ListEndedBatchesRequest()
    ended = await orchestrator.stub.ListEndedBatches(request, **orchestrator_client.call_options)
    assert [each.caller.policy for each in ended.batches] == [DATA_POLICY_LOCAL]


async def test_pipeline_of_an_open_run_is_local_only_if_requested(orchestrator_client: OrchestratorClient) -> None:
    run_id = (await orchestrator_client.run(plan=PLAN, inputs=note("open").inputs))[0].run_id
    assert (await orchestrator_client.save(run_id=run_id)).policy != DATA_POLICY_LOCAL
    assert (await orchestrator_client.save(run_id=run_id, policy=DATA_POLICY_LOCAL)).policy == DATA_POLICY_LOCAL

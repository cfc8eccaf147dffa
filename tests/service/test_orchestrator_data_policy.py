"""Pipelines and batches whose data stays in the house: said once, and heard by everybody who is asked for them."""

from collections.abc import Mapping
from typing import Any

import grpc
import pytest

from protos.hugginggpt.internal.v1 import orchestrator_pb2, selector_pb2
from protos.hugginggpt.v1 import (
    artifact_pb2,
    caller_pb2,
    expert_pb2,
    gateway_pb2,
    pipeline_pb2,
    run_pb2,
    task_pb2,
)
from protos.hugginggpt.v1.caller_pb2 import DATA_POLICY_LOCAL, DATA_POLICY_OPEN
from protos.hugginggpt.v1.model_pb2 import MODEL_LOCATION_EXTERNAL
from services.common import call_context
from services.common.errors import ServiceError, from_rpc
from tests.support.batches import PLAN, OrchestratorClient, note, notes, state
from tests.support.orchestrator import END, OrchestratorUnderTest, echo

HELD = task_pb2.Task(
    id=1, task="summarization", arguments={"text": task_pb2.Argument(input=task_pb2.InputRef(name="note"))}
)


@pytest.fixture
def orchestrator_client(orchestrator: OrchestratorUnderTest) -> OrchestratorClient:
    """On behalf of somebody whose data may leave."""
    return OrchestratorClient(orchestrator.stub)


async def refused(call: Any) -> ServiceError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return from_rpc(caught.value)


async def ran_inside(orchestrator: OrchestratorUnderTest) -> str:
    """A run of the same tenant that keeps its data in."""
    spec = run_pb2.RunSpec(plan=PLAN, inputs=note("a secret").inputs)
    local = call_context.METADATA_KEY, caller_pb2.Caller(tenant="default", policy=DATA_POLICY_LOCAL).SerializeToString()
    events = [
        each
        async for each in orchestrator.stub.CreateRun(
            orchestrator_pb2.CreateRunRequest(spec=spec), timeout=20, metadata=(local,)
        )
    ]
    return str(events[0].run_id)


async def test_planner_selector_and_experts_hear_of_it(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    heard: list[caller_pb2.Caller] = []

    async def listening(request: expert_pb2.InferRequest) -> dict[str, artifact_pb2.Value]:
        heard.append(call_context.current())
        return await echo(request)

    orchestrator.peers.infer["model"] = listening
    orchestrator.peers.plan(type(END)(task=HELD), END)
    await orchestrator_client.ended(
        (await orchestrator_client.start(notes(3), request="shorten it", policy=DATA_POLICY_LOCAL)).batch_id
    )
    assert len(heard) == 3
    assert {each.policy for each in (*heard, *orchestrator.peers.callers)} == {DATA_POLICY_LOCAL}


async def test_whoever_is_outside_is_asked_for_no_item_however_good(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    better = selector_pb2.SelectedCandidate()
    better.CopyFrom(orchestrator.peers.candidates[0])
    better.candidate.model_id, better.candidate.location = "better", MODEL_LOCATION_EXTERNAL
    orchestrator.peers.candidates.insert(0, better)
    orchestrator.peers.infer["better"] = never
    batch = await orchestrator_client.ended(
        (await orchestrator_client.start(notes(3), policy=DATA_POLICY_LOCAL)).batch_id
    )
    assert state(batch) == "COMPLETED"


async def never(_: expert_pb2.InferRequest) -> dict[str, artifact_pb2.Value]:
    raise AssertionError("an expert outside was asked")


async def nobody_left_inside(orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient) -> None:
    """Once the orchestrator has had word of it."""
    orchestrator.peers.candidates[0].candidate.location = MODEL_LOCATION_EXTERNAL
    orchestrator.peers.changed.set()
    while True:
        try:
            await orchestrator_client.save("any", plan=PLAN, policy=DATA_POLICY_LOCAL)
        except grpc.aio.AioRpcError:
            return


@pytest.mark.parametrize("source", ["plan", "pipeline", "run", "local pipeline"])
async def test_a_batch_that_only_others_can_do_is_refused_at_once(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient, source: str
) -> None:
    await orchestrator_client.save(plan=PLAN)
    await orchestrator_client.save("inside", plan=PLAN, policy=DATA_POLICY_LOCAL)
    events = await orchestrator_client.run(plan=PLAN, inputs=note("open").inputs)
    await nobody_left_inside(orchestrator, orchestrator_client)
    sources: Mapping[str, dict[str, Any]] = {
        "plan": {"plan": PLAN, "policy": DATA_POLICY_LOCAL},
        "pipeline": {"pipeline": pipeline_pb2.PipelineRef(name="short"), "policy": DATA_POLICY_LOCAL},
        "run": {"run_id": events[0].run_id, "policy": DATA_POLICY_LOCAL},
        "local pipeline": {"pipeline": pipeline_pb2.PipelineRef(name="inside")},
    }
    error = await refused(orchestrator_client.start(notes(2), **sources[source]))
    assert (error.code, error.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "POLICY")
    assert error.remedy
    assert (
        await orchestrator.stub.ListBatches(gateway_pb2.ListBatchesRequest(), **orchestrator_client.call_options)
    ).batches == []


async def test_a_pipeline_that_cannot_stay_in_is_not_kept_as_one_that_does(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    orchestrator.peers.candidates[0].candidate.location = MODEL_LOCATION_EXTERNAL
    assert (await refused(orchestrator_client.save(plan=PLAN, policy=DATA_POLICY_LOCAL))).reason == "POLICY"
    assert (await orchestrator_client.save(plan=PLAN)).policy != DATA_POLICY_LOCAL


async def test_what_is_kept_of_a_run_that_stays_in_stays_in(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    run_id = await ran_inside(orchestrator)
    for said in (caller_pb2.DATA_POLICY_UNSPECIFIED, DATA_POLICY_OPEN):
        assert (await orchestrator_client.save(run_id=run_id, policy=said)).policy == DATA_POLICY_LOCAL
    batch = await orchestrator_client.ended(
        (await orchestrator_client.start(notes(1), run_id=run_id, policy=DATA_POLICY_OPEN)).batch_id
    )
    assert batch.pipeline.policy == DATA_POLICY_LOCAL
    ended = await orchestrator.stub.ListEndedBatches(
        orchestrator_pb2.ListEndedBatchesRequest(), **orchestrator_client.call_options
    )
    assert [each.caller.policy for each in ended.batches] == [DATA_POLICY_LOCAL]


async def test_what_is_kept_of_a_run_that_may_leave_may_leave(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    events = await orchestrator_client.run(plan=PLAN, inputs=note("open").inputs)
    assert (await orchestrator_client.save(run_id=events[0].run_id)).policy != DATA_POLICY_LOCAL
    assert (
        await orchestrator_client.save(run_id=events[0].run_id, policy=DATA_POLICY_LOCAL)
    ).policy == DATA_POLICY_LOCAL

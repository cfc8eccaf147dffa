"""Pipelines: saved plans run without planning, and are refused where a task or model they need is not offered."""

import asyncio
from typing import Any

import grpc
import pytest

from protos.hugginggpt.v1 import artifact_pb2, caller_pb2, pipeline_pb2, plan_pb2, run_pb2, task_pb2, usage_pb2
from services.common.errors import ServiceError, from_rpc
from services.orchestrator.settings import Settings
from tests.support.batches import (
    PINNED,
    PLAN,
    OrchestratorClient,
    given,
    note,
    notes,
    rpc_error,
    state,
    step,
)
from tests.support.orchestrator import END, OrchestratorUnderTest, ref, run_ended, task
from tests.support.postgres import emptied_database

PHOTO = artifact_pb2.Value(artifact=artifact_pb2.Artifact(sha256="b" * 64, media_type="image/png", name="photo.png"))
PHOTO_INPUT = [artifact_pb2.NamedValue(name="photo", value=PHOTO)]


@pytest.fixture(params=["sqlite", "postgres"])
async def settings(request: pytest.FixtureRequest, settings: Settings) -> Settings:
    if request.param == "sqlite":
        return settings
    return settings.model_copy(update={"journal": await emptied_database(request.getfixturevalue("postgres"))})


@pytest.fixture
def orchestrator_client(orchestrator: OrchestratorUnderTest) -> OrchestratorClient:
    return OrchestratorClient(orchestrator.stub)


def named(name: str = "short", version: int = 0) -> pipeline_pb2.PipelineRef:
    return pipeline_pb2.PipelineRef(name=name, version=version)


async def caption_or_speak(request: Any) -> dict[str, artifact_pb2.Value]:
    """Infers a text for an image, and audio for other inputs."""
    if "image" in request.inputs:
        return {"text": artifact_pb2.Value(text="a sign")}
    return {"audio": artifact_pb2.Value(artifact=artifact_pb2.Artifact(sha256="c" * 64, media_type="audio/wav"))}


async def run_error(client: OrchestratorClient, reason: str) -> ServiceError:
    """Runs the pipeline until that fails for a reason: the orchestrator may learn of a catalogue change late."""
    async with asyncio.timeout(20):
        while True:
            try:
                await client.run(pipeline=named(), inputs=note("a").inputs)
            except grpc.aio.AioRpcError as error:
                if from_rpc(error).reason == reason:
                    return from_rpc(error)


# ---------------------------------------------------------------- saving


async def test_saved_pipeline_has_typed_inputs_and_outputs(orchestrator_client: OrchestratorClient) -> None:
    pipeline = await orchestrator_client.save(plan=PINNED, description="shortens")
    assert pipeline.version == 1
    assert [(port.name, port.modality, port.required) for port in pipeline.inputs] == [
        ("note", artifact_pb2.MODALITY_TEXT, True)
    ]
    assert "text" in {port.name for port in pipeline.outputs}


async def test_changed_pipeline_is_saved_as_a_new_version(orchestrator_client: OrchestratorClient) -> None:
    first = await orchestrator_client.save(plan=PLAN)
    second = await orchestrator_client.save(plan=PINNED)
    assert second.version == 2
    assert await orchestrator_client.pipeline("short", version=1) == first
    assert await orchestrator_client.pipeline("short") == second


async def test_unchanged_pipeline_keeps_its_version(orchestrator_client: OrchestratorClient) -> None:
    first = await orchestrator_client.save(plan=PLAN)
    assert await orchestrator_client.save(plan=PLAN) == first


async def test_version_of_a_deleted_pipeline_is_not_reused(orchestrator_client: OrchestratorClient) -> None:
    first = await orchestrator_client.save(plan=PLAN)
    await orchestrator_client.save(plan=PINNED)
    await orchestrator_client.delete_pipeline("short", version=2)
    assert await orchestrator_client.pipeline("short") == first
    assert (await orchestrator_client.save(plan=PINNED)).version == 3
    await orchestrator_client.delete_pipeline("short")
    assert (await orchestrator_client.save(plan=PLAN)).version == 4


async def test_deleted_pipeline_is_not_found(orchestrator_client: OrchestratorClient) -> None:
    await orchestrator_client.save(plan=PLAN)
    await orchestrator_client.delete_pipeline("short")
    assert (await rpc_error(orchestrator_client.pipeline("short"))).reason == "PIPELINE"
    assert (await rpc_error(orchestrator_client.delete_pipeline("short"))).reason == "PIPELINE"


async def test_pipelines_are_listed_by_name(orchestrator_client: OrchestratorClient) -> None:
    for name in ("c", "a", "b"):
        await orchestrator_client.save(name, plan=PLAN)
    await orchestrator_client.save("a", plan=PINNED)
    page = await orchestrator_client.list_pipelines(page_size=2)
    assert [(each.name, each.version) for each in page.pipelines] == [("a", 2), ("b", 1)]
    page = await orchestrator_client.list_pipelines(page_size=2, page_token=page.next_page_token)
    assert [each.name for each in page.pipelines] == ["c"]


async def test_versions_of_a_pipeline_are_listed_newest_first(orchestrator_client: OrchestratorClient) -> None:
    await orchestrator_client.save(plan=PLAN)
    await orchestrator_client.save(plan=PINNED)
    page = await orchestrator_client.list_pipelines(name="short", page_size=1)
    assert [each.version for each in page.pipelines] == [2]
    page = await orchestrator_client.list_pipelines(name="short", page_size=1, page_token=page.next_page_token)
    assert [each.version for each in page.pipelines] == [1]


async def test_pipeline_of_a_run_has_the_run_inputs_as_parameters(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    literal = task_pb2.Argument(value=PHOTO)
    planned = [step(1, "image-to-text", image=literal), step(2, "text-to-speech", text=ref(1))]
    orchestrator.peers.plan(*[type(END)(task=each) for each in planned], END)
    orchestrator.peers.infer["model"] = caption_or_speak
    events = await orchestrator_client.run(request="read it aloud", inputs=PHOTO_INPUT)
    pipeline = await orchestrator_client.save(run_id=events[0].run_id, pin_models=True)
    assert pipeline.source_run_id == events[0].run_id
    assert [(port.name, port.modality) for port in pipeline.inputs] == [("photo", artifact_pb2.MODALITY_IMAGE)]
    assert [(each.pinned_model, each.pinned_revision) for each in pipeline.plan.tasks] == [("model", "1")] * 2
    assert pipeline.outputs[0].name == "audio"
    assert pipeline.plan.tasks[0].arguments["image"] == given("photo")


async def test_plan_that_has_not_run_has_no_models_to_pin(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    orchestrator.peers.plan(task(1), END)
    events = await orchestrator_client.run(request="shorten it", mode=run_pb2.RUN_MODE_PLAN)
    error = await rpc_error(orchestrator_client.save(run_id=events[0].run_id, pin_models=True))
    assert error.reason == "NO_PLAN"
    assert error.code == grpc.StatusCode.FAILED_PRECONDITION
    assert (await orchestrator_client.save(run_id=events[0].run_id)).version == 1


async def test_supplied_plan_is_pinned_to_the_best_candidates(orchestrator_client: OrchestratorClient) -> None:
    pipeline = await orchestrator_client.save(plan=PLAN, pin_models=True)
    assert pipeline.plan.tasks[0].pinned_model == "model"


async def test_declared_inputs_describe_the_parameters(orchestrator_client: OrchestratorClient) -> None:
    declared = task_pb2.Port(name="note", description="what to shorten", modality=artifact_pb2.MODALITY_TEXT)
    pipeline = await orchestrator_client.save(plan=PLAN, inputs=[declared])
    assert pipeline.inputs[0].description == "what to shorten"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"name": "Not a name", "plan": PLAN}, "INVALID"),
        ({"name": "", "plan": PLAN}, "INVALID"),
        ({}, "EMPTY"),
        ({"plan": plan_pb2.Plan(tasks=[step(1, "")])}, "PLAN"),
        ({"plan": plan_pb2.Plan(tasks=[step(1, "dancing")])}, "TASK_UNAVAILABLE"),
        ({"run_id": "run_0"}, "RUN"),
        ({"plan": plan_pb2.Plan(tasks=[step(1), step(2, "image-to-text", image=given("note"))])}, "INVALID"),
        ({"plan": PLAN, "inputs": [task_pb2.Port(name="other")]}, "INVALID"),
        ({"plan": PLAN, "inputs": [task_pb2.Port(name="note", modality=artifact_pb2.MODALITY_IMAGE)]}, "INVALID"),
    ],
    ids=[
        "invalid-name",
        "no-name",
        "no-plan",
        "unnamed-task",
        "unknown-task",
        "unknown-run",
        "two-modalities",
        "unused-input",
        "other-modality",
    ],
)
async def test_invalid_pipeline_is_refused(
    orchestrator_client: OrchestratorClient, fields: dict[str, Any], reason: str
) -> None:
    assert (await rpc_error(orchestrator_client.save(**{"name": "short"} | fields))).reason == reason


# ---------------------------------------------------------------- running


async def test_pipeline_with_pinned_models_runs_without_planner_and_selector_calls(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    await orchestrator_client.save(plan=PINNED)
    await orchestrator_client.run(pipeline=named(), inputs=note("warm").inputs)
    orchestrator.peers.planned.clear()
    orchestrator.peers.selected.clear()
    for number in range(10):
        events = await orchestrator_client.run(
            pipeline=named(), inputs=note(f"n{number}").inputs, mode=run_pb2.RUN_MODE_RESULTS
        )
        assert run_ended(events).state == run_pb2.RUN_STATE_COMPLETED
    assert orchestrator.peers.planned == []
    assert len(orchestrator.peers.selected) <= 1
    assert events[0].run_accepted.spec.pipeline.version == 1
    (selected,) = [event.task_selected for event in events if event.HasField("task_selected")]
    assert selected.candidates[0].model_id == "model"


async def test_run_is_refused_once_its_pinned_model_is_not_offered(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    await orchestrator_client.save(plan=PINNED)
    await orchestrator_client.run(pipeline=named(), inputs=note("a").inputs)
    orchestrator.peers.candidates[0].candidate.model_id = "other"
    orchestrator.peers.infer["other"] = orchestrator.peers.infer["model"]
    orchestrator.peers.changed.set()
    error = await run_error(orchestrator_client, "TASK_UNAVAILABLE")
    assert error.remedy == "pin model"
    assert "task 1 (summarization by model): no expert offers model model" in error.message


async def test_batch_is_refused_once_its_task_is_not_offered(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    await orchestrator_client.save(plan=PLAN)
    orchestrator.peers.unavailable_tasks.add("summarization")
    orchestrator.peers.changed.set()
    await run_error(orchestrator_client, "TASK_UNAVAILABLE")
    error = await rpc_error(orchestrator_client.start(notes(2), pipeline=named()))
    assert error.code is grpc.StatusCode.FAILED_PRECONDITION
    assert "task 1 (summarization): no expert offers summarization" in error.message
    assert error.remedy == "add an expert"


@pytest.mark.parametrize(
    ("inputs", "port", "message"),
    [
        ([], "note", "is missing"),
        (PHOTO_INPUT, "photo", "has no input photo"),
        ([artifact_pb2.NamedValue(name="note", value=PHOTO)], "note", "is an image, but the plan takes a text"),
        ([artifact_pb2.NamedValue(name="note", value=artifact_pb2.Value(json="[]"))], "note", "is JSON"),
    ],
    ids=["missing", "unknown", "image", "json"],
)
async def test_input_that_does_not_fit_is_refused(
    orchestrator_client: OrchestratorClient, inputs: list[artifact_pb2.NamedValue], port: str, message: str
) -> None:
    await orchestrator_client.save(plan=PLAN)
    error = await rpc_error(orchestrator_client.run(pipeline=named(), inputs=inputs))
    assert error.code == grpc.StatusCode.INVALID_ARGUMENT
    assert error.port == port
    assert message in error.message


async def test_files_without_names_become_parameters_of_their_modality(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    tasks = [
        step(1, "visual-question-answering", image=given("photo"), question=given("what")),
        step(2, "image-to-text", image=given("p2")),
    ]
    await orchestrator_client.save(plan=plan_pb2.Plan(tasks=tasks))
    question = artifact_pb2.Value(
        artifact=artifact_pb2.Artifact(sha256="d" * 64, media_type="text/plain", name="what.txt")
    )
    orchestrator.peers.infer["model"] = caption_or_speak
    inputs = [
        artifact_pb2.NamedValue(name=name, value=value)
        for name, value in (("file1", question), ("p2", PHOTO), ("file2", PHOTO))
    ]
    events = await orchestrator_client.run(pipeline=named(), inputs=inputs, mode=run_pb2.RUN_MODE_RESULTS)
    assigned = {item.name: item.value for item in events[0].run_accepted.spec.inputs}
    assert assigned == {"what": question, "p2": PHOTO, "photo": PHOTO}
    inputs.append(artifact_pb2.NamedValue(name="file3", value=PHOTO))
    error = await rpc_error(orchestrator_client.run(pipeline=named(), inputs=inputs))
    assert "has no input file3" in error.message


async def test_run_whose_pipeline_exceeds_its_budget_is_refused(orchestrator_client: OrchestratorClient) -> None:
    await orchestrator_client.save(plan=plan_pb2.Plan(tasks=[step(1), step(2, text=ref(1))]))
    budget = usage_pb2.Budget(tasks=1)
    error = await rpc_error(orchestrator_client.run(pipeline=named(), inputs=note("a").inputs, budget=budget))
    assert error.reason == "BUDGET"
    assert error.port == "budget"


async def test_run_with_both_a_plan_and_a_pipeline_is_refused(orchestrator_client: OrchestratorClient) -> None:
    await orchestrator_client.save(plan=PLAN)
    assert (await rpc_error(orchestrator_client.run(pipeline=named(), plan=PLAN))).port == "pipeline"


async def test_run_with_an_unknown_pipeline_is_refused(orchestrator_client: OrchestratorClient) -> None:
    await orchestrator_client.save(plan=PLAN)
    for unknown in (named("other"), named(version=9)):
        assert (await rpc_error(orchestrator_client.run(pipeline=unknown))).reason == "PIPELINE"


async def test_runs_and_items_of_a_local_pipeline_are_local(orchestrator_client: OrchestratorClient) -> None:
    await orchestrator_client.save(plan=PLAN, policy=caller_pb2.DATA_POLICY_LOCAL)
    await orchestrator_client.run(pipeline=named(), inputs=note("a").inputs, mode=run_pb2.RUN_MODE_RESULTS)
    await orchestrator_client.ended((await orchestrator_client.start(notes(1), pipeline=named())).batch_id)
    policies = [run.caller.policy for run in await orchestrator_client.ended_runs()]
    assert policies == [caller_pb2.DATA_POLICY_LOCAL] * 2


async def test_pipelines_belong_to_their_tenant(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    await orchestrator_client.save(plan=PLAN)
    other_tenant = OrchestratorClient(orchestrator.stub, "other")
    error = await rpc_error(other_tenant.run(pipeline=named(), inputs=note("a").inputs))
    assert error.reason == "PIPELINE"
    assert (await other_tenant.save(plan=PINNED)).version == 1
    listed = (await orchestrator_client.list_pipelines()).pipelines
    assert [each.plan.tasks[0].pinned_model for each in listed] == [""]


async def test_batch_runs_the_version_with_which_it_was_created(orchestrator_client: OrchestratorClient) -> None:
    await orchestrator_client.save(plan=PINNED)
    batch = await orchestrator_client.start(notes(20), pipeline=named(), max_at_once=1)
    await orchestrator_client.delete_pipeline("short")
    batch = await orchestrator_client.ended(batch.batch_id)
    assert state(batch) == "COMPLETED"
    assert batch.spec.pipeline.version == 1

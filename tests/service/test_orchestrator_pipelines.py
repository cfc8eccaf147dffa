"""Plans kept under names: saved, run again without planning, refused where what they need is gone."""

from typing import Any

import grpc
import pytest

from protos.hugginggpt.internal.v1 import orchestrator_pb2
from protos.hugginggpt.v1 import (
    artifact_pb2,
    caller_pb2,
    gateway_pb2,
    pipeline_pb2,
    plan_pb2,
    run_pb2,
    task_pb2,
    usage_pb2,
)
from services.common.errors import ServiceError, from_rpc
from services.orchestrator.settings import Settings
from tests.support.batches import PINNED, PLAN, OrchestratorClient, given, note, notes, state, step
from tests.support.orchestrator import END, OrchestratorUnderTest, run_ended, task
from tests.support.postgres import emptied_database

PICTURE = artifact_pb2.Value(artifact=artifact_pb2.Artifact(sha256="b" * 64, media_type="image/png", name="photo.png"))
SHOWN = [artifact_pb2.NamedValue(name="photo", value=PICTURE)]


@pytest.fixture(params=["sqlite", "postgres"])
async def settings(request: pytest.FixtureRequest, settings: Settings) -> Settings:
    if request.param == "sqlite":
        return settings
    return settings.model_copy(update={"journal": await emptied_database(request.getfixturevalue("postgres"))})


@pytest.fixture
def orchestrator_client(orchestrator: OrchestratorUnderTest) -> OrchestratorClient:
    return OrchestratorClient(orchestrator.stub)


async def refused(call: Any) -> ServiceError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return from_rpc(caught.value)


def named(name: str = "short", version: int = 0) -> pipeline_pb2.PipelineRef:
    return pipeline_pb2.PipelineRef(name=name, version=version)


async def test_a_kept_plan_runs_without_a_planner_and_with_pins_without_a_choice(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    kept = await orchestrator_client.save(plan=PINNED, description="shortens")
    assert (kept.version, [(port.name, port.modality, port.required) for port in kept.inputs]) == (
        1,
        [("note", artifact_pb2.MODALITY_TEXT, True)],
    )
    assert "text" in {port.name for port in kept.outputs}
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
    (chosen,) = [event.task_selected for event in events if event.HasField("task_selected")]
    assert chosen.candidates[0].model_id == "model"


async def test_a_change_of_the_catalogue_is_asked_for_again(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    await orchestrator_client.save(plan=PINNED)
    await orchestrator_client.run(pipeline=named(), inputs=note("a").inputs)
    orchestrator.peers.candidates[0].candidate.model_id = "other"
    orchestrator.peers.infer["other"] = orchestrator.peers.infer["model"]
    orchestrator.peers.changed.set()
    error = None
    while error is None:  # the word of the change may still be on its way
        error = await _refusal(orchestrator_client)
    assert (error.reason, error.remedy) == ("TASK_UNAVAILABLE", "pin model")
    assert "task 1 (summarization by model): no expert offers model model" in error.message


async def _refusal(orchestrator_client: OrchestratorClient) -> ServiceError | None:
    try:
        await orchestrator_client.run(pipeline=named(), inputs=note("a").inputs)
    except grpc.aio.AioRpcError as error:
        return from_rpc(error)
    return None


async def test_versions_are_added_and_never_changed(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    first = await orchestrator_client.save(plan=PLAN)
    assert await orchestrator_client.save(plan=PLAN) == first
    second = await orchestrator_client.save(plan=PINNED)
    assert second.version == 2
    assert (
        await orchestrator.stub.GetPipeline(
            gateway_pb2.GetPipelineRequest(name="short", version=1), **orchestrator_client.call_options
        )
    ) == first
    assert (
        await orchestrator.stub.GetPipeline(
            gateway_pb2.GetPipelineRequest(name="short"), **orchestrator_client.call_options
        )
    ) == second
    await orchestrator.stub.DeletePipeline(
        gateway_pb2.DeletePipelineRequest(name="short", version=2), **orchestrator_client.call_options
    )
    assert (
        await orchestrator.stub.GetPipeline(
            gateway_pb2.GetPipelineRequest(name="short"), **orchestrator_client.call_options
        )
    ) == first
    assert (await orchestrator_client.save(plan=PINNED)).version == 3
    await orchestrator.stub.DeletePipeline(
        gateway_pb2.DeletePipelineRequest(name="short"), **orchestrator_client.call_options
    )
    gone = await refused(
        orchestrator.stub.GetPipeline(gateway_pb2.GetPipelineRequest(name="short"), **orchestrator_client.call_options)
    )
    assert gone.reason == "PIPELINE"
    again = await refused(
        orchestrator.stub.DeletePipeline(
            gateway_pb2.DeletePipelineRequest(name="short"), **orchestrator_client.call_options
        )
    )
    assert again.reason == "PIPELINE"
    assert (await orchestrator_client.save(plan=PLAN)).version == 4


async def test_pipelines_are_listed_by_name_and_their_versions_newest_first(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    for name in ("c", "a", "b"):
        await orchestrator_client.save(name, plan=PLAN)
    await orchestrator_client.save("a", plan=PINNED)
    page = await orchestrator.stub.ListPipelines(
        gateway_pb2.ListPipelinesRequest(page_size=2), **orchestrator_client.call_options
    )
    assert [(each.name, each.version) for each in page.pipelines] == [("a", 2), ("b", 1)]
    rest = gateway_pb2.ListPipelinesRequest(page_size=2, page_token=page.next_page_token)
    assert [
        each.name
        for each in (await orchestrator.stub.ListPipelines(rest, **orchestrator_client.call_options)).pipelines
    ] == ["c"]
    newest = await orchestrator.stub.ListPipelines(
        gateway_pb2.ListPipelinesRequest(name="a", page_size=1), **orchestrator_client.call_options
    )
    older = gateway_pb2.ListPipelinesRequest(name="a", page_size=1, page_token=newest.next_page_token)
    assert [each.version for each in newest.pipelines] == [2]
    assert [
        each.version
        for each in (await orchestrator.stub.ListPipelines(older, **orchestrator_client.call_options)).pipelines
    ] == [1]


async def test_the_plan_of_a_run_is_kept_with_its_inputs_as_parameters(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    literal = task_pb2.Argument(value=PICTURE)
    planned = [step(1, "image-to-text", image=literal), step(2, "text-to-speech", text=_of(1))]
    orchestrator.peers.plan(*[type(END)(task=each) for each in planned], END)
    orchestrator.peers.infer["model"] = _either
    events = await orchestrator_client.run(request="read it aloud", inputs=SHOWN)
    kept = await orchestrator_client.save(run_id=events[0].run_id, pin_models=True)
    assert kept.source_run_id == events[0].run_id
    assert [(port.name, port.modality) for port in kept.inputs] == [("photo", artifact_pb2.MODALITY_IMAGE)]
    assert [(each.pinned_model, each.pinned_revision) for each in kept.plan.tasks] == [("model", "1")] * 2
    assert kept.outputs[0].name == "audio"
    assert kept.plan.tasks[0].arguments["image"] == given("photo")


async def _either(request: Any) -> dict[str, artifact_pb2.Value]:
    if "image" in request.inputs:
        return {"text": artifact_pb2.Value(text="a sign")}
    return {"audio": artifact_pb2.Value(artifact=artifact_pb2.Artifact(sha256="c" * 64, media_type="audio/wav"))}


def _of(task_id: int) -> task_pb2.Argument:
    return task_pb2.Argument(reference=task_pb2.Reference(task_id=task_id, output="text"))


async def test_a_plan_without_a_run_of_its_tasks_has_no_models_to_pin(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    orchestrator.peers.plan(task(1), END)
    events = await orchestrator_client.run(request="shorten it", mode=run_pb2.RUN_MODE_PLAN)
    error = await refused(orchestrator_client.save(run_id=events[0].run_id, pin_models=True))
    assert (error.reason, error.code) == ("NO_PLAN", grpc.StatusCode.FAILED_PRECONDITION)
    assert (await orchestrator_client.save(run_id=events[0].run_id)).version == 1


async def test_a_given_plan_is_pinned_to_what_would_run_now(orchestrator_client: OrchestratorClient) -> None:
    assert (await orchestrator_client.save(plan=PLAN, pin_models=True)).plan.tasks[0].pinned_model == "model"


@pytest.mark.parametrize(
    ("inputs", "port", "words"),
    [
        ([], "note", "is missing"),
        (SHOWN, "photo", "has no input photo"),
        ([artifact_pb2.NamedValue(name="note", value=PICTURE)], "note", "is an image, but the plan takes a text"),
        ([artifact_pb2.NamedValue(name="note", value=artifact_pb2.Value(json="[]"))], "note", "is JSON"),
    ],
    ids=["missing", "unknown", "picture", "json"],
)
async def test_inputs_that_do_not_fit_are_named(
    orchestrator_client: OrchestratorClient, inputs: list[artifact_pb2.NamedValue], port: str, words: str
) -> None:
    await orchestrator_client.save(plan=PLAN)
    error = await refused(orchestrator_client.run(pipeline=named(), inputs=inputs))
    assert (error.code, error.port) == (grpc.StatusCode.INVALID_ARGUMENT, port)
    assert words in error.message


async def test_files_without_names_are_the_parameters_that_they_fit(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    plan = [
        step(1, "visual-question-answering", image=given("photo"), question=given("what")),
        step(2, image=given("p2")),
    ]
    plan[1].task = "image-to-text"
    await orchestrator_client.save(plan=plan_pb2.Plan(tasks=plan))
    words = artifact_pb2.Value(
        artifact=artifact_pb2.Artifact(sha256="d" * 64, media_type="text/plain", name="what.txt")
    )
    sent = [("file1", words), ("p2", PICTURE), ("file2", PICTURE)]
    orchestrator.peers.infer["model"] = _either
    inputs = [artifact_pb2.NamedValue(name=name, value=value) for name, value in sent]
    events = await orchestrator_client.run(pipeline=named(), inputs=inputs, mode=run_pb2.RUN_MODE_RESULTS)
    taken = {item.name: item.value for item in events[0].run_accepted.spec.inputs}
    assert taken == {"what": words, "p2": PICTURE, "photo": PICTURE}
    error = await refused(
        orchestrator_client.run(
            pipeline=named(), inputs=[*inputs, artifact_pb2.NamedValue(name="file3", value=PICTURE)]
        )
    )
    assert "has no input file3" in error.message


async def test_a_task_that_has_vanished_is_named_with_what_would_help(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    await orchestrator_client.save(plan=PLAN)
    orchestrator.peers.vanished.add("summarization")
    orchestrator.peers.changed.set()
    error = await refused(orchestrator_client.start(notes(2), pipeline=named()))
    while error.reason != "TASK_UNAVAILABLE":  # the word of the change may still be on its way
        error = await refused(orchestrator_client.start(notes(2), pipeline=named()))
    assert error.code is grpc.StatusCode.FAILED_PRECONDITION
    assert "task 1 (summarization): no expert offers summarization" in error.message
    assert error.remedy == "add an expert"


@pytest.mark.parametrize(
    ("wanted", "reason"),
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
    ids=["name", "no-name", "no-plan", "unnamed", "unknown", "run", "two-kinds", "other-port", "other-kind"],
)
async def test_what_cannot_be_kept_is_refused(
    orchestrator_client: OrchestratorClient, wanted: dict[str, Any], reason: str
) -> None:
    assert (await refused(orchestrator_client.save(**{"name": "short"} | wanted))).reason == reason


async def test_a_plan_that_is_more_than_the_budget_is_refused(orchestrator_client: OrchestratorClient) -> None:
    await orchestrator_client.save(plan=plan_pb2.Plan(tasks=[step(1), step(2, text=_of(1))]))
    error = await refused(
        orchestrator_client.run(pipeline=named(), inputs=note("a").inputs, budget=usage_pb2.Budget(tasks=1))
    )
    assert (error.reason, error.port) == ("BUDGET", "budget")


async def test_a_run_is_asked_with_a_plan_or_a_pipeline(orchestrator_client: OrchestratorClient) -> None:
    await orchestrator_client.save(plan=PLAN)
    assert (await refused(orchestrator_client.run(pipeline=named(), plan=PLAN))).port == "pipeline"
    assert (await refused(orchestrator_client.run(pipeline=named("other")))).reason == "PIPELINE"
    assert (await refused(orchestrator_client.run(pipeline=named(version=9)))).reason == "PIPELINE"


async def test_parameters_are_described_and_a_local_pipeline_stays_in_the_house(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    said = task_pb2.Port(name="note", description="what to shorten", modality=artifact_pb2.MODALITY_TEXT)
    kept = await orchestrator_client.save(plan=PLAN, inputs=[said], policy=caller_pb2.DATA_POLICY_LOCAL)
    assert kept.inputs[0].description == "what to shorten"
    await orchestrator_client.run(pipeline=named(), inputs=note("a").inputs, mode=run_pb2.RUN_MODE_RESULTS)
    await orchestrator_client.ended((await orchestrator_client.start(notes(1), pipeline=named())).batch_id)
    told = await orchestrator.stub.ListEndedRuns(
        orchestrator_pb2.ListEndedRunsRequest(), **orchestrator_client.call_options
    )
    assert [run.caller.policy for run in told.runs] == [caller_pb2.DATA_POLICY_LOCAL] * 2


async def test_pipelines_are_their_tenants(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    await orchestrator_client.save(plan=PLAN)
    stranger = OrchestratorClient(orchestrator.stub, "stranger")
    assert (await refused(stranger.run(pipeline=named(), inputs=note("a").inputs))).reason == "PIPELINE"
    assert (await stranger.save(plan=PINNED)).version == 1
    kept = await orchestrator.stub.ListPipelines(gateway_pb2.ListPipelinesRequest(), **orchestrator_client.call_options)
    assert [each.plan.tasks[0].pinned_model for each in kept.pipelines] == [""]


async def test_a_batch_goes_on_with_the_version_it_began_with(
    orchestrator: OrchestratorUnderTest, orchestrator_client: OrchestratorClient
) -> None:
    await orchestrator_client.save(plan=PINNED)
    batch = await orchestrator_client.start(notes(20), pipeline=named(), max_at_once=1)
    await orchestrator.stub.DeletePipeline(
        gateway_pb2.DeletePipelineRequest(name="short"), **orchestrator_client.call_options
    )
    batch = await orchestrator_client.ended(batch.batch_id)
    assert (state(batch), batch.spec.pipeline.version) == ("COMPLETED", 1)

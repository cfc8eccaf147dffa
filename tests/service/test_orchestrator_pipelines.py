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
from tests.support.batches import PINNED, PLAN, Asking, given, note, notes, state, step
from tests.support.orchestrator import END, House, ended, task
from tests.support.postgres import emptied

PICTURE = artifact_pb2.Value(artifact=artifact_pb2.Artifact(sha256="b" * 64, media_type="image/png", name="photo.png"))
SHOWN = [artifact_pb2.NamedValue(name="photo", value=PICTURE)]


@pytest.fixture(params=["sqlite", "postgres"])
async def settings(request: pytest.FixtureRequest, settings: Settings) -> Settings:
    if request.param == "sqlite":
        return settings
    return settings.model_copy(update={"journal": await emptied(request.getfixturevalue("postgres"))})


@pytest.fixture
def asking(house: House) -> Asking:
    return Asking(house.stub)


async def refused(call: Any) -> ServiceError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return from_rpc(caught.value)


def named(name: str = "short", version: int = 0) -> pipeline_pb2.PipelineRef:
    return pipeline_pb2.PipelineRef(name=name, version=version)


async def test_a_kept_plan_runs_without_a_planner_and_with_pins_without_a_choice(house: House, asking: Asking) -> None:
    kept = await asking.save(plan=PINNED, description="shortens")
    assert (kept.version, [(port.name, port.modality, port.required) for port in kept.inputs]) == (
        1,
        [("note", artifact_pb2.MODALITY_TEXT, True)],
    )
    assert "text" in {port.name for port in kept.outputs}
    await asking.run(pipeline=named(), inputs=note("warm").inputs)
    house.cast.planned.clear()
    house.cast.selected.clear()
    for number in range(10):
        events = await asking.run(pipeline=named(), inputs=note(f"n{number}").inputs, mode=run_pb2.RUN_MODE_RESULTS)
        assert ended(events).state == run_pb2.RUN_STATE_COMPLETED
    assert house.cast.planned == []
    assert len(house.cast.selected) <= 1
    assert events[0].run_accepted.spec.pipeline.version == 1
    (chosen,) = [event.task_selected for event in events if event.HasField("task_selected")]
    assert chosen.candidates[0].model_id == "model"


async def test_a_change_of_the_catalogue_is_asked_for_again(house: House, asking: Asking) -> None:
    await asking.save(plan=PINNED)
    await asking.run(pipeline=named(), inputs=note("a").inputs)
    house.cast.candidates[0].model_id = "other"
    house.cast.infer["other"] = house.cast.infer["model"]
    house.cast.changed.set()
    error = None
    while error is None:  # the word of the change may still be on its way
        error = await _refusal(asking)
    assert (error.reason, error.remedy) == ("VANISHED", "pin model")
    assert "task 1 (summarization by model): nobody offers model model" in error.message


async def _refusal(asking: Asking) -> ServiceError | None:
    try:
        await asking.run(pipeline=named(), inputs=note("a").inputs)
    except grpc.aio.AioRpcError as error:
        return from_rpc(error)
    return None


async def test_versions_are_added_and_never_changed(house: House, asking: Asking) -> None:
    first = await asking.save(plan=PLAN)
    assert await asking.save(plan=PLAN) == first
    second = await asking.save(plan=PINNED)
    assert second.version == 2
    assert (
        await house.stub.GetPipeline(gateway_pb2.GetPipelineRequest(name="short", version=1), **asking.means)
    ) == first
    assert (await house.stub.GetPipeline(gateway_pb2.GetPipelineRequest(name="short"), **asking.means)) == second
    await house.stub.DeletePipeline(gateway_pb2.DeletePipelineRequest(name="short", version=2), **asking.means)
    assert (await house.stub.GetPipeline(gateway_pb2.GetPipelineRequest(name="short"), **asking.means)) == first
    assert (await asking.save(plan=PINNED)).version == 3
    await house.stub.DeletePipeline(gateway_pb2.DeletePipelineRequest(name="short"), **asking.means)
    gone = await refused(house.stub.GetPipeline(gateway_pb2.GetPipelineRequest(name="short"), **asking.means))
    assert gone.reason == "PIPELINE"
    again = await refused(house.stub.DeletePipeline(gateway_pb2.DeletePipelineRequest(name="short"), **asking.means))
    assert again.reason == "PIPELINE"
    assert (await asking.save(plan=PLAN)).version == 4


async def test_pipelines_are_listed_by_name_and_their_versions_newest_first(house: House, asking: Asking) -> None:
    for name in ("c", "a", "b"):
        await asking.save(name, plan=PLAN)
    await asking.save("a", plan=PINNED)
    page = await house.stub.ListPipelines(gateway_pb2.ListPipelinesRequest(page_size=2), **asking.means)
    assert [(each.name, each.version) for each in page.pipelines] == [("a", 2), ("b", 1)]
    rest = gateway_pb2.ListPipelinesRequest(page_size=2, page_token=page.next_page_token)
    assert [each.name for each in (await house.stub.ListPipelines(rest, **asking.means)).pipelines] == ["c"]
    newest = await house.stub.ListPipelines(gateway_pb2.ListPipelinesRequest(name="a", page_size=1), **asking.means)
    older = gateway_pb2.ListPipelinesRequest(name="a", page_size=1, page_token=newest.next_page_token)
    assert [each.version for each in newest.pipelines] == [2]
    assert [each.version for each in (await house.stub.ListPipelines(older, **asking.means)).pipelines] == [1]


async def test_the_plan_of_a_run_is_kept_with_its_inputs_as_parameters(house: House, asking: Asking) -> None:
    literal = task_pb2.Argument(value=PICTURE)
    planned = [step(1, "image-to-text", image=literal), step(2, "text-to-speech", text=_of(1))]
    house.cast.plan(*[type(END)(task=each) for each in planned], END)
    house.cast.infer["model"] = _either
    events = await asking.run(request="read it aloud", inputs=SHOWN)
    kept = await asking.save(run_id=events[0].run_id, pin_models=True)
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


async def test_a_plan_without_a_run_of_its_tasks_has_no_models_to_pin(house: House, asking: Asking) -> None:
    house.cast.plan(task(1), END)
    events = await asking.run(request="shorten it", mode=run_pb2.RUN_MODE_PLAN)
    error = await refused(asking.save(run_id=events[0].run_id, pin_models=True))
    assert (error.reason, error.code) == ("NO_PLAN", grpc.StatusCode.FAILED_PRECONDITION)
    assert (await asking.save(run_id=events[0].run_id)).version == 1


async def test_a_given_plan_is_pinned_to_what_would_run_now(asking: Asking) -> None:
    assert (await asking.save(plan=PLAN, pin_models=True)).plan.tasks[0].pinned_model == "model"


@pytest.mark.parametrize(
    ("inputs", "port", "words"),
    [
        ([], "note", "is missing"),
        (SHOWN, "photo", "takes no input photo"),
        ([artifact_pb2.NamedValue(name="note", value=PICTURE)], "note", "is a picture; the plan takes a text"),
        ([artifact_pb2.NamedValue(name="note", value=artifact_pb2.Value(json="[]"))], "note", "is JSON"),
    ],
    ids=["missing", "unknown", "picture", "json"],
)
async def test_inputs_that_do_not_fit_are_named(
    asking: Asking, inputs: list[artifact_pb2.NamedValue], port: str, words: str
) -> None:
    await asking.save(plan=PLAN)
    error = await refused(asking.run(pipeline=named(), inputs=inputs))
    assert (error.code, error.port) == (grpc.StatusCode.INVALID_ARGUMENT, port)
    assert words in error.message


async def test_files_without_names_are_the_parameters_that_they_fit(house: House, asking: Asking) -> None:
    plan = [
        step(1, "visual-question-answering", image=given("photo"), question=given("what")),
        step(2, image=given("p2")),
    ]
    plan[1].task = "image-to-text"
    await asking.save(plan=plan_pb2.Plan(tasks=plan))
    words = artifact_pb2.Value(
        artifact=artifact_pb2.Artifact(sha256="d" * 64, media_type="text/plain", name="what.txt")
    )
    sent = [("file1", words), ("p2", PICTURE), ("file2", PICTURE)]
    house.cast.infer["model"] = _either
    inputs = [artifact_pb2.NamedValue(name=name, value=value) for name, value in sent]
    events = await asking.run(pipeline=named(), inputs=inputs, mode=run_pb2.RUN_MODE_RESULTS)
    taken = {item.name: item.value for item in events[0].run_accepted.spec.inputs}
    assert taken == {"what": words, "p2": PICTURE, "photo": PICTURE}
    error = await refused(
        asking.run(pipeline=named(), inputs=[*inputs, artifact_pb2.NamedValue(name="file3", value=PICTURE)])
    )
    assert "takes no input file3" in error.message


async def test_a_task_that_has_vanished_is_named_with_what_would_help(house: House, asking: Asking) -> None:
    await asking.save(plan=PLAN)
    house.cast.vanished.add("summarization")
    house.cast.changed.set()
    error = await refused(asking.start(notes(2), pipeline=named()))
    while error.reason != "VANISHED":  # the word of the change may still be on its way
        error = await refused(asking.start(notes(2), pipeline=named()))
    assert error.code is grpc.StatusCode.FAILED_PRECONDITION
    assert "task 1 (summarization): nobody offers summarization" in error.message
    assert error.remedy == "add an expert"


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        ({"name": "Not a name", "plan": PLAN}, "INVALID"),
        ({"name": "", "plan": PLAN}, "INVALID"),
        ({}, "EMPTY"),
        ({"plan": plan_pb2.Plan(tasks=[step(1, "")])}, "PLAN"),
        ({"plan": plan_pb2.Plan(tasks=[step(1, "dancing")])}, "VANISHED"),
        ({"run_id": "run_0"}, "RUN"),
        ({"plan": plan_pb2.Plan(tasks=[step(1), step(2, "image-to-text", image=given("note"))])}, "INVALID"),
        ({"plan": PLAN, "inputs": [task_pb2.Port(name="other")]}, "INVALID"),
        ({"plan": PLAN, "inputs": [task_pb2.Port(name="note", modality=artifact_pb2.MODALITY_IMAGE)]}, "INVALID"),
    ],
    ids=["name", "no-name", "no-plan", "unnamed", "unknown", "run", "two-kinds", "other-port", "other-kind"],
)
async def test_what_cannot_be_kept_is_refused(asking: Asking, wanted: dict[str, Any], reason: str) -> None:
    assert (await refused(asking.save(**{"name": "short"} | wanted))).reason == reason


async def test_a_plan_that_is_more_than_the_budget_is_refused(asking: Asking) -> None:
    await asking.save(plan=plan_pb2.Plan(tasks=[step(1), step(2, text=_of(1))]))
    error = await refused(asking.run(pipeline=named(), inputs=note("a").inputs, budget=usage_pb2.Budget(tasks=1)))
    assert (error.reason, error.port) == ("BUDGET", "budget")


async def test_a_run_is_asked_with_a_plan_or_a_pipeline(asking: Asking) -> None:
    await asking.save(plan=PLAN)
    assert (await refused(asking.run(pipeline=named(), plan=PLAN))).port == "pipeline"
    assert (await refused(asking.run(pipeline=named("other")))).reason == "PIPELINE"
    assert (await refused(asking.run(pipeline=named(version=9)))).reason == "PIPELINE"


async def test_parameters_are_described_and_a_local_pipeline_stays_in_the_house(house: House, asking: Asking) -> None:
    said = task_pb2.Port(name="note", description="what to shorten", modality=artifact_pb2.MODALITY_TEXT)
    kept = await asking.save(plan=PLAN, inputs=[said], policy=caller_pb2.DATA_POLICY_LOCAL)
    assert kept.inputs[0].description == "what to shorten"
    await asking.run(pipeline=named(), inputs=note("a").inputs, mode=run_pb2.RUN_MODE_RESULTS)
    await asking.ended((await asking.start(notes(1), pipeline=named())).batch_id)
    told = await house.stub.ListEndedRuns(orchestrator_pb2.ListEndedRunsRequest(), **asking.means)
    assert [run.caller.policy for run in told.runs] == [caller_pb2.DATA_POLICY_LOCAL] * 2


async def test_pipelines_are_their_tenants(house: House, asking: Asking) -> None:
    await asking.save(plan=PLAN)
    stranger = Asking(house.stub, "stranger")
    assert (await refused(stranger.run(pipeline=named(), inputs=note("a").inputs))).reason == "PIPELINE"
    assert (await stranger.save(plan=PINNED)).version == 1
    kept = await house.stub.ListPipelines(gateway_pb2.ListPipelinesRequest(), **asking.means)
    assert [each.plan.tasks[0].pinned_model for each in kept.pipelines] == [""]


async def test_a_batch_goes_on_with_the_version_it_began_with(house: House, asking: Asking) -> None:
    await asking.save(plan=PINNED)
    batch = await asking.start(notes(20), pipeline=named(), max_at_once=1)
    await house.stub.DeletePipeline(gateway_pb2.DeletePipelineRequest(name="short"), **asking.means)
    batch = await asking.ended(batch.batch_id)
    assert (state(batch), batch.spec.pipeline.version) == ("COMPLETED", 1)

"""The spec of a verification rerun."""

from gateway.provenance.rerun import RerunTerms, SkipReason, artifacts_of, spec
from gateway.provenance.run_account import Account
from protos.hugginggpt.v1 import artifact_pb2, event_pb2, model_pb2, run_pb2, task_pb2
from protos.hugginggpt.v1.event_pb2 import RunEvent
from protos.hugginggpt.v1.record_pb2 import VERIFICATION_OUTCOME_GONE

BY = model_pb2.Candidate(model_id="m", revision="c1")


def account() -> Account:
    """Account of a run whose task 2 has a list port with an input and the output of task 1."""
    run_spec = run_pb2.RunSpec(request="x", inference_mode=model_pb2.INFERENCE_MODE_LOCAL)
    run_spec.inputs.add(name="photo").value.artifact.sha256 = "ab"
    joined = task_pb2.Task(id=2, task="joining", parameters_json='{"b":1,"a":"x"}', source="join them")
    items = joined.arguments["parts"].list.items
    items.add().input.name = "photo"
    items.add().reference.CopyFrom(task_pb2.Reference(task_id=1, output="text"))
    joined.arguments["title"].value.text = "both"
    first = run_pb2.TaskResult(by=BY, outputs={"text": artifact_pb2.Value(text="made")})
    second = run_pb2.TaskResult(by=BY, seed=9, outputs={"text": artifact_pb2.Value(text="joined")})
    return Account(
        [
            RunEvent(run_id="run_1", run_accepted=event_pb2.RunAccepted(spec=run_spec)),
            RunEvent(task_id=1, task_planned=event_pb2.TaskPlanned(task=task_pb2.Task(id=1, task="making"))),
            RunEvent(task_id=2, task_planned=event_pb2.TaskPlanned(task=joined)),
            RunEvent(task_id=1, task_ended=event_pb2.TaskEnded(result=first)),
            RunEvent(task_id=2, task_ended=event_pb2.TaskEnded(result=second)),
        ]
    )


def test_rerun_tasks_are_independent_with_original_values() -> None:
    original = account()
    run_spec = spec(original, [original.tasks[2]], {1: SkipReason(VERIFICATION_OUTCOME_GONE, "the model is gone")})
    (task,) = run_spec.plan.tasks
    assert task.pinned_model == "m"
    assert task.pinned_revision == "c1"
    assert task.parameters_json == '{"a":"x","b":1,"seed":9}'
    assert [item.value.WhichOneof("kind") for item in task.arguments["parts"].list.items] == ["artifact", "text"]
    assert task.arguments["parts"].list.items[1].value.text == "made"
    assert task.arguments["title"].value.text == "both"
    assert run_spec.bypass_memo is True
    assert run_spec.mode == run_pb2.RUN_MODE_RESULTS
    assert run_spec.inference_mode == model_pb2.INFERENCE_MODE_LOCAL
    assert list(artifacts_of(original.tasks[2], original)) == [("parts", "ab")]


def test_rerun_terms_round_trip() -> None:
    original = account()
    skip_reasons = {1: SkipReason(VERIFICATION_OUTCOME_GONE, "the model is gone")}
    assert RerunTerms.read_from(spec(original, [original.tasks[2]], skip_reasons)) == RerunTerms("run_1", skip_reasons)
    assert RerunTerms.read_from(run_pb2.RunSpec()) is None

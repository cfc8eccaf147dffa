"""The fold of a run's events."""

import pytest

from protos.hugginggpt.run_state import RunFold
from protos.hugginggpt.v1 import event_pb2, failure_pb2, model_pb2, plan_pb2, run_pb2, task_pb2, usage_pb2
from protos.hugginggpt.v1.event_pb2 import RunEvent

FAILURE = failure_pb2.Failure(reason="MODEL_FAILED")
ATTEMPT_FAILED = RunEvent(
    task_id=1,
    attempt=1,
    attempt_failed=event_pb2.AttemptFailed(failure=FAILURE, usage=usage_pb2.Usage(input_tokens=3)),
)
PLAN_COMPLETED = RunEvent(
    plan_completed=event_pb2.PlanCompleted(decision=plan_pb2.Decision(controller=plan_pb2.CONTROLLER_LLM))
)
PLAN_BROKEN_OFF = RunEvent(plan_completed=event_pb2.PlanCompleted())
REPLANNING = RunEvent(replanning=event_pb2.Replanning(failed=[1]))


def planned(task_id: int) -> RunEvent:
    task = task_pb2.Task(id=task_id, task="summarization")
    return RunEvent(task_id=task_id, task_planned=event_pb2.TaskPlanned(task=task))


def started(attempt: int, model: str) -> RunEvent:
    by = model_pb2.Candidate(model_id=model)
    return RunEvent(task_id=1, attempt=attempt, task_started=event_pb2.TaskStarted(by=by))


def task_ended(state: "run_pb2.TaskState.ValueType") -> RunEvent:
    return RunEvent(task_id=1, task_ended=event_pb2.TaskEnded(state=state, result=run_pb2.TaskResult(task_id=1)))


def fold(*events: RunEvent) -> RunFold:
    """Folds an accepted run with task 1 and the given events, numbered from 1."""
    accepted = RunEvent(run_id="r", run_accepted=event_pb2.RunAccepted(spec=run_pb2.RunSpec(request="Sum it up")))
    folded = RunFold()
    for number, event in enumerate([accepted, planned(1), *events], start=1):
        event.sequence = number
        folded.apply(event)
    return folded


def test_run_is_queued_when_accepted() -> None:
    run = RunFold([RunEvent(run_id="r", sequence=1, run_accepted=event_pb2.RunAccepted())]).run
    assert run.run_id == "r"
    assert run.state == run_pb2.RUN_STATE_QUEUED
    assert run.last_sequence == 1


def test_run_is_running_once_a_task_is_planned() -> None:
    folded = fold()
    assert folded.run.state == run_pb2.RUN_STATE_RUNNING
    assert not folded.is_planned


def test_planned_tasks_are_unfinished() -> None:
    folded = fold()
    assert 1 in folded
    assert 2 not in folded
    assert folded.last_task == 1
    assert folded.unfinished() == [1]


def test_fold_without_events_has_no_task() -> None:
    assert RunFold().last_task == 0


def test_failed_attempt_is_shown_until_the_next_one_starts() -> None:
    (status,) = fold(started(1, "a"), ATTEMPT_FAILED).snapshot().tasks
    assert status.state == run_pb2.TASK_STATE_RUNNING
    assert status.result.failure.reason == "MODEL_FAILED"


def test_next_attempt_clears_the_failure() -> None:
    (status,) = fold(started(1, "a"), ATTEMPT_FAILED, started(2, "b")).snapshot().tasks
    assert status.candidate.model_id == "b"
    assert status.result.attempt == 2
    assert not status.result.HasField("failure")


def test_usage_of_failed_attempts_is_retained() -> None:
    folded = fold(started(1, "a"), ATTEMPT_FAILED, started(2, "b"))
    assert [usage.input_tokens for usage in folded.failed_usage] == [3]
    assert folded.last_errors == {1: FAILURE}


def test_skipped_task_has_a_result_and_has_not_failed() -> None:
    folded = fold(task_ended(run_pb2.TASK_STATE_SKIPPED))
    assert [task_id for task_id, _ in folded.results()] == [1]
    assert folded.failed == []
    assert folded.unfinished() == []


def test_approved_plan_replaces_the_tasks() -> None:
    plan = plan_pb2.Plan(tasks=[task_pb2.Task(id=7, task="translation")])
    requested = RunEvent(approval_requested=event_pb2.ApprovalRequested())
    requested.time.FromSeconds(2)
    assert fold(PLAN_COMPLETED, requested).run.state == run_pb2.RUN_STATE_AWAITING_APPROVAL
    folded = fold(PLAN_COMPLETED, requested, RunEvent(plan_approved=event_pb2.PlanApproved(plan=plan)))
    assert folded.is_approved
    assert folded.approval_requested_at == 2_000_000_000
    assert folded.run.state == run_pb2.RUN_STATE_RUNNING
    assert [status.task.id for status in folded.run.tasks] == [7]
    assert folded.unfinished() == [7]


@pytest.mark.parametrize(
    ("events", "replaced"),
    [
        ((REPLANNING, planned(2), PLAN_COMPLETED), {1}),
        ((REPLANNING, planned(2)), set()),
        ((REPLANNING, planned(2), PLAN_BROKEN_OFF), set()),
        ((REPLANNING, PLAN_COMPLETED), set()),
    ],
    ids=["complete", "still planning", "planner stream ended early", "no new task"],
)
def test_failed_tasks_are_replaced_by_a_complete_replanning(events: tuple[RunEvent, ...], replaced: set[int]) -> None:
    folded = fold(PLAN_COMPLETED, task_ended(run_pb2.TASK_STATE_FAILED), *events)
    assert folded.abandoned == {1}
    assert folded.replaced == replaced


def test_snapshot_is_a_copy_with_the_answer_so_far() -> None:
    folded = fold(RunEvent(answer_chunk=event_pb2.AnswerChunk(text="In ")))
    snapshot = folded.snapshot()
    folded.apply(RunEvent(sequence=4, answer_chunk=event_pb2.AnswerChunk(text="short.")))
    assert snapshot.answer == "In "
    assert snapshot.last_sequence == 3
    assert folded.answer == "In short."


def test_ended_run_has_state_failure_usage_and_time() -> None:
    end = event_pb2.RunEnded(state=run_pb2.RUN_STATE_FAILED, failure=FAILURE, usage=usage_pb2.Usage(output_tokens=5))
    ended = RunEvent(run_ended=end)
    ended.time.FromSeconds(9)
    run = fold(ended).run
    assert run.state == run_pb2.RUN_STATE_FAILED
    assert run.failure == FAILURE
    assert run.usage.output_tokens == 5
    assert run.end_time.seconds == 9


def test_event_without_known_content_only_advances_the_sequence() -> None:
    folded = fold(RunEvent())
    assert folded.run.last_sequence == 3
    assert folded.run.state == run_pb2.RUN_STATE_RUNNING


def test_event_of_an_unplanned_task_is_an_error() -> None:
    with pytest.raises(KeyError):
        fold(RunEvent(task_id=2, task_waiting=event_pb2.TaskWaiting()))


def test_event_of_an_unplanned_task_can_be_ignored() -> None:
    waiting = RunEvent(sequence=1, task_id=2, task_waiting=event_pb2.TaskWaiting())
    folded = RunFold([waiting], ignore_unplanned=True)
    assert folded.run == run_pb2.Run(last_sequence=1)


def test_resumed_fold_leads_to_the_same_snapshot() -> None:
    events = [started(1, "a"), RunEvent(answer_chunk=event_pb2.AnswerChunk(text="one"))]
    later = [task_ended(run_pb2.TASK_STATE_SUCCEEDED), RunEvent(answer_chunk=event_pb2.AnswerChunk(text=" two"))]
    resumed = RunFold.resume(fold(*events).snapshot())
    for number, event in enumerate(later, start=5):
        event.sequence = number
        resumed.apply(event)
    assert resumed.snapshot() == fold(*events, *later).snapshot()
    assert resumed.answer == "one two"

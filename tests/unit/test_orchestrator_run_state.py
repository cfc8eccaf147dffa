from protos.hugginggpt.v1 import types_pb2 as types
from protos.hugginggpt.v1.types_pb2 import RunEvent
from services.orchestrator.runs.run_state import RunView


def view(*events: RunEvent) -> RunView:
    accepted = RunEvent(run_id="r", run_accepted=types.RunAccepted())
    planned = RunEvent(task_id=1, task_planned=types.TaskPlanned(task=types.Task(id=1, task="summarization")))
    folded = RunView()
    for number, event in enumerate([accepted, planned, *events], start=1):
        event.sequence = number
        folded.apply(event)
    return folded


def started(attempt: int, model: str) -> RunEvent:
    by = types.Candidate(model_id=model)
    return RunEvent(task_id=1, attempt=attempt, task_started=types.TaskStarted(by=by))


WRONG = types.Failure(reason="MODEL_FAILED")
FAILED = RunEvent(task_id=1, attempt=1, attempt_failed=types.AttemptFailed(failure=WRONG))


def test_between_attempts_a_task_shows_what_went_wrong() -> None:
    (status,) = view(started(1, "a"), FAILED).snapshot().tasks
    assert (status.state, status.result.failure.reason) == (types.TASK_STATE_RUNNING, "MODEL_FAILED")


def test_a_task_that_is_tried_again_has_not_failed() -> None:
    (status,) = view(started(1, "a"), FAILED, started(2, "b")).snapshot().tasks
    assert (status.candidate.model_id, status.result.attempt) == ("b", 2)
    assert not status.result.HasField("failure")


def test_tasks_are_known_once_planned() -> None:
    folded = view()
    assert (1 in folded, 2 in folded, folded.last_task) == (True, False, 1)
    assert RunView().last_task == 0
    assert folded.under_way() == [1]

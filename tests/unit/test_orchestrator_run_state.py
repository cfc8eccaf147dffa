from protos.hugginggpt.v1 import event_pb2, failure_pb2, model_pb2, run_pb2, task_pb2
from protos.hugginggpt.v1.event_pb2 import RunEvent
from services.orchestrator.runs.run_state import RunView


def view(*events: RunEvent) -> RunView:
    accepted = RunEvent(run_id="r", run_accepted=event_pb2.RunAccepted())
    planned = RunEvent(task_id=1, task_planned=event_pb2.TaskPlanned(task=task_pb2.Task(id=1, task="summarization")))
    folded = RunView()
    for number, event in enumerate([accepted, planned, *events], start=1):
        event.sequence = number
        folded.apply(event)
    return folded


def started(attempt: int, model: str) -> RunEvent:
    by = model_pb2.Candidate(model_id=model)
    return RunEvent(task_id=1, attempt=attempt, task_started=event_pb2.TaskStarted(by=by))


WRONG = failure_pb2.Failure(reason="MODEL_FAILED")
FAILED = RunEvent(task_id=1, attempt=1, attempt_failed=event_pb2.AttemptFailed(failure=WRONG))


def test_between_attempts_a_task_shows_what_went_wrong() -> None:
    (status,) = view(started(1, "a"), FAILED).snapshot().tasks
    assert (status.state, status.result.failure.reason) == (run_pb2.TASK_STATE_RUNNING, "MODEL_FAILED")


def test_a_task_that_is_tried_again_has_not_failed() -> None:
    (status,) = view(started(1, "a"), FAILED, started(2, "b")).snapshot().tasks
    assert (status.candidate.model_id, status.result.attempt) == ("b", 2)
    assert not status.result.HasField("failure")


def test_tasks_are_known_once_planned() -> None:
    folded = view()
    assert (1 in folded, 2 in folded, folded.last_task) == (True, False, 1)
    assert RunView().last_task == 0
    assert folded.unfinished() == [1]

import pytest

from gateway.public_view import make_public
from protos.hugginggpt.v1.event_pb2 import (
    NEXT_STEP_RETRY,
    AttemptFailed,
    RunAccepted,
    RunEvent,
    TaskEnded,
    TaskSelected,
    TaskStarted,
)
from protos.hugginggpt.v1.model_pb2 import Candidate, Endpoint
from protos.hugginggpt.v1.run_pb2 import TASK_STATE_PLANNED, Run, TaskResult, TaskStatus

INSIDE = "10.1.2.3:50051"
BY = Candidate(model_id="m", expert="lite", endpoints=[Endpoint(address=INSIDE, queue=3)])


@pytest.mark.parametrize(
    "told",
    [
        RunEvent(task_selected=TaskSelected(candidates=[BY, BY])),
        RunEvent(task_started=TaskStarted(by=BY)),
        RunEvent(attempt_failed=AttemptFailed(by=BY, next=NEXT_STEP_RETRY)),
        RunEvent(task_ended=TaskEnded(result=TaskResult(task_id=1, by=BY))),
        Run(tasks=[TaskStatus(candidate=BY), TaskStatus(result=TaskResult(by=BY))]),
    ],
    ids=lambda told: told.WhichOneof("event") if isinstance(told, RunEvent) else "run",
)
def test_public_view_has_expert_names_without_addresses(told: Run | RunEvent) -> None:
    make_public(told)
    assert INSIDE not in str(told)
    assert 'expert: "lite"' in str(told)


@pytest.mark.parametrize(
    "told",
    [
        RunEvent(run_accepted=RunAccepted(conversation_id="c")),
        RunEvent(task_ended=TaskEnded(result=TaskResult(task_id=1))),
        Run(tasks=[TaskStatus(state=TASK_STATE_PLANNED)]),
    ],
    ids=str,
)
def test_public_view_keeps_messages_without_addresses(told: Run | RunEvent) -> None:
    before = told.SerializeToString()
    make_public(told)
    assert told.SerializeToString() == before

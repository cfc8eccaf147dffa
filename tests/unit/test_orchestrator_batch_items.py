"""Items of batches: what their runs wait for, and the final state of the batch."""

import pytest

from protos.hugginggpt.run_state import RunFold
from protos.hugginggpt.v1.event_pb2 import (
    AttemptFailed,
    RunAccepted,
    RunEvent,
    TaskPlanned,
    TaskSelected,
    TaskStarted,
    TaskWaiting,
)
from protos.hugginggpt.v1.failure_pb2 import Failure
from protos.hugginggpt.v1.model_pb2 import Candidate
from protos.hugginggpt.v1.run_pb2 import (
    RUN_STATE_CANCELLED,
    RUN_STATE_COMPLETED,
    RUN_STATE_FAILED,
    RUN_STATE_INCOMPLETE,
    RUN_STATE_QUEUED,
    RunState,
)
from protos.hugginggpt.v1.task_pb2 import Task
from services.orchestrator.batches.items import final_state, waiting_reason
from services.orchestrator.journal.batch_items import Counts

MODEL = Candidate(model_id="model")
SELECTED = TaskSelected(candidates=[MODEL])
DORMANT = TaskWaiting(expert="expert", reason="expert is dormant")
UNREACHABLE = AttemptFailed(failure=Failure(message="expert cannot be reached"))


def fold(*events: RunEvent, tasks: int = 1) -> RunFold:
    """A run with planned tasks, after more events."""
    planned = [
        RunEvent(task_id=task_id, task_planned=TaskPlanned(task=Task(id=task_id, task="summarization")))
        for task_id in range(1, tasks + 1)
    ]
    return RunFold([RunEvent(run_id="run", run_accepted=RunAccepted()), *planned, *events])


def test_run_without_a_selected_model_waits_for_it() -> None:
    assert waiting_reason(fold()) == "no model has been selected for summarization yet"


def test_run_whose_task_waits_for_an_expert_has_its_reason() -> None:
    run = fold(RunEvent(task_id=1, task_selected=SELECTED), RunEvent(task_id=1, task_waiting=DORMANT))
    assert waiting_reason(run) == "expert is dormant"


def test_run_that_executes_a_task_does_not_wait() -> None:
    run = fold(RunEvent(task_id=1, task_waiting=DORMANT), RunEvent(task_id=1, task_started=TaskStarted(by=MODEL)))
    assert waiting_reason(run) == ""


def test_run_with_a_failed_attempt_waits_for_the_next() -> None:
    started = RunEvent(task_id=1, task_started=TaskStarted(by=MODEL))
    assert waiting_reason(fold(started, RunEvent(task_id=1, attempt_failed=UNREACHABLE))) == "expert cannot be reached"


def test_run_of_which_one_task_executes_and_another_waits_does_not_wait() -> None:
    run = fold(
        RunEvent(task_id=1, task_waiting=DORMANT),
        RunEvent(task_id=2, task_started=TaskStarted(by=MODEL)),
        tasks=2,
    )
    assert waiting_reason(run) == ""


def test_run_whose_selected_task_depends_on_a_waiting_one_waits() -> None:
    selected = [RunEvent(task_id=task_id, task_selected=SELECTED) for task_id in (1, 2)]
    run = fold(*selected, RunEvent(task_id=1, task_waiting=DORMANT), tasks=2)
    assert waiting_reason(run) == "expert is dormant"


@pytest.mark.parametrize(
    ("counts", "state"),
    [
        ({RUN_STATE_COMPLETED: 3}, RUN_STATE_COMPLETED),
        ({RUN_STATE_COMPLETED: 2, RUN_STATE_FAILED: 1}, RUN_STATE_INCOMPLETE),
        ({RUN_STATE_INCOMPLETE: 1, RUN_STATE_FAILED: 2}, RUN_STATE_INCOMPLETE),
        ({RUN_STATE_FAILED: 3}, RUN_STATE_FAILED),
        ({RUN_STATE_COMPLETED: 2, RUN_STATE_CANCELLED: 1}, RUN_STATE_CANCELLED),
        ({RUN_STATE_COMPLETED: 2}, RUN_STATE_CANCELLED),
        ({RUN_STATE_COMPLETED: 2, RUN_STATE_QUEUED: 1}, RUN_STATE_CANCELLED),
    ],
    ids=["all-completed", "one-failed", "incomplete", "all-failed", "one-cancelled", "not-started", "queued-again"],
)
def test_final_state_of_a_batch_follows_from_its_items(
    counts: "dict[RunState.ValueType, int]", state: "RunState.ValueType"
) -> None:
    assert final_state(Counts(counts, 0), total=3) == state

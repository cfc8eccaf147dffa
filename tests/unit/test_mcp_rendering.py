"""Rendering of runs as MCP tool results."""

import pytest
from mcp.types import TextContent

from gateway.mcp.rendering import run_result
from protos.hugginggpt.run_state import RunFold
from protos.hugginggpt.v1.event_pb2 import AttemptFailed, RunAccepted, RunEvent, TaskEnded
from protos.hugginggpt.v1.failure_pb2 import Failure
from protos.hugginggpt.v1.run_pb2 import (
    TASK_STATE_CANCELLED,
    TASK_STATE_FAILED,
    TASK_STATE_SKIPPED,
    TaskResult,
    TaskState,
)
from tests.support.openai_clients import task_planned, task_started, task_succeeded


def rendered(*events: RunEvent) -> str:
    """The text for a run with these events."""
    accepted = RunEvent(run_id="run_1", run_accepted=RunAccepted())
    (text,) = run_result(RunFold([accepted, *events]).snapshot(), "http://h").content
    assert isinstance(text, TextContent)
    return text.text


def test_running_task_is_not_counted_as_ended() -> None:
    text = rendered(
        task_planned(1, "image-to-text"),
        task_planned(2, "translation"),
        task_planned(3, "text-to-speech"),
        task_started(1),
        task_succeeded(1),
        task_started(2),
    )
    assert text.startswith("The run run_1 is running; 1 of 3 planned tasks have ended.")


def failed_attempt(failure: Failure) -> tuple[RunEvent, ...]:
    """Events of a task whose first attempt failed."""
    started = task_started(1)
    started.attempt = 1
    return task_planned(1, "summarization"), started, RunEvent(task_id=1, attempt_failed=AttemptFailed(failure=failure))


def test_task_that_is_retried_is_not_called_failed() -> None:
    text = rendered(*failed_attempt(Failure(message="the expert is overloaded", remedy="call again later")))
    assert text.splitlines()[1:] == [
        "Attempt 1 of task 1 (summarization) failed: the expert is overloaded. The task has not ended."
    ]


@pytest.mark.parametrize(
    ("state", "ending"),
    [(TASK_STATE_FAILED, "failed"), (TASK_STATE_SKIPPED, "was skipped"), (TASK_STATE_CANCELLED, "was cancelled")],
)
def test_ended_task_is_rendered_with_its_failure_and_remedy(state: TaskState.ValueType, ending: str) -> None:
    failure = Failure(message="the text is Greek", remedy="send English")
    ended = RunEvent(task_id=1, task_ended=TaskEnded(state=state, result=TaskResult(task_id=1, failure=failure)))
    text = rendered(*failed_attempt(failure), ended)
    assert text.splitlines()[1:] == [f"Task 1 (summarization) {ending}: the text is Greek. Remedy: send English"]

"""Rendering of runs and errors as MCP tool results."""

import ast
import re
from collections.abc import Iterator

import pytest
from mcp.types import TextContent

from gateway.mcp.rendering import error_result, remedy_for_agents, run_result
from protos.hugginggpt.run_state import RunFold
from protos.hugginggpt.v1.event_pb2 import (
    AnswerChunk,
    ApprovalRequested,
    AttemptFailed,
    RunAccepted,
    RunEvent,
    TaskEnded,
)
from protos.hugginggpt.v1.failure_pb2 import Failure
from protos.hugginggpt.v1.plan_pb2 import Note
from protos.hugginggpt.v1.run_pb2 import (
    TASK_STATE_CANCELLED,
    TASK_STATE_FAILED,
    TASK_STATE_SKIPPED,
    TaskResult,
    TaskState,
)
from services.common.errors import NotFound
from tests.readme import ROOT
from tests.support.openai_clients import task_planned, task_started, task_succeeded

ROUTE = re.compile(r"\b(?:GET|POST|PUT|DELETE) /(?:v1|readyz)")


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


ONE_TASK = (task_planned(1, "image-to-text"), task_started(1))


@pytest.mark.parametrize(
    ("events", "state"),
    [
        ((), "is queued"),
        ((RunEvent(plan_note=Note()),), "is running; its tasks are being planned"),
        (ONE_TASK, "is running; 0 of 1 planned tasks have ended"),
        ((*ONE_TASK, task_succeeded(1)), "is running; its task has ended, and its answer or further tasks follow"),
        (
            (*ONE_TASK, task_planned(2, "translation"), task_succeeded(1), task_succeeded(2)),
            "is running; all 2 planned tasks have ended, and its answer or further tasks follow",
        ),
        (
            (*ONE_TASK, task_succeeded(1), RunEvent(answer_chunk=AnswerChunk(text="The"))),
            "is running; its answer is being written",
        ),
        ((*ONE_TASK, RunEvent(approval_requested=ApprovalRequested())), "waits for approval of its plan"),
    ],
)
def test_active_run_is_described_by_its_present_step(events: tuple[RunEvent, ...], state: str) -> None:
    assert rendered(*events).splitlines()[0] == f"The run run_1 {state}. Call get_run for its outcome."


@pytest.mark.parametrize(
    ("remedy", "for_agents"),
    [
        ("check the ID; `GET /v1/runs` lists them", "check the ID; the tool list_runs lists them"),
        ("see GET /readyz or hugginggpt doctor for its name", "see hugginggpt doctor for its name"),
        ("see `hugginggpt tasks` for the available tasks", "see the tool tasks for the available tasks"),
        ("send English", "send English"),
    ],
)
def test_remedy_names_tools(remedy: str, for_agents: str) -> None:
    (text,) = error_result(NotFound("there is no such thing", reason="X", remedy=remedy)).content
    assert isinstance(text, TextContent)
    assert text.text.splitlines()[1] == f"Remedy: {for_agents}"


def texts_with_routes() -> Iterator[str]:
    """Texts in the code behind the MCP server that name a route of the HTTP API."""
    for folder in ("services", "gateway/core", "gateway/limits", "gateway/auth"):
        for module in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and ROUTE.search(node.value):
                    yield node.value


@pytest.mark.parametrize("text", sorted({text for text in texts_with_routes() if "\n" not in text}))
def test_no_remedy_names_an_http_route(text: str) -> None:
    assert not ROUTE.search(remedy_for_agents(text))


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

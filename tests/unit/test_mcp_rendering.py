"""Rendering of runs as MCP tool results."""

from mcp.types import TextContent

from gateway.mcp.rendering import run_result
from protos.hugginggpt.run_state import RunFold
from protos.hugginggpt.v1.event_pb2 import RunAccepted, RunEvent
from tests.support.openai_clients import task_planned, task_started, task_succeeded


def test_running_task_is_not_counted_as_ended() -> None:
    events = [
        RunEvent(run_id="run_1", run_accepted=RunAccepted()),
        task_planned(1, "image-to-text"),
        task_planned(2, "translation"),
        task_planned(3, "text-to-speech"),
        task_started(1),
        task_succeeded(1),
        task_started(2),
    ]
    (text,) = run_result(RunFold(events).snapshot(), "http://h").content
    assert isinstance(text, TextContent)
    assert text.text.startswith("The run run_1 is running; 1 of 3 planned tasks have ended.")

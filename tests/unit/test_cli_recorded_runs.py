"""Views of the command line on recorded runs."""

from io import StringIO

import pytest
from rich.console import Console

from gateway.cli.live_view import LineView
from gateway.cli.run_progress import RunProgress
from gateway.cli.waterfall import Waterfall
from tests.support.event_logs import NAMES, event_log

PLANNED = ["1 image-to-text: planned", "2 text-to-speech: planned", "planned by the embedded planner"]
SPOKEN = ["2 text-to-speech: running on espeak-ng", "2 text-to-speech: succeeded 0.10 s"]

LINES = {
    "completed": [*PLANNED, "1 image-to-text: running on rapidocr", "1 image-to-text: succeeded 1.50 s", *SPOKEN],
    "approved": [*PLANNED, "1 image-to-text: reused", "2 text-to-speech: reused"],
    "failed": [
        *PLANNED,
        "1 image-to-text: running on rapidocr",
        "1 image-to-text: failed 0.01 s (cannot decode broken.png: the image data is corrupted.)",
        "2 text-to-speech: skipped (text-to-speech was not started: it depends on task 1, which has no result)",
        "note: task 1 failed; the planner looks for an alternative",
        "planned by the embedded planner",
    ],
    "retried": [
        *PLANNED,
        "1 image-to-text: waiting, expert lite is starting",
        "1 image-to-text: running on rapidocr",
        "1 image-to-text: expert lite closed the connection; retrying",
        "note: another orchestrator continues the run",
        "1 image-to-text: running on rapidocr attempt 2",
        "1 image-to-text: succeeded 1.50 s",
        *SPOKEN,
    ],
    "unplannable": [
        "note: These words were not understood: say in English what is to be done.",
        "planned by the embedded planner",
    ],
}

STATES = {
    "completed": ["succeeded", "succeeded"],
    "approved": ["reused", "reused"],
    "failed": ["failed", "skipped"],
    "retried": ["succeeded", "succeeded"],
    "unplannable": [],
}


def followed(name: str) -> tuple[RunProgress, list[str]]:
    """The progress of a recorded run, and the lines shown meanwhile."""
    shown = StringIO()
    view, progress = LineView(Console(file=shown)), RunProgress()
    for event in event_log(name):
        progress.apply(event)
        view.show(progress, event.kind, event.task_id)
    return progress, shown.getvalue().splitlines()


@pytest.mark.parametrize("name", NAMES)
def test_line_view_shows_each_step(name: str) -> None:
    _, lines = followed(name)
    assert lines == LINES[name]


@pytest.mark.parametrize("name", NAMES)
def test_report_has_the_final_state_of_each_task(name: str) -> None:
    progress, _ = followed(name)
    assert [status.state for status in progress.run.tasks] == STATES[name]
    assert [result["task_id"] for result in progress.report([])["results"]] == list(range(1, len(STATES[name]) + 1))


@pytest.mark.parametrize("name", NAMES)
def test_waterfall_has_the_task_states_of_the_run(name: str) -> None:
    progress, _ = followed(name)
    waterfall = Waterfall.of(progress.run, [event.content for event in event_log(name)])
    assert [span.state for span in waterfall.spans if span.kind == "task"] == STATES[name]


def test_waterfall_of_an_approved_run_has_the_wait_for_approval() -> None:
    progress, _ = followed("approved")
    waterfall = Waterfall.of(progress.run, [event.content for event in event_log("approved")])
    assert "approval" in [span.kind for span in waterfall.spans]

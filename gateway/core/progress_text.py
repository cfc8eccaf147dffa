"""Renders the progress of a run as lines of text."""

from collections.abc import Callable, Mapping

from protos.hugginggpt.v1.event_pb2 import RunEvent
from protos.hugginggpt.v1.plan_pb2 import NOTE_KIND_CHAT
from protos.hugginggpt.v1.run_pb2 import TASK_STATE_REUSED, TASK_STATE_SUCCEEDED

_END_TEXTS = {TASK_STATE_SUCCEEDED: "done", TASK_STATE_REUSED: "reused"}
_HIDDEN_NOTES = frozenset({NOTE_KIND_CHAT})
_MAX_CHARACTERS = 200


def line(event: RunEvent) -> str:
    """Renders an event as a line; empty for events that users need not see."""
    render = _LINES.get(event.WhichOneof("event") or "")
    text = render(event) if render else ""
    return f"{text}\n" if text else ""


def _planned(event: RunEvent) -> str:
    task = event.task_planned.task
    source = f": {_short(task.source)}" if task.source else ""
    return f"{task.id}. {_short(task.task)}{source}"


def _note(event: RunEvent) -> str:
    return "" if event.plan_note.kind in _HIDDEN_NOTES else _short(event.plan_note.text)


def _waiting(event: RunEvent) -> str:
    return f"Task {event.task_id} waiting: {_short(event.task_waiting.reason)}"


def _started(event: RunEvent) -> str:
    return f"Task {event.task_id} running on {_short(event.task_started.by.model_id)}"


def _failed(event: RunEvent) -> str:
    return f"Task {event.task_id} retrying: {_short(event.attempt_failed.failure.message)}"


def _ended(event: RunEvent) -> str:
    end = event.task_ended
    if end.state in _END_TEXTS:
        seconds = end.result.usage.elapsed.ToNanoseconds() / 1e9
        took = f" in {seconds:.2g} s" if seconds and end.state == TASK_STATE_SUCCEEDED else ""
        return f"Task {event.task_id} {_END_TEXTS[end.state]}{took}."
    reason = _short(end.result.failure.message)
    return f"Task {event.task_id} failed{f': {reason}' if reason else ''}."


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MAX_CHARACTERS else line[: _MAX_CHARACTERS - 1] + "…"


_LINES: Mapping[str, Callable[[RunEvent], str]] = {
    "plan_note": _note,
    "task_planned": _planned,
    "approval_requested": lambda _event: "The plan awaits approval.",
    "replanning": lambda _event: "Planning an alternative.",
    "task_waiting": _waiting,
    "task_started": _started,
    "attempt_failed": _failed,
    "task_ended": _ended,
}

"""A run under way, in lines a reader can follow."""

from collections.abc import Callable, Mapping

from protos.hugginggpt.v1.event_pb2 import RunEvent
from protos.hugginggpt.v1.plan_pb2 import NOTE_KIND_CHAT
from protos.hugginggpt.v1.run_pb2 import TASK_STATE_REUSED, TASK_STATE_SUCCEEDED

_ENDS = {TASK_STATE_SUCCEEDED: "done", TASK_STATE_REUSED: "done before"}
_UNTOLD = frozenset({NOTE_KIND_CHAT})
_SHORT = 200


def line(event: RunEvent) -> str:
    """What an event means to a reader, with its line end; empty for what they need not know."""
    tell = _LINES.get(event.WhichOneof("event") or "")
    words = tell(event) if tell else ""
    return f"{words}\n" if words else ""


def _planned(event: RunEvent) -> str:
    task = event.task_planned.task
    source = f": {_short(task.source)}" if task.source else ""
    return f"{task.id}. {_short(task.task)}{source}"


def _note(event: RunEvent) -> str:
    return "" if event.plan_note.kind in _UNTOLD else _short(event.plan_note.text)


def _waiting(event: RunEvent) -> str:
    return f"Task {event.task_id} waits: {_short(event.task_waiting.reason)}"


def _started(event: RunEvent) -> str:
    return f"Task {event.task_id} runs: {_short(event.task_started.by.model_id)}"


def _failed(event: RunEvent) -> str:
    return f"Task {event.task_id} tries again: {_short(event.attempt_failed.failure.message)}"


def _ended(event: RunEvent) -> str:
    end = event.task_ended
    if end.state in _ENDS:
        seconds = end.result.usage.elapsed.ToNanoseconds() / 1e9
        took = f" in {seconds:.2g} s" if seconds and end.state == TASK_STATE_SUCCEEDED else ""
        return f"Task {event.task_id} {_ENDS[end.state]}{took}."
    why = _short(end.result.failure.message)
    return f"Task {event.task_id} failed{f': {why}' if why else ''}."


def _short(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= _SHORT else words[: _SHORT - 1] + "…"


_LINES: Mapping[str, Callable[[RunEvent], str]] = {
    "plan_note": _note,
    "task_planned": _planned,
    "approval_requested": lambda _event: "The plan waits to be approved.",
    "replanning": lambda _event: "Looking for another way.",
    "task_waiting": _waiting,
    "task_started": _started,
    "attempt_failed": _failed,
    "task_ended": _ended,
}

"""Folds the events of a run into the Run object of the gateway's API."""

from collections.abc import Callable, Mapping
from typing import Any

from gateway.client.models import Event, Run

JsonObject = dict[str, Any]

_NO_RESULT: Mapping[str, Any] = {"task_id": 0, "attempt": 0, "seed": 0, "outputs": {}}


class RunFold:
    """State of a run, updated event by event.

    The result is the Run that the gateway returns after the same events. Events of unknown kinds, and of tasks that
    were not planned, only advance the sequence number: the gateway may be newer than its client.
    """

    def __init__(self) -> None:
        self.content: JsonObject = {"run_id": "", "state": "queued", "tasks": [], "notes": [], "answer": ""}
        """The Run as JSON."""
        self._run: Run | None = None

    @property
    def run(self) -> Run:
        if self._run is None:
            self._run = Run.model_validate(self.content)
        return self._run

    def apply(self, event: Event) -> None:
        """Applies the next event."""
        if change := _RUN_CHANGES.get(event.kind):
            change(self.content, event)
        elif (change := _TASK_CHANGES.get(event.kind)) and (task := self._task(event.task_id)):
            change(task, event)
        self.content["run_id"], self.content["last_sequence"] = event.run_id, event.sequence
        self._run = None

    def _task(self, task_id: int) -> JsonObject | None:
        return next((status for status in self.content["tasks"] if status["task"]["id"] == task_id), None)


def _run_accepted(run: JsonObject, event: Event) -> None:
    run |= _present(event.body, "spec", "deadline", "conversation_id", "batch")
    run["create_time"] = event.content.get("time")


def _plan_note(run: JsonObject, event: Event) -> None:
    run["state"] = "running"
    run["notes"].append(event.body)


def _task_planned(run: JsonObject, event: Event) -> None:
    run["state"] = "running"
    run["tasks"].append({"task": event.body["task"], "state": "planned"})


def _plan_completed(run: JsonObject, _: Event) -> None:
    run["state"] = "running"


def _approval_requested(run: JsonObject, _: Event) -> None:
    run["state"] = "awaiting_approval"


def _plan_approved(run: JsonObject, event: Event) -> None:
    run["state"] = "running"
    run |= _present(event.body, "deadline")
    if "plan" in event.body:
        run["tasks"] = [{"task": task, "state": "planned"} for task in event.body["plan"]]


def _answer_chunk(run: JsonObject, event: Event) -> None:
    run["answer"] += event.body.get("text", "")


def _run_ended(run: JsonObject, event: Event) -> None:
    run |= _present(event.body, "state", "failure", "usage")
    run["end_time"] = event.content.get("time")


def _task_selected(task: JsonObject, event: Event) -> None:
    task["candidate"] = event.body["candidates"][0]


def _task_waiting(task: JsonObject, _: Event) -> None:
    task["state"] = "waiting"


def _task_started(task: JsonObject, event: Event) -> None:
    task |= {"state": "running", "candidate": event.body.get("by", {})}
    result = {**_NO_RESULT, **task.get("result", {}), "task_id": event.task_id}
    result["attempt"] = event.content.get("attempt", 1)
    result.pop("failure", None)
    task["result"] = result


def _attempt_failed(task: JsonObject, event: Event) -> None:
    task["result"] = {**_NO_RESULT, **task.get("result", {}), "failure": event.body.get("failure", {})}


def _task_ended(task: JsonObject, event: Event) -> None:
    task |= {"state": event.body["state"], "result": event.body.get("result", {})}


def _present(body: Mapping[str, Any], *keys: str) -> JsonObject:
    return {key: body[key] for key in keys if key in body}


Change = Callable[[JsonObject, Event], None]

_RUN_CHANGES: Mapping[str, Change] = {
    "run_accepted": _run_accepted,
    "plan_note": _plan_note,
    "task_planned": _task_planned,
    "plan_completed": _plan_completed,
    "approval_requested": _approval_requested,
    "plan_approved": _plan_approved,
    "answer_chunk": _answer_chunk,
    "run_ended": _run_ended,
}
"""Changes of the Run, by kind of event."""

_TASK_CHANGES: Mapping[str, Change] = {
    "task_selected": _task_selected,
    "task_waiting": _task_waiting,
    "task_started": _task_started,
    "attempt_failed": _attempt_failed,
    "task_ended": _task_ended,
}
"""Changes of the status of a task, by kind of event."""

"""Progress of a run: its Run object, and what its events state in addition."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from gateway.cli.plan_graph import task_dependencies
from gateway.client import Event, Run, TaskStatus
from gateway.client.run_fold import RunFold

Decision = Mapping[str, Any]
"""A Decision of a run event; empty if the event has none."""

UNFINISHED_STATES = ("planned", "waiting", "running")
"""States of tasks that have not ended."""

FELL_BACK = "fell_back"

_NEXT_STEPS = {"retry": "retrying", "next_candidate": "trying the next model"}
"""What follows a failed attempt."""


@dataclass
class TaskProgress:
    """What the events of a task state in addition to its status in the Run."""

    note: str = ""
    """Progress of the attempt, or why the task waits or is tried again; empty if it has ended."""
    start_time: datetime | None = None
    seconds: float | None = None
    """Seconds from the first attempt to the end; None before the end, and without an attempt."""
    decision: Decision = field(default_factory=dict)
    """How the model was chosen."""


class RunProgress:
    """State of a followed run, updated by every event."""

    def __init__(self) -> None:
        self._fold = RunFold()
        self.tasks: dict[int, TaskProgress] = {}
        self.notes: list[str] = []
        self.is_planned = False
        self.llm_planned_first = False
        """Whether the LLM had planned tasks before it failed."""
        self.decisions: dict[str, Decision] = {}
        """Decisions about the whole run: `plan` and `answer`."""

    @property
    def run(self) -> Run:
        return self._fold.run

    @property
    def pipeline(self) -> str:
        """The pipeline that is run, as name@version; empty if the run was planned."""
        pipeline = self.run.spec.get("pipeline")
        return f"{pipeline['name']}@{pipeline['version']}" if pipeline else ""

    def apply(self, event: Event) -> None:
        """Applies the next event."""
        self._fold.apply(event)
        body = event.body
        match event.kind:
            case "plan_note" if body.get("kind") == FELL_BACK:  # the decision of the plan reports it, too
                self.llm_planned_first = bool(self.run.tasks)
            case "plan_note":
                self.notes.append(body.get("text", ""))
            case "replanning":
                failed = ", ".join(str(task_id) for task_id in body.get("failed", []))
                self.notes.append(f"task {failed} failed; the planner looks for an alternative")
            case "taken_over":
                self.notes.append("another orchestrator continues the run")
            case "plan_completed":
                self.is_planned = True
                self.decisions["plan"] = body.get("decision", {})
            case "answer_chunk" if "decision" in body:
                self.decisions["answer"] = body["decision"]
        if event.task_id:
            self._apply_to_task(self.tasks.setdefault(event.task_id, TaskProgress()), event)

    def _apply_to_task(self, task: TaskProgress, event: Event) -> None:
        body = event.body
        match event.kind:
            case "task_selected":
                task.decision = body.get("decision", {})
            case "task_waiting":
                task.note = body.get("reason", "")
            case "task_started":
                task.note, task.start_time = "", task.start_time or _time(event)
            case "task_progress":
                task.note = " ".join(filter(None, (f"{body.get('fraction', 0):.0%}", body.get("message"))))
            case "attempt_failed":
                message = body.get("failure", {}).get("message", "failed")
                task.note = "; ".join(filter(None, (message, _NEXT_STEPS.get(body.get("next", ""), ""))))
            case "task_ended":
                task.note = ""
                if task.start_time:
                    task.seconds = round((_time(event) - task.start_time).total_seconds(), 3)

    def of_task(self, status: TaskStatus) -> TaskProgress:
        return self.tasks.get(status.task["id"]) or TaskProgress()

    def report(self, saved: Sequence[Mapping[str, str]]) -> dict[str, Any]:
        """The JSON output of ask --json."""
        content = self._fold.content
        ended = [status for status in content["tasks"] if status["state"] not in UNFINISHED_STATES]
        report = {
            "run_id": content["run_id"],
            "status": content["state"],
            "plan": list(map(_planned, content["tasks"])),
            "results": [self._result(status) for status in ended],
            "answer": content["answer"],
            "artifacts": list(saved),
            "decisions": self.decisions,
            "usage": content.get("usage", {}),
        }
        return {**report, "error": content["failure"]} if "failure" in content else report

    def _result(self, status: Mapping[str, Any]) -> dict[str, Any]:
        task, result = status["task"], status.get("result", {})
        progress = self.tasks.get(task["id"]) or TaskProgress()
        return {
            "task_id": task["id"],
            "task": task["task"],
            "model": _chosen(status, "model_id"),
            "expert": _chosen(status, "expert"),
            "outputs": result.get("outputs", {}),
            "error": result.get("failure"),
            "seconds": progress.seconds,
            "decision": progress.decision,
        }


def model_of(status: TaskStatus) -> str:
    """Id of the model that ran a task or is to run it; empty if none is chosen."""
    chosen = (status.result.by if status.result else None, status.candidate)
    ids = [each.model_id for each in chosen if each and each.model_id]
    return ids[0] if ids else str(status.task.get("pinned_model", ""))


def _planned(status: Mapping[str, Any]) -> dict[str, Any]:
    task = status["task"]
    return {
        "id": task["id"],
        "task": task["task"],
        "args": task.get("arguments", {}),
        "parameters": task.get("parameters", {}),
        "model": _chosen(status, "model_id"),
        "revision": _chosen(status, "revision"),
        "depends_on": sorted(task_dependencies(task.get("arguments", {}))),
    }


def _chosen(status: Mapping[str, Any], key: str) -> str | None:
    """Model, revision or expert that ran a task or is to run it."""
    pinned = {"model_id": status["task"].get("pinned_model"), "revision": status["task"].get("pinned_revision")}
    candidates = (status.get("result", {}).get("by", {}), status.get("candidate", {}), pinned)
    return next((candidate[key] for candidate in candidates if candidate.get(key)), None)


def _time(event: Event) -> datetime:
    return datetime.fromisoformat(event.content["time"])

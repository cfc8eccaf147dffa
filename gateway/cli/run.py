"""State of a run, folded from its events."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

Event = Mapping[str, Any]
"""A RunEvent as JSON: one of its keys is the kind of event."""

Decision = Mapping[str, Any]
"""A Decision of a run event; empty if the event has none."""

COMPLETED = "completed"
END_STATES = (COMPLETED, "incomplete", "failed", "cancelled")
ACTIVE_STATES = ("planned", "waiting", "running")
FELL_BACK = "fell_back"


@dataclass
class Task:
    """A task of the plan with its state and result."""

    id: int
    task: str
    arguments: Mapping[str, Any]
    parameters: Mapping[str, Any]
    model: str | None
    revision: str | None
    expert: str | None = None
    state: str = "planned"
    attempt: int = 0
    note: str = ""
    start_time: datetime | None = None
    seconds: float | None = None
    outputs: Mapping[str, Any] = field(default_factory=dict)
    error: Mapping[str, Any] | None = None
    decision: Decision = field(default_factory=dict)

    @property
    def depends_on(self) -> list[int]:
        return sorted(dependencies(self.arguments))

    @property
    def is_active(self) -> bool:
        return self.state in ACTIVE_STATES

    def set_model(self, candidate: Mapping[str, Any]) -> None:
        self.model = candidate.get("model_id") or self.model
        self.revision = candidate.get("revision") or self.revision
        self.expert = candidate.get("expert") or self.expert


class Run:
    """State of a run, updated by every event."""

    def __init__(self) -> None:
        self.run_id = ""
        self.status = "queued"
        self.sequence = 0
        self.tasks: dict[int, Task] = {}
        self.notes: list[str] = []
        self.answer = ""
        self.failure: Mapping[str, Any] | None = None
        self.pipeline = ""
        """The pipeline that is run, as name@version; empty if the run was planned."""
        self.planned = False
        self.llm_planned_first = False
        """Whether the LLM had planned tasks before it failed."""
        self.decisions: dict[str, Decision] = {}
        """Decisions about the whole run: `plan` and `answer`."""
        self.usage: Mapping[str, Any] = {}

    @property
    def ended(self) -> bool:
        return self.status in END_STATES

    @property
    def completed(self) -> bool:
        return self.status == COMPLETED

    @property
    def awaits_approval(self) -> bool:
        """Whether the plan awaits approval."""
        return self.status == "awaiting_approval"

    def artifacts(self) -> list[Mapping[str, Any]]:
        """Artifacts of all tasks without duplicates, in the order of the plan."""
        found = {
            value["artifact"]["sha256"]: value["artifact"]
            for task in self.tasks.values()
            for value in task.outputs.values()
            if isinstance(value, dict) and "artifact" in value
        }
        return list(found.values())

    def apply(self, event: Event) -> str:
        """Applies an event; returns its kind, "" if it is unknown."""
        self.run_id = event.get("run_id", self.run_id)
        self.sequence = event.get("sequence", self.sequence)
        for kind, change in _CHANGES.items():
            if kind in event:
                change(self, event, event[kind])
                return kind
        return ""

    def task_of(self, event: Event) -> Task:
        return self.tasks[event["task_id"]]


def _run_accepted(run: Run, _: Event, body: Mapping[str, Any]) -> None:
    run.status = "running"
    if pipeline := body.get("spec", {}).get("pipeline"):
        run.pipeline = f"{pipeline['name']}@{pipeline['version']}"


def _plan_note(run: Run, _: Event, body: Mapping[str, Any]) -> None:
    if body.get("kind") == FELL_BACK:  # the decision of the plan reports it, too
        run.llm_planned_first = bool(run.tasks)
    else:
        run.notes.append(body.get("text", ""))


def _task_planned(run: Run, _: Event, body: Mapping[str, Any]) -> None:
    task = body["task"]
    run.tasks[task["id"]] = Task(
        id=task["id"],
        task=task["task"],
        arguments=task.get("arguments", {}),
        parameters=task.get("parameters", {}),
        model=task.get("pinned_model"),
        revision=task.get("pinned_revision"),
    )


def _plan_completed(run: Run, _: Event, body: Mapping[str, Any]) -> None:
    run.planned = True
    run.decisions["plan"] = body.get("decision", {})


def _approval_requested(run: Run, _: Event, __: Mapping[str, Any]) -> None:
    run.status = "awaiting_approval"


def _plan_approved(run: Run, event: Event, body: Mapping[str, Any]) -> None:
    run.status = "running"
    if "plan" in body:
        run.tasks.clear()
        for task in body["plan"]:
            _task_planned(run, event, {"task": task})


def _replanning(run: Run, _: Event, body: Mapping[str, Any]) -> None:
    failed = ", ".join(str(task_id) for task_id in body.get("failed", []))
    run.notes.append(f"task {failed} failed; the planner looks for an alternative")


def _task_selected(run: Run, event: Event, body: Mapping[str, Any]) -> None:
    task = run.task_of(event)
    task.set_model(body["candidates"][0])
    task.decision = body.get("decision", {})


def _task_waiting(run: Run, event: Event, body: Mapping[str, Any]) -> None:
    task = run.task_of(event)
    task.state, task.note = "waiting", body.get("reason", "")


def _task_started(run: Run, event: Event, body: Mapping[str, Any]) -> None:
    task = run.task_of(event)
    task.state, task.note, task.attempt = "running", "", event.get("attempt", 1)
    task.start_time = task.start_time or _time(event)
    task.set_model(body.get("by", {}))


def _task_progress(run: Run, event: Event, body: Mapping[str, Any]) -> None:
    run.task_of(event).note = " ".join(filter(None, (f"{body.get('fraction', 0):.0%}", body.get("message"))))


def _attempt_failed(run: Run, event: Event, body: Mapping[str, Any]) -> None:
    failure = body.get("failure", {})
    run.task_of(event).note = f"{failure.get('message', 'failed')}, {body.get('next', '')}"


def _task_ended(run: Run, event: Event, body: Mapping[str, Any]) -> None:
    task, result = run.task_of(event), body.get("result", {})
    task.state, task.note = body["state"], ""
    task.outputs, task.error = result.get("outputs", {}), result.get("failure")
    task.set_model(result.get("by", {}))
    if task.start_time:
        task.seconds = round((_time(event) - task.start_time).total_seconds(), 3)


def _answer_chunk(run: Run, _: Event, body: Mapping[str, Any]) -> None:
    run.answer += body.get("text", "")
    if "decision" in body:
        run.decisions["answer"] = body["decision"]


def _taken_over(run: Run, _: Event, __: Mapping[str, Any]) -> None:
    run.notes.append("another orchestrator continues the run")


def _run_ended(run: Run, _: Event, body: Mapping[str, Any]) -> None:
    run.status, run.failure, run.usage = body["state"], body.get("failure"), body.get("usage", {})


_CHANGES = {
    "run_accepted": _run_accepted,
    "plan_note": _plan_note,
    "task_planned": _task_planned,
    "plan_completed": _plan_completed,
    "approval_requested": _approval_requested,
    "plan_approved": _plan_approved,
    "replanning": _replanning,
    "task_selected": _task_selected,
    "task_waiting": _task_waiting,
    "task_started": _task_started,
    "task_progress": _task_progress,
    "attempt_failed": _attempt_failed,
    "task_ended": _task_ended,
    "answer_chunk": _answer_chunk,
    "taken_over": _taken_over,
    "run_ended": _run_ended,
}


def dependencies(arguments: Mapping[str, Any]) -> set[int]:
    """Ids of the tasks whose outputs are arguments of a task."""
    return {argument["task_id"] for argument in _each(arguments.values()) if "task_id" in argument}


def _each(arguments: Any) -> Iterator[Mapping[str, Any]]:
    for argument in arguments:
        if isinstance(argument, list):
            yield from _each(argument)
        elif isinstance(argument, dict):
            yield argument


def _time(event: Event) -> datetime:
    return datetime.fromisoformat(event["time"])


def report(run: Run, saved: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """The JSON output of ask --json."""
    content = {
        "run_id": run.run_id,
        "status": run.status,
        "plan": [
            {
                "id": task.id,
                "task": task.task,
                "args": task.arguments,
                "parameters": task.parameters,
                "model": task.model,
                "revision": task.revision,
                "depends_on": task.depends_on,
            }
            for task in run.tasks.values()
        ],
        "results": [
            {
                "task_id": task.id,
                "task": task.task,
                "model": task.model,
                "expert": task.expert,
                "outputs": task.outputs,
                "error": task.error,
                "seconds": task.seconds,
                "decision": task.decision,
            }
            for task in run.tasks.values()
            if not task.is_active
        ],
        "answer": run.answer,
        "artifacts": list(saved),
        "decisions": run.decisions,
        "usage": run.usage,
    }
    return content if run.failure is None else {**content, "error": run.failure}

"""Waterfall of a run: the times of its steps, from its events; the states are those of the Run object."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from gateway.cli.plan_graph import task_dependencies

if TYPE_CHECKING:
    from gateway.client import Run

Event = Mapping[str, Any]
"""A RunEvent as JSON: one of its keys is the kind of event."""

Body = Mapping[str, Any]

PLAN, REPLAN, APPROVAL, TASK, SELECT, WAIT, ATTEMPT, HANDOVER, ANSWER = (
    "plan",
    "replan",
    "approval",
    "task",
    "select",
    "wait",
    "attempt",
    "handover",
    "answer",
)
"""Kinds of spans."""

SHORTEST_WAIT = 0.005
"""Delay in seconds between ready and started from which a wait span is added."""


@dataclass
class Span:
    """A step with its duration; times are seconds since the run's first event."""

    kind: str
    begin: float
    task_id: int = 0
    """0 for steps of the run."""
    attempt: int = 0
    end: float | None = None
    """None while it is active."""
    what: str = ""
    """Name of the task, for a task."""
    by: str = ""
    """What did the work: a controller, an LLM, or a model and its expert."""
    state: str = ""
    """State of a task or attempt; planned, waiting or running if the task has not ended."""
    note: str = ""
    """Reason of a failure or of waiting."""
    work: float | None = None
    """Seconds of work in the expert; the rest of an attempt is waiting inside the expert, and transport."""
    first: float | None = None
    """Time of the first token of an answer."""


@dataclass
class _Task:
    span: Span
    needs: frozenset[int]
    ready: float
    """Time at which the task was planned and its model chosen."""
    parts: list[Span] = field(default_factory=list)

    def open(self, kind: str) -> Span | None:
        """The active part of a kind."""
        return next((span for span in self.parts if span.kind == kind and span.end is None), None)

    def close(self, now: float, *kinds: str) -> None:
        for span in self.parts:
            if span.kind in kinds and span.end is None:
                span.end = now


class Waterfall:
    """Time spans of a run, updated by every event.

    Args:
        run: the run after the last event.
    """

    def __init__(self, run: "Run") -> None:
        self.run = run
        self.trace_id = ""
        """OpenTelemetry trace id; empty if the run is not traced."""
        self.start_time: datetime | None = None
        self.seconds = 0.0
        """Seconds from the first event to the last."""
        self._task_states = {status.task["id"]: status.state for status in run.tasks}
        self._of_run: list[Span] = []
        self._tasks: dict[int, _Task] = {}

    @classmethod
    def of(cls, run: "Run", events: Iterable[Event]) -> "Waterfall":
        waterfall = cls(run)
        for event in events:
            waterfall.apply(event)
        return waterfall

    @property
    def spans(self) -> Iterator[Span]:
        """Spans in display order: steps before the tasks, each task with its parts, the answer."""
        yield from (span for span in self._of_run if span.kind != ANSWER)
        for task in self._tasks.values():
            yield task.span
            yield from task.parts
        yield from (span for span in self._of_run if span.kind == ANSWER)

    def apply(self, event: Event) -> None:
        """Applies an event; unknown kinds are ignored."""
        time = datetime.fromisoformat(event["time"])
        self.start_time = self.start_time or time
        self.seconds = max(self.seconds, (time - self.start_time).total_seconds())
        for kind, change in _CHANGES.items():
            if kind in event:
                change(self, event, event[kind])

    def begin(self, kind: str, **known: Any) -> None:
        """Starts a span of the run, unless one of this kind is active."""
        if not self.active(kind):
            self._of_run.append(Span(kind, self.seconds, **known))

    def active(self, kind: str) -> Span | None:
        return next((span for span in self._of_run if span.kind == kind and span.end is None), None)

    def end(self, *kinds: str, by: str = "") -> None:
        for kind in kinds:
            if span := self.active(kind):
                span.end, span.by = self.seconds, by

    def plan(self, task: Body) -> None:
        """Adds a planned task and starts its model selection."""
        task_id, needs = task["id"], frozenset(task_dependencies(task.get("arguments", {})))
        span = Span(TASK, self.seconds, task_id, what=task["task"], state=self._task_states.get(task_id, "planned"))
        self._tasks[task_id] = _Task(span, needs, self.seconds, [Span(SELECT, self.seconds, task_id)])

    def clear(self) -> None:
        """Removes all tasks, because another plan replaces them."""
        self._tasks.clear()

    def task(self, event: Event) -> _Task:
        return self._tasks[event["task_id"]]

    def ready(self, task: _Task) -> float:
        """Time at which a task's model was chosen and its dependencies had ended."""
        ends = (self._tasks[need].span.end or 0.0 for need in task.needs if need in self._tasks)
        return max(task.ready, *ends, 0.0)

    def answer_start(self) -> float:
        """Time at which the last step before the answer ended."""
        ends = [span.end or 0.0 for span in self.spans if span.kind in (PLAN, REPLAN, APPROVAL, TASK)]
        return max(ends, default=0.0)

    def end_run(self) -> None:
        """Ends all active spans with the run."""
        for span in self.spans:
            if span.end is None:
                span.end, span.state = self.seconds, "cancelled" if span.kind == TASK else span.state or "cancelled"


def describe_decider(decision: Body) -> str:
    """Describes the component that decided."""
    controller = str(decision.get("controller", ""))
    name = " ".join(filter(None, (controller, decision.get("llm_model", "") if controller == "llm" else "")))
    because = decision.get("fell_back_because")
    return f"{name}: {because}" if because else name


def model(candidate: Body) -> str:
    expert = candidate.get("expert")
    return " on ".join(filter(None, (candidate.get("model_id", ""), expert)))


def _run_accepted(waterfall: Waterfall, _: Event, body: Body) -> None:
    waterfall.trace_id = body.get("trace", {}).get("traceparent", "")[3:35]
    waterfall.begin(PLAN)


def _plan_completed(waterfall: Waterfall, _: Event, body: Body) -> None:
    waterfall.end(PLAN, REPLAN, by=describe_decider(body.get("decision", {})))


def _replanning(waterfall: Waterfall, _: Event, body: Body) -> None:
    failed = ", ".join(map(str, body.get("failed", [])))
    waterfall.begin(REPLAN, note=f"alternative for task {failed}")


def _approval_requested(waterfall: Waterfall, _: Event, __: Body) -> None:
    waterfall.begin(APPROVAL)


def _plan_approved(waterfall: Waterfall, _: Event, body: Body) -> None:
    waterfall.end(APPROVAL)
    if "plan" in body:
        waterfall.clear()
        for task in body["plan"]:
            waterfall.plan(task)


def _task_planned(waterfall: Waterfall, _: Event, body: Body) -> None:
    waterfall.plan(body["task"])


def _task_selected(waterfall: Waterfall, event: Event, body: Body) -> None:
    task = waterfall.task(event)
    if selecting := task.open(SELECT):
        selecting.end = task.ready = waterfall.seconds
        chosen: Body = next(iter(body.get("candidates", [])), {})
        selecting.by, selecting.note = describe_decider(body.get("decision", {})), model(chosen)


def _task_waiting(waterfall: Waterfall, event: Event, body: Body) -> None:
    task = waterfall.task(event)
    task.close(waterfall.seconds, WAIT)
    reason = body.get("reason", "")
    task.parts.append(Span(WAIT, waterfall.seconds, task.span.task_id, by=body.get("expert", ""), note=reason))


def _task_started(waterfall: Waterfall, event: Event, body: Body) -> None:
    task, now = waterfall.task(event), waterfall.seconds
    task.close(now, SELECT, WAIT, ATTEMPT)
    tried = any(span.kind in (WAIT, ATTEMPT) for span in task.parts)
    ready = waterfall.ready(task)
    if not tried and now - ready >= SHORTEST_WAIT:
        task.parts.append(Span(WAIT, ready, task.span.task_id, end=now, note="for capacity"))
    by = model(body.get("by", {}))
    task.parts.append(Span(ATTEMPT, now, task.span.task_id, event.get("attempt", 1), by=by))


def _attempt_failed(waterfall: Waterfall, event: Event, body: Body) -> None:
    task, now, number = waterfall.task(event), waterfall.seconds, event.get("attempt", 0)
    attempt = task.open(ATTEMPT)
    if attempt is None:  # the candidate was skipped without a call
        attempt = Span(ATTEMPT, now, task.span.task_id, number, by=model(body.get("by", {})))
        task.parts.append(attempt)
    failure = body.get("failure", {})
    attempt.end, attempt.state = now, "failed"
    attempt.note = ", then ".join(filter(None, (failure.get("message", ""), body.get("next", "").replace("_", " "))))


def _task_ended(waterfall: Waterfall, event: Event, body: Body) -> None:
    task, now, result = waterfall.task(event), waterfall.seconds, body.get("result", {})
    failure = result.get("failure", {}).get("message", "")
    if attempt := task.open(ATTEMPT):
        attempt.state, attempt.note = body["state"], failure
        attempt.work = result.get("usage", {}).get("busy")
    task.close(now, SELECT, WAIT, ATTEMPT)
    task.span.end, task.span.note = now, failure


def _answer_chunk(waterfall: Waterfall, _: Event, body: Body) -> None:
    waterfall.begin(ANSWER)
    if answer := waterfall.active(ANSWER):
        if answer.first is None:
            answer.begin, answer.first = waterfall.answer_start(), waterfall.seconds
        if "decision" in body:
            waterfall.end(ANSWER, by=describe_decider(body["decision"]))


def _taken_over(waterfall: Waterfall, _: Event, body: Body) -> None:
    for span in waterfall.spans:
        if span.kind in (ATTEMPT, WAIT) and span.end is None:
            span.end, span.state = waterfall.seconds, "lost"
    waterfall.begin(HANDOVER, end=waterfall.seconds, by=body.get("owner", ""), note=body.get("reason", ""))


def _run_ended(waterfall: Waterfall, _: Event, __: Body) -> None:
    waterfall.end_run()


_CHANGES = {
    "run_accepted": _run_accepted,
    "task_planned": _task_planned,
    "plan_completed": _plan_completed,
    "replanning": _replanning,
    "approval_requested": _approval_requested,
    "plan_approved": _plan_approved,
    "task_selected": _task_selected,
    "task_waiting": _task_waiting,
    "task_started": _task_started,
    "attempt_failed": _attempt_failed,
    "task_ended": _task_ended,
    "answer_chunk": _answer_chunk,
    "taken_over": _taken_over,
    "run_ended": _run_ended,
}

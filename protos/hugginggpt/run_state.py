"""Folds the events of a run into its state, and groups run and task states.

The orchestrator and the gateway's OpenAI adapter, MCP progress and run records use this fold. Clients of the JSON API
read the Run object that results from it.
"""

from collections.abc import Iterable, Iterator
from typing import Self

from protos.hugginggpt.v1.event_pb2 import RunEvent
from protos.hugginggpt.v1.failure_pb2 import Failure
from protos.hugginggpt.v1.plan_pb2 import Decision
from protos.hugginggpt.v1.run_pb2 import (
    RUN_STATE_AWAITING_APPROVAL,
    RUN_STATE_CANCELLED,
    RUN_STATE_COMPLETED,
    RUN_STATE_FAILED,
    RUN_STATE_INCOMPLETE,
    RUN_STATE_QUEUED,
    RUN_STATE_RUNNING,
    TASK_STATE_FAILED,
    TASK_STATE_PLANNED,
    TASK_STATE_RUNNING,
    TASK_STATE_WAITING,
    Run,
    TaskResult,
    TaskStatus,
)
from protos.hugginggpt.v1.usage_pb2 import Usage

ENDED_RUN_STATES = frozenset({RUN_STATE_COMPLETED, RUN_STATE_INCOMPLETE, RUN_STATE_FAILED, RUN_STATE_CANCELLED})
"""States of runs, batches and batch items that have ended."""

UNFINISHED_TASK_STATES = frozenset({TASK_STATE_PLANNED, TASK_STATE_WAITING, TASK_STATE_RUNNING})
"""States of tasks that have not ended."""


class RunFold:
    """State of a run, updated event by event with apply().

    Args:
        events: the first events of the run, in order.
        ignore_unplanned: whether to ignore events of tasks that were not planned, instead of raising KeyError. For
            readers that may be older than the orchestrator, whose events they do not all know.
    """

    def __init__(self, events: Iterable[RunEvent] = (), *, ignore_unplanned: bool = False) -> None:
        self._ignore_unplanned = ignore_unplanned
        self.run = Run()
        """The run without its answer, which `answer` and snapshot() have."""
        self.is_planned = False
        """The plan is complete."""
        self.is_approved = False
        """The plan was approved."""
        self.approval_requested_at = 0
        """When approval was requested, in nanoseconds since the epoch."""
        self.abandoned: frozenset[int] = frozenset()
        """Failed tasks that a replanning is to replace; empty if there was none."""
        self.is_replanning = False
        """A replanning was requested and has not ended."""
        self._is_replanned = False
        """The replanning ended with a complete plan."""
        self._last_original_task = 0
        """ID of the last task planned before the replanning."""
        self.decisions: list[Decision] = []
        """Decisions of planner, selector and responder."""
        self.failed_usage: list[Usage] = []
        """Usage of failed attempts that another attempt followed."""
        self.last_errors: dict[int, Failure] = {}
        """Failure of the last failed attempt, by task."""
        self.waiting_reasons: dict[int, str] = {}
        """Why a task last waited for an expert, by task."""
        self._tasks: dict[int, TaskStatus] = {}
        self._answer: list[str] = []
        for event in events:
            self.apply(event)

    def apply(self, event: RunEvent) -> None:
        """Applies the next event; an event of an unknown kind only advances the sequence number.

        Raises:
            KeyError: the event concerns a task that was not planned, and such events are not ignored.
        """
        kind = event.WhichOneof("event")
        is_unplanned = event.task_id and event.task_id not in self._tasks and kind != "task_planned"
        if kind and not (is_unplanned and self._ignore_unplanned):
            getattr(self, f"_{kind}")(event)
        self.run.last_sequence = event.sequence

    @classmethod
    def resume(cls, snapshot: Run) -> Self:
        """A fold that continues after a snapshot.

        Of what is not part of a Run, such as decisions and the approval, it only knows what later events contain.
        """
        fold = cls()
        fold.run.CopyFrom(snapshot)
        fold.run.ClearField("answer")
        fold._answer = [snapshot.answer]
        fold._tasks = {status.task.id: status for status in fold.run.tasks}
        return fold

    def snapshot(self) -> Run:
        """A copy of the state, with the answer so far."""
        run = Run()
        run.CopyFrom(self.run)
        run.answer = self.answer
        return run

    def __contains__(self, task_id: int) -> bool:
        return task_id in self._tasks

    @property
    def last_task(self) -> int:
        """ID of the last planned task, 0 if there is none; IDs only grow."""
        return self.run.tasks[-1].task.id if self.run.tasks else 0

    @property
    def answer(self) -> str:
        """The answer so far."""
        return "".join(self._answer)

    def attempt(self, task_id: int) -> int:
        """Number of the task's last attempt; 0 if there was none."""
        return self._tasks[task_id].result.attempt

    def results(self) -> Iterator[tuple[int, TaskResult]]:
        """Results of the tasks that have ended, by ID."""
        for task_id, status in self._tasks.items():
            if status.state not in UNFINISHED_TASK_STATES:
                yield task_id, status.result

    @property
    def failed(self) -> list[int]:
        """IDs of tasks that have failed; skipped tasks are not included."""
        return [task_id for task_id, status in self._tasks.items() if status.state == TASK_STATE_FAILED]

    @property
    def replaced(self) -> frozenset[int]:
        """IDs of failed tasks that a complete replanning replaced."""
        is_replaced = self._is_replanned and self.last_task > self._last_original_task
        return self.abandoned if is_replaced else frozenset()

    def unfinished(self) -> list[int]:
        """IDs of tasks that have not ended."""
        return [task_id for task_id, status in self._tasks.items() if status.state in UNFINISHED_TASK_STATES]

    def _run_accepted(self, event: RunEvent) -> None:
        accepted = event.run_accepted
        self.run.run_id = event.run_id
        self.run.state = RUN_STATE_QUEUED
        self.run.spec.CopyFrom(accepted.spec)
        self.run.create_time.CopyFrom(event.time)
        self.run.deadline.CopyFrom(accepted.deadline)
        self.run.conversation_id = accepted.conversation_id
        if accepted.HasField("batch"):
            self.run.batch.CopyFrom(accepted.batch)

    def _plan_note(self, event: RunEvent) -> None:
        self.run.state = RUN_STATE_RUNNING
        self.run.notes.append(event.plan_note)

    def _task_planned(self, event: RunEvent) -> None:
        self.run.state = RUN_STATE_RUNNING
        self._tasks[event.task_id] = self.run.tasks.add(task=event.task_planned.task, state=TASK_STATE_PLANNED)

    def _plan_completed(self, event: RunEvent) -> None:
        self.run.state = RUN_STATE_RUNNING
        self.is_planned = True
        decision = event.plan_completed.decision
        self.decisions.append(decision)
        if self.is_replanning:  # a decision without a controller means that the planner's stream ended early
            self.is_replanning, self._is_replanned = False, bool(decision.controller)

    def _approval_requested(self, event: RunEvent) -> None:
        self.run.state = RUN_STATE_AWAITING_APPROVAL
        self.approval_requested_at = event.time.ToNanoseconds()

    def _plan_approved(self, event: RunEvent) -> None:
        approved = event.plan_approved
        self.is_approved = True
        self.run.state = RUN_STATE_RUNNING
        self.run.deadline.CopyFrom(approved.deadline)
        if approved.HasField("plan"):
            del self.run.tasks[:]
            self._tasks = {
                task.id: self.run.tasks.add(task=task, state=TASK_STATE_PLANNED) for task in approved.plan.tasks
            }

    def _replanning(self, event: RunEvent) -> None:
        self.is_replanning = True
        self.abandoned = frozenset(event.replanning.failed)
        self._last_original_task = self.last_task

    def _task_selected(self, event: RunEvent) -> None:
        self._tasks[event.task_id].candidate.CopyFrom(event.task_selected.candidates[0])
        self.decisions.append(event.task_selected.decision)

    def _task_waiting(self, event: RunEvent) -> None:
        self._tasks[event.task_id].state = TASK_STATE_WAITING
        self.waiting_reasons[event.task_id] = event.task_waiting.reason

    def _task_started(self, event: RunEvent) -> None:
        status = self._tasks[event.task_id]
        status.state = TASK_STATE_RUNNING
        status.candidate.CopyFrom(event.task_started.by)
        status.result.ClearField("failure")
        status.result.task_id, status.result.attempt = event.task_id, event.attempt

    def _task_progress(self, event: RunEvent) -> None:
        """Progress is not part of the state."""

    def _attempt_failed(self, event: RunEvent) -> None:
        self.last_errors[event.task_id] = event.attempt_failed.failure
        if event.attempt_failed.HasField("usage"):
            self.failed_usage.append(event.attempt_failed.usage)
        self._tasks[event.task_id].result.failure.CopyFrom(event.attempt_failed.failure)

    def _task_ended(self, event: RunEvent) -> None:
        status = self._tasks[event.task_id]
        status.state = event.task_ended.state
        status.result.CopyFrom(event.task_ended.result)

    def _answer_chunk(self, event: RunEvent) -> None:
        self._answer.append(event.answer_chunk.text)
        if event.answer_chunk.HasField("decision"):
            self.decisions.append(event.answer_chunk.decision)

    def _taken_over(self, event: RunEvent) -> None:
        """The owner is in the journal's row."""

    def _run_ended(self, event: RunEvent) -> None:
        self.run.state = event.run_ended.state
        if event.run_ended.HasField("failure"):
            self.run.failure.CopyFrom(event.run_ended.failure)
        self.run.usage.CopyFrom(event.run_ended.usage)
        self.run.end_time.CopyFrom(event.time)

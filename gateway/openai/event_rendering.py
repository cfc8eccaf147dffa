"""Renders a run's events for OpenAI clients: progress as reasoning, then the answer.

Deterministic: the same events give the same pieces on every gateway at any time.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from gateway.json_encoder import dumps, encode
from gateway.openai import links, output_facts, progress_text
from gateway.openai.request_options import RequestOptions
from gateway.openai.structured_output import UnfillableSchema, fill_schema
from protos.hugginggpt.v1.event_pb2 import RunEvent
from protos.hugginggpt.v1.failure_pb2 import Failure
from protos.hugginggpt.v1.run_pb2 import RUN_STATE_QUEUED, RUN_STATE_RUNNING, Run, TaskStatus


class Kind(Enum):
    """Kind of a piece."""

    REASONING = "thought"
    """Progress; never follows text."""
    TEXT = "words"
    REFUSAL = "refusal"
    """Why the answer does not have the requested format."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of output."""

    kind: Kind
    text: str


class EventRenderer:
    """State of a run and its rendering, updated by all events in order.

    Args:
        site: scheme and host of this gateway, for artifact URLs.
    """

    def __init__(self, site: str) -> None:
        self.site = site
        self.run = Run(state=RUN_STATE_QUEUED)
        """State, spec, answer, failure, usage and times of the run; tasks are separate."""
        self.options = RequestOptions()
        self.tasks: dict[int, TaskStatus] = {}
        self._has_text = False

    def take(self, event: RunEvent) -> list[Piece]:
        """Applies an event; returns the resulting pieces."""
        self._apply(event)
        pieces = [piece for piece in self._pieces(event) if piece.text]
        self._has_text = self._has_text or any(piece.kind is not Kind.REASONING for piece in pieces)
        return pieces

    @property
    def failure(self) -> Failure | None:
        return self.run.failure if self.run.HasField("failure") else None

    def _apply(self, event: RunEvent) -> None:
        match event.WhichOneof("event"):
            case "run_accepted":
                self.run.run_id = event.run_id
                self.run.spec.CopyFrom(event.run_accepted.spec)
                self.run.conversation_id = event.run_accepted.conversation_id
                self.run.create_time.CopyFrom(event.time)
                self.options = RequestOptions.of(self.run.spec)
                return
            case "task_planned":
                self.tasks[event.task_planned.task.id] = TaskStatus(task=event.task_planned.task)
            case "plan_approved" if event.plan_approved.HasField("plan"):
                self.tasks = {task.id: TaskStatus(task=task) for task in event.plan_approved.plan.tasks}
            case "task_ended" if event.task_id in self.tasks:
                self.tasks[event.task_id].state = event.task_ended.state
                self.tasks[event.task_id].result.CopyFrom(event.task_ended.result)
            case "answer_chunk":
                self.run.answer += event.answer_chunk.text
            case "run_ended":
                self._end(event)
                return
        self.run.state = RUN_STATE_RUNNING

    def _end(self, event: RunEvent) -> None:
        self.run.state = event.run_ended.state
        self.run.end_time.CopyFrom(event.time)
        self.run.usage.CopyFrom(event.run_ended.usage)
        if event.run_ended.HasField("failure"):
            self.run.failure.CopyFrom(event.run_ended.failure)

    def _pieces(self, event: RunEvent) -> Iterator[Piece]:
        is_text = self.options.form.get("type") == "text"
        if event.HasField("answer_chunk"):
            if is_text:
                yield Piece(Kind.TEXT, event.answer_chunk.text)
        elif event.HasField("run_ended"):
            yield from self._closing_text() if is_text else self._structured()
        elif not self._has_text:
            yield Piece(Kind.REASONING, progress_text.line(event))

    def _closing_text(self) -> Iterator[Piece]:
        if not self._has_text and self.failure:
            yield Piece(Kind.TEXT, self._failure_text(self.failure))
        attachments = links.markdown(links.output_artifacts(self.tasks.values()), self.site)
        yield Piece(Kind.TEXT, attachments.removeprefix("\n") if self.run.answer.endswith("\n") else attachments)

    def _structured(self) -> Iterator[Piece]:
        if self.options.form.get("type") == "json_object":
            yield Piece(Kind.TEXT, dumps(self._all_results()).decode())
            return
        try:
            facts = output_facts.collect_facts(self.tasks.values(), self.run.answer, self.site)
            content = fill_schema(self.options.form.get("schema", {}), facts)
        except UnfillableSchema as error:
            failure_text = f" {self._failure_text(self.failure)}" if self.failure else ""
            yield Piece(Kind.REFUSAL, f"{error}{failure_text}")
            return
        yield Piece(Kind.TEXT, dumps(content).decode())

    def _all_results(self) -> dict[str, object]:
        results = [
            {"task": each.task.task, "outputs": encode(each.result).get("outputs", {})} for each in self.tasks.values()
        ]
        failure_text = {"problem": self._failure_text(self.failure)} if self.failure else {}
        return {"answer": self.run.answer, "results": results, **failure_text}

    @staticmethod
    def _failure_text(failure: Failure) -> str:
        return ". ".join(part[:1].upper() + part[1:] for part in (failure.message, failure.remedy) if part)

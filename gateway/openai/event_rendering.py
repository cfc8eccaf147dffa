"""A run's events as what a client is told: thoughts while it works, then words.

Pure: the same events give the same pieces, whoever reads them, at whatever time.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from gateway.json_encoder import dumps, encode
from gateway.openai import links, output_facts, progress_text
from gateway.openai.request_options import Terms
from gateway.openai.structured_output import Unfillable, filled
from protos.hugginggpt.v1.event_pb2 import RunEvent
from protos.hugginggpt.v1.failure_pb2 import Failure
from protos.hugginggpt.v1.run_pb2 import RUN_STATE_QUEUED, RUN_STATE_RUNNING, Run, TaskStatus


class Kind(Enum):
    """What a piece is."""

    THOUGHT = "thought"
    """How the work goes; none follows the first words."""
    WORDS = "words"
    REFUSAL = "refusal"
    """Why there is no answer in the form that was asked for."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of what is told."""

    kind: Kind
    text: str


class Telling:
    """Takes a run's events, all and in order.

    Args:
        site: scheme and host under which artifacts are fetched.
    """

    def __init__(self, site: str) -> None:
        self.site = site
        self.run = Run(state=RUN_STATE_QUEUED)
        """As it stands: state, spec, answer, failure, usage and times; tasks are apart."""
        self.terms = Terms()
        self.tasks: dict[int, TaskStatus] = {}
        self._spoken = False

    def take(self, event: RunEvent) -> list[Piece]:
        """What an event adds."""
        self._note(event)
        pieces = [piece for piece in self._pieces(event) if piece.text]
        self._spoken = self._spoken or any(piece.kind is not Kind.THOUGHT for piece in pieces)
        return pieces

    @property
    def failure(self) -> Failure | None:
        return self.run.failure if self.run.HasField("failure") else None

    def _note(self, event: RunEvent) -> None:
        match event.WhichOneof("event"):
            case "run_accepted":
                self.run.run_id = event.run_id
                self.run.spec.CopyFrom(event.run_accepted.spec)
                self.run.conversation_id = event.run_accepted.conversation_id
                self.run.create_time.CopyFrom(event.time)
                self.terms = Terms.of(self.run.spec)
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
        free = self.terms.form.get("type") == "text"
        if event.HasField("answer_chunk"):
            if free:
                yield Piece(Kind.WORDS, event.answer_chunk.text)
        elif event.HasField("run_ended"):
            yield from self._last_words() if free else self._structured()
        elif not self._spoken:
            yield Piece(Kind.THOUGHT, progress_text.line(event))

    def _last_words(self) -> Iterator[Piece]:
        if not self._spoken and self.failure:
            yield Piece(Kind.WORDS, self._trouble(self.failure))
        shown = links.markdown(links.made(self.tasks.values()), self.site)
        yield Piece(Kind.WORDS, shown.removeprefix("\n") if self.run.answer.endswith("\n") else shown)

    def _structured(self) -> Iterator[Piece]:
        if self.terms.form.get("type") == "json_object":
            yield Piece(Kind.WORDS, dumps(self._everything()).decode())
            return
        try:
            given = output_facts.known(self.tasks.values(), self.run.answer, self.site)
            content = filled(self.terms.form.get("schema", {}), given)
        except Unfillable as error:
            trouble = f" {self._trouble(self.failure)}" if self.failure else ""
            yield Piece(Kind.REFUSAL, f"{error}{trouble}")
            return
        yield Piece(Kind.WORDS, dumps(content).decode())

    def _everything(self) -> dict[str, object]:
        results = [
            {"task": each.task.task, "outputs": encode(each.result).get("outputs", {})} for each in self.tasks.values()
        ]
        trouble = {"problem": self._trouble(self.failure)} if self.failure else {}
        return {"answer": self.run.answer, "results": results, **trouble}

    @staticmethod
    def _trouble(failure: Failure) -> str:
        return ". ".join(part[:1].upper() + part[1:] for part in (failure.message, failure.remedy) if part)

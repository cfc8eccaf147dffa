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
from protos.hugginggpt.run_state import RunFold
from protos.hugginggpt.v1.event_pb2 import RunEvent
from protos.hugginggpt.v1.failure_pb2 import Failure
from protos.hugginggpt.v1.run_pb2 import Run


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
        self.options = RequestOptions()
        self._fold = RunFold(ignore_unplanned=True)
        self._has_text = False

    def take(self, event: RunEvent) -> list[Piece]:
        """Applies an event; returns the resulting pieces."""
        self._fold.apply(event)
        if event.HasField("run_accepted"):
            self.options = RequestOptions.of(self.run.spec)
        pieces = [piece for piece in self._pieces(event) if piece.text]
        self._has_text = self._has_text or any(piece.kind is not Kind.REASONING for piece in pieces)
        return pieces

    @property
    def run(self) -> Run:
        """The run without its answer."""
        return self._fold.run

    @property
    def failure(self) -> Failure | None:
        return self.run.failure if self.run.HasField("failure") else None

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
        attachments = links.markdown(links.output_artifacts(self.run.tasks), self.site)
        yield Piece(Kind.TEXT, attachments.removeprefix("\n") if self._fold.answer.endswith("\n") else attachments)

    def _structured(self) -> Iterator[Piece]:
        if self.options.form.get("type") == "json_object":
            yield Piece(Kind.TEXT, dumps(self._all_results()).decode())
            return
        try:
            facts = output_facts.collect_facts(self.run.tasks, self._fold.answer, self.site)
            content = fill_schema(self.options.form.get("schema", {}), facts)
        except UnfillableSchema as error:
            failure_text = f" {self._failure_text(self.failure)}" if self.failure else ""
            yield Piece(Kind.REFUSAL, f"{error}{failure_text}")
            return
        yield Piece(Kind.TEXT, dumps(content).decode())

    def _all_results(self) -> dict[str, object]:
        results = [
            {"task": each.task.task, "outputs": encode(each.result).get("outputs", {})} for each in self.run.tasks
        ]
        failure_text = {"problem": self._failure_text(self.failure)} if self.failure else {}
        return {"answer": self._fold.answer, "results": results, **failure_text}

    @staticmethod
    def _failure_text(failure: Failure) -> str:
        return ". ".join(part[:1].upper() + part[1:] for part in (failure.message, failure.remedy) if part)

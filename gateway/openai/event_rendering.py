"""Renders run events as reasoning and answer text of OpenAI objects, whose ids are run ids with another prefix."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from gateway.core import artifact_links, progress_text
from gateway.json_encoder import dumps, encode, enum_names
from gateway.openai.request_options import RequestOptions
from protos.hugginggpt.run_state import RunFold
from protos.hugginggpt.v1.event_pb2 import RunEvent
from protos.hugginggpt.v1.failure_pb2 import Failure
from protos.hugginggpt.v1.run_pb2 import Run, RunState

_RUN = "run_"
RESPONSE, COMPLETION, MESSAGE, REASONING = "resp_", "chatcmpl-", "msg_", "rs_"


def object_id(prefix: str, run_id: str) -> str:
    """Returns the id of a run's response, completion or item."""
    return prefix + run_id.removeprefix(_RUN)


def run_id_of(response_id: str) -> str:
    """Returns the run id of a response."""
    return _RUN + response_id.removeprefix(RESPONSE)


_NO_JSON = "The run has no answer of the JSON schema"
"""Refusal for a run without a failure, such as one of an earlier release."""

TRUNCATION_REASONS = frozenset({"BUDGET", "DEADLINE"})
"""Failure reasons that truncate an answer."""


class Kind(Enum):
    """Kind of a piece."""

    REASONING = "thought"
    """Progress; never follows text."""
    TEXT = "words"
    REFUSAL = "refusal"
    """Why there is no answer of the requested JSON schema."""


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
        form = self.options.form.get("type")
        if event.HasField("answer_chunk"):
            if form == "text" or self.run.spec.answer_options.json_schema:
                yield Piece(Kind.TEXT, event.answer_chunk.text)
        elif event.HasField("run_ended"):
            yield from self._closing_text() if form == "text" else self._closing_json()
        elif not self._has_text:
            yield Piece(Kind.REASONING, progress_text.line(event))

    def _closing_text(self) -> Iterator[Piece]:
        if not self._has_text and self.failure:
            yield Piece(Kind.TEXT, self._failure_text(self.failure))
        attachments = artifact_links.markdown(artifact_links.output_artifacts(self.run.tasks), self.site)
        yield Piece(Kind.TEXT, attachments.removeprefix("\n") if self._fold.answer.endswith("\n") else attachments)

    def _closing_json(self) -> Iterator[Piece]:
        if self.options.form.get("type") == "json_object":
            yield Piece(Kind.TEXT, dumps(self._all_results()).decode())
        elif not self._has_text:
            yield Piece(Kind.REFUSAL, self._failure_text(self.failure) if self.failure else _NO_JSON)

    def _all_results(self) -> dict[str, object]:
        results = [
            {"task": each.task.task, "outputs": encode(each.result).get("outputs", {})} for each in self.run.tasks
        ]
        failure_text = {"problem": self._failure_text(self.failure)} if self.failure else {}
        return {"answer": self._fold.answer, "results": results, **failure_text}

    @staticmethod
    def _failure_text(failure: Failure) -> str:
        return ". ".join(part[:1].upper() + part[1:] for part in (failure.message, failure.remedy) if part)


FIELD = "hugginggpt"

_STATES = enum_names(RunState.DESCRIPTOR)


def extension_fields(renderer: EventRenderer) -> dict[str, Any]:
    """Id, state, artifacts and failure of the run of a completion or response."""
    run = renderer.run
    artifacts = [
        {**encode(artifact), "url": artifact_links.artifact_url(artifact, renderer.site)}
        for artifact in artifact_links.output_artifacts(run.tasks)
    ]
    failure = {"failure": encode(run.failure)} if renderer.failure else {}
    return {
        "run_id": run.run_id,
        "conversation_id": run.conversation_id,
        "state": _STATES.get(run.state, "queued"),
        "artifacts": artifacts,
        **failure,
    }

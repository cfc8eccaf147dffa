"""A run as a response: its object, and the typed events whose sequence_number is their position here.

Pure: any gateway makes the same events of the same run, so a client resumes anywhere. A change that would number
events otherwise is a new version: runs keep the one they were accepted with.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from gateway.openai.chat_completion import CUT
from gateway.openai.event_rendering import Kind, Piece, Telling
from gateway.openai.extension_field import FIELD, extras
from gateway.openai.ids import MESSAGE, REASONING, RESPONSE, named
from gateway.openai.request_options import Terms
from protos.hugginggpt.v1.event_pb2 import RunEvent
from protos.hugginggpt.v1.run_pb2 import (
    RUN_STATE_AWAITING_APPROVAL,
    RUN_STATE_CANCELLED,
    RUN_STATE_COMPLETED,
    RUN_STATE_FAILED,
    RUN_STATE_INCOMPLETE,
    RUN_STATE_QUEUED,
    RUN_STATE_RUNNING,
    RunSpec,
    RunState,
)

Event = dict[str, Any]

_STATUS: "Mapping[RunState.ValueType, str]" = {
    RUN_STATE_QUEUED: "queued",
    RUN_STATE_RUNNING: "in_progress",
    RUN_STATE_AWAITING_APPROVAL: "in_progress",
    RUN_STATE_COMPLETED: "completed",
    RUN_STATE_INCOMPLETE: "incomplete",
    RUN_STATE_FAILED: "failed",
    RUN_STATE_CANCELLED: "cancelled",
}

_LAST = {"completed": "response.completed", "failed": "response.failed"}
"""The event a response ends with; all others end with response.incomplete, which clients know."""

_ERROR_CODES = {"INVALID_ARGUMENT": "invalid_prompt", "RESOURCE_EXHAUSTED": "rate_limit_exceeded"}
_MOST_METADATA = 16


class Projection:
    """Takes a run's events, all and in order.

    Args:
        site: scheme and host under which artifacts are fetched.
    """

    def __init__(self, site: str) -> None:
        self._telling = Telling(site)
        self._output: list[dict[str, Any]] = []
        self._number = 0
        self._begun = False

    def take(self, event: RunEvent) -> list[Event]:
        """The events that follow from one of the run's, numbered on from those before."""
        pieces = self._telling.take(event)
        told = list(self._told(event, pieces))
        for each in told:
            each["sequence_number"] = self._number
            self._number += 1
        return told

    def response(self) -> dict[str, Any]:
        """The response as it stands."""
        telling, run = self._telling, self._telling.run
        terms, parent = telling.terms, run.spec.parent_run_id
        return {
            "id": named(RESPONSE, run.run_id),
            "object": "response",
            "created_at": run.create_time.seconds,
            "conversation": {"id": run.conversation_id} if run.conversation_id else None,
            "completed_at": run.end_time.seconds if run.HasField("end_time") else None,
            "status": self._status,
            "background": terms.background,
            "error": self._error(),
            "incomplete_details": self._incomplete(),
            "instructions": run.spec.history[0].text if terms.instructed and run.spec.history else None,
            "max_output_tokens": None,
            "metadata": dict(list(terms.metadata.items())[:_MOST_METADATA]),
            "model": terms.model,
            "output": [_copy(item) for item in self._output],
            "parallel_tool_calls": True,
            "previous_response_id": named(RESPONSE, parent) if parent else None,
            "reasoning": {"effort": None, "summary": None},
            "store": terms.store,
            "temperature": None,
            "text": {"format": dict(terms.form)},
            "tool_choice": "none",
            "tools": [],
            "top_p": None,
            "truncation": "disabled",
            "usage": self._usage(),
            "user": None,
            FIELD: extras(telling),
        }

    @property
    def _status(self) -> str:
        queued = self._telling.run.state == RUN_STATE_QUEUED and not self._telling.terms.background
        return "in_progress" if queued else _STATUS[self._telling.run.state]

    def _told(self, event: RunEvent, pieces: list[Piece]) -> Iterator[Event]:
        if event.HasField("run_accepted"):
            yield self._of_response("response.created")
            if self._telling.terms.background:
                yield self._of_response("response.queued")
            return
        if not self._begun and not event.HasField("run_ended"):
            self._begun = True
            yield self._of_response("response.in_progress")
        for piece in pieces:
            yield from self._piece(piece)
        if event.HasField("run_ended"):
            yield from self._closed()
            yield self._of_response(_LAST.get(self._status, "response.incomplete"))

    def _piece(self, piece: Piece) -> Iterator[Event]:
        if piece.kind is Kind.THOUGHT:
            if not self._output:
                yield from self._opened(_reasoning(self._telling.run.run_id))
            self._output[-1]["summary"][0]["text"] += piece.text
            yield self._of_part("response.reasoning_summary_text.delta", delta=piece.text)
            return
        if not self._output or self._output[-1]["type"] != "message":
            yield from self._closed()
            yield from self._opened(_message(self._telling.run.run_id, piece.kind))
        (part,) = self._output[-1]["content"]
        key = _text_key(part)
        part[key] += piece.text
        more: dict[str, Any] = {"logprobs": []} if key == "text" else {}
        yield self._of_part(f"response.{part['type']}.delta", delta=piece.text, **more)

    def _opened(self, item: dict[str, Any]) -> Iterator[Event]:
        key = "summary" if item["type"] == "reasoning" else "content"
        bare, parts = {**item, key: []}, item[key]
        self._output.append(item)
        yield self._of_item("response.output_item.added", bare)
        yield self._of_part(f"response.{_part_name(item)}.added", part=dict(parts[0]))

    def _closed(self) -> Iterator[Event]:
        """Ends the item that is open, if one is."""
        if not self._output or self._output[-1]["status"] != "in_progress":
            return
        item = self._output[-1]
        whole = item["type"] == "reasoning" or self._telling.run.state == RUN_STATE_COMPLETED
        item["status"] = "completed" if whole else "incomplete"
        part = item["summary" if item["type"] == "reasoning" else "content"][0]
        key = _text_key(part)
        kind = "reasoning_summary_text" if item["type"] == "reasoning" else part["type"]
        more: dict[str, Any] = {"logprobs": []} if kind == "output_text" else {}
        yield self._of_part(f"response.{kind}.done", **{key: part[key]}, **more)
        yield self._of_part(f"response.{_part_name(item)}.done", part=dict(part))
        yield self._of_item("response.output_item.done", _copy(item))

    def _of_response(self, kind: str) -> Event:
        return {"type": kind, "sequence_number": 0, "response": self.response()}

    def _of_item(self, kind: str, item: dict[str, Any]) -> Event:
        return {"type": kind, "sequence_number": 0, "output_index": len(self._output) - 1, "item": item}

    def _of_part(self, kind: str, **fields: Any) -> Event:
        item = self._output[-1]
        index = "summary_index" if item["type"] == "reasoning" else "content_index"
        place = {"item_id": item["id"], "output_index": len(self._output) - 1, index: 0}
        return {"type": kind, "sequence_number": 0, **place, **fields}

    def _error(self) -> dict[str, str] | None:
        if self._status != "failed":
            return None
        failure = self._telling.run.failure
        told = ". ".join(part for part in (failure.message, failure.remedy) if part)
        return {"code": _ERROR_CODES.get(failure.code, "server_error"), "message": told}

    def _incomplete(self) -> dict[str, str | None] | None:
        """OpenAI knows few reasons; ours stands among the extras."""
        if self._status != "incomplete":
            return None
        return {"reason": "max_output_tokens" if self._telling.run.failure.reason in CUT else None}

    def _usage(self) -> dict[str, Any] | None:
        run = self._telling.run
        if not run.HasField("end_time"):
            return None
        return {
            "input_tokens": run.usage.input_tokens,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": run.usage.output_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": run.usage.input_tokens + run.usage.output_tokens,
        }


VERSIONS: Mapping[int, type[Projection]] = {1: Projection}


def projection(spec: RunSpec, site: str) -> Projection:
    """The projection of a run, in the version it was accepted with."""
    return VERSIONS.get(Terms.of(spec).projection, Projection)(site)


def _reasoning(run_id: str) -> dict[str, Any]:
    summary = [{"type": "summary_text", "text": ""}]
    return {"id": named(REASONING, run_id), "type": "reasoning", "status": "in_progress", "summary": summary}


def _message(run_id: str, kind: Kind) -> dict[str, Any]:
    refused = {"type": "refusal", "refusal": ""}
    words = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
    part = refused if kind is Kind.REFUSAL else words
    head = {"id": named(MESSAGE, run_id), "type": "message", "status": "in_progress", "role": "assistant"}
    return {**head, "content": [part]}


def _part_name(item: Mapping[str, Any]) -> str:
    return "reasoning_summary_part" if item["type"] == "reasoning" else "content_part"


def _text_key(part: Mapping[str, Any]) -> str:
    return "refusal" if part["type"] == "refusal" else "text"


def _copy(item: Mapping[str, Any]) -> dict[str, Any]:
    """An item as it is now: its parts grow."""
    parts = {key: [dict(part) for part in item[key]] for key in ("summary", "content") if key in item}
    return {**item, **parts}

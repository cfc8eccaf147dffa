"""Projects a run to a response: its object, and typed events numbered by sequence_number.

Deterministic: every gateway produces the same events for a run, so a client can resume at any of them. A change of the
numbering needs a new version; runs keep the version that they were accepted with.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from google.rpc import code_pb2

from gateway.openai.event_rendering import (
    FIELD,
    MESSAGE,
    REASONING,
    RESPONSE,
    TRUNCATION_REASONS,
    EventRenderer,
    Kind,
    Piece,
    extension_fields,
    object_id,
)
from gateway.openai.request_options import RequestOptions
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
    RUN_STATE_RUNNING: "in_progress",
    RUN_STATE_AWAITING_APPROVAL: "in_progress",
    RUN_STATE_COMPLETED: "completed",
    RUN_STATE_INCOMPLETE: "incomplete",
    RUN_STATE_FAILED: "failed",
    RUN_STATE_CANCELLED: "cancelled",
}

_END_EVENTS = {"completed": "response.completed", "failed": "response.failed"}
"""Last event of a response by status; other states use response.incomplete."""

_ERROR_CODES = {
    code_pb2.INVALID_ARGUMENT: "invalid_prompt",
    code_pb2.RESOURCE_EXHAUSTED: "rate_limit_exceeded",
}
_MAX_METADATA = 16


class Projection:
    """A response, updated by all events of a run in order.

    Args:
        site: scheme and host of this gateway, for artifact URLs.
    """

    def __init__(self, site: str) -> None:
        self._renderer = EventRenderer(site)
        self._output: list[dict[str, Any]] = []
        self._number = 0
        self._is_started = False

    def take(self, event: RunEvent) -> list[Event]:
        """Applies an event; returns the resulting response events with consecutive numbers."""
        pieces = self._renderer.take(event)
        projected = list(self._events(event, pieces))
        for each in projected:
            each["sequence_number"] = self._number
            self._number += 1
        return projected

    def response(self) -> dict[str, Any]:
        """The present state of the response."""
        renderer, run = self._renderer, self._renderer.run
        options, parent = renderer.options, run.spec.parent_run_id
        return {
            "id": object_id(RESPONSE, run.run_id),
            "object": "response",
            "created_at": run.create_time.seconds,
            "conversation": {"id": run.conversation_id} if run.conversation_id else None,
            "completed_at": run.end_time.seconds if run.HasField("end_time") else None,
            "status": self._status,
            "background": options.background,
            "error": self._error(),
            "incomplete_details": self._incomplete(),
            "instructions": run.spec.history[0].text if options.instructed and run.spec.history else None,
            "max_output_tokens": None,
            "metadata": dict(list(options.metadata.items())[:_MAX_METADATA]),
            "model": options.model,
            "output": [_copy(item) for item in self._output],
            "parallel_tool_calls": True,
            "previous_response_id": object_id(RESPONSE, parent) if parent else None,
            "reasoning": {"effort": None, "summary": None},
            "store": options.store,
            "temperature": None,
            "text": {"format": dict(options.form)},
            "tool_choice": "none",
            "tools": [],
            "top_p": None,
            "truncation": "disabled",
            "usage": self._usage(),
            "user": None,
            FIELD: extension_fields(renderer),
        }

    @property
    def _status(self) -> str:
        if self._renderer.run.state == RUN_STATE_QUEUED:  # a run taken over before planning stays queued
            return "queued" if self._renderer.options.background and not self._is_started else "in_progress"
        return _STATUS[self._renderer.run.state]

    def _events(self, event: RunEvent, pieces: list[Piece]) -> Iterator[Event]:
        if event.HasField("run_accepted"):
            yield self._response_event("response.created")
            if self._renderer.options.background:
                yield self._response_event("response.queued")
            return
        if not self._is_started and not event.HasField("run_ended"):
            self._is_started = True
            yield self._response_event("response.in_progress")
        for piece in pieces:
            yield from self._piece(piece)
        if event.HasField("run_ended"):
            yield from self._close_item()
            yield self._response_event(_END_EVENTS.get(self._status, "response.incomplete"))

    def _piece(self, piece: Piece) -> Iterator[Event]:
        if piece.kind is Kind.REASONING:
            if not self._output:
                yield from self._open_item(_reasoning(self._renderer.run.run_id))
            self._output[-1]["summary"][0]["text"] += piece.text
            yield self._part_event("response.reasoning_summary_text.delta", delta=piece.text)
            return
        if not self._output or self._output[-1]["type"] != "message":
            yield from self._close_item()
            yield from self._open_item(_message(self._renderer.run.run_id, piece.kind))
        (part,) = self._output[-1]["content"]
        key = _text_key(part)
        part[key] += piece.text
        more: dict[str, Any] = {"logprobs": []} if key == "text" else {}
        yield self._part_event(f"response.{part['type']}.delta", delta=piece.text, **more)

    def _open_item(self, item: dict[str, Any]) -> Iterator[Event]:
        key = "summary" if item["type"] == "reasoning" else "content"
        empty, parts = {**item, key: []}, item[key]
        self._output.append(item)
        yield self._item_event("response.output_item.added", empty)
        yield self._part_event(f"response.{_part_name(item)}.added", part=dict(parts[0]))

    def _close_item(self) -> Iterator[Event]:
        """Ends the open item, if any."""
        if not self._output or self._output[-1]["status"] != "in_progress":
            return
        item = self._output[-1]
        is_complete = item["type"] == "reasoning" or self._renderer.run.state == RUN_STATE_COMPLETED
        item["status"] = "completed" if is_complete else "incomplete"
        part = item["summary" if item["type"] == "reasoning" else "content"][0]
        key = _text_key(part)
        kind = "reasoning_summary_text" if item["type"] == "reasoning" else part["type"]
        more: dict[str, Any] = {"logprobs": []} if kind == "output_text" else {}
        yield self._part_event(f"response.{kind}.done", **{key: part[key]}, **more)
        yield self._part_event(f"response.{_part_name(item)}.done", part=dict(part))
        yield self._item_event("response.output_item.done", _copy(item))

    def _response_event(self, kind: str) -> Event:
        return {"type": kind, "sequence_number": 0, "response": self.response()}

    def _item_event(self, kind: str, item: dict[str, Any]) -> Event:
        return {"type": kind, "sequence_number": 0, "output_index": len(self._output) - 1, "item": item}

    def _part_event(self, kind: str, **fields: Any) -> Event:
        item = self._output[-1]
        index = "summary_index" if item["type"] == "reasoning" else "content_index"
        position = {"item_id": item["id"], "output_index": len(self._output) - 1, index: 0}
        return {"type": kind, "sequence_number": 0, **position, **fields}

    def _error(self) -> dict[str, str] | None:
        if self._status != "failed":
            return None
        failure = self._renderer.run.failure
        message = ". ".join(part for part in (failure.message, failure.remedy) if part)
        return {"code": _ERROR_CODES.get(failure.code, "server_error"), "message": message}

    def _incomplete(self) -> dict[str, str | None] | None:
        """The closest reason of OpenAI's API; the exact one is in the extension field."""
        if self._status != "incomplete":
            return None
        return {"reason": "max_output_tokens" if self._renderer.run.failure.reason in TRUNCATION_REASONS else None}

    def _usage(self) -> dict[str, Any] | None:
        run = self._renderer.run
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
    """Creates the projection of a run in the version that the run was accepted with."""
    return VERSIONS.get(RequestOptions.of(spec).projection, Projection)(site)


def _reasoning(run_id: str) -> dict[str, Any]:
    summary = [{"type": "summary_text", "text": ""}]
    return {"id": object_id(REASONING, run_id), "type": "reasoning", "status": "in_progress", "summary": summary}


def _message(run_id: str, kind: Kind) -> dict[str, Any]:
    refused = {"type": "refusal", "refusal": ""}
    text = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
    part = refused if kind is Kind.REFUSAL else text
    head = {"id": object_id(MESSAGE, run_id), "type": "message", "status": "in_progress", "role": "assistant"}
    return {**head, "content": [part]}


def _part_name(item: Mapping[str, Any]) -> str:
    return "reasoning_summary_part" if item["type"] == "reasoning" else "content_part"


def _text_key(part: Mapping[str, Any]) -> str:
    return "refusal" if part["type"] == "refusal" else "text"


def _copy(item: Mapping[str, Any]) -> dict[str, Any]:
    """Copies an item, whose parts still grow."""
    parts = {key: [dict(part) for part in item[key]] for key in ("summary", "content") if key in item}
    return {**item, **parts}

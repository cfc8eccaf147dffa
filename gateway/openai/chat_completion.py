"""Projects a run to a chat completion: one object, or chunks."""

from collections.abc import Iterator
from typing import Any

from gateway.openai.event_rendering import EventRenderer, Kind, Piece
from gateway.openai.extension_field import FIELD, extension_fields
from gateway.openai.ids import COMPLETION, object_id
from protos.hugginggpt.v1.event_pb2 import RunEvent

TRUNCATION_REASONS = frozenset({"BUDGET", "DEADLINE"})
"""Failure reasons that truncate an answer."""

_KEYS = {Kind.REASONING: "reasoning_content", Kind.TEXT: "content", Kind.REFUSAL: "refusal"}
"""Message keys of the pieces; progress is reported as reasoning."""


class Completion:
    """A chat completion, updated by all events of a run in order.

    Args:
        site: scheme and host of this gateway, for artifact URLs.
        usage: whether the last chunk reports the LLM tokens of the run.
    """

    def __init__(self, site: str, *, usage: bool = False) -> None:
        self._renderer = EventRenderer(site)
        self._usage = usage
        self._texts: dict[Kind, list[str]] = {kind: [] for kind in Kind}

    def take(self, event: RunEvent) -> list[dict[str, Any]]:
        """Applies an event; returns the resulting chunks."""
        pieces = self._renderer.take(event)
        for piece in pieces:
            self._texts[piece.kind].append(piece.text)
        return list(self._chunks(event, pieces))

    def completion(self) -> dict[str, Any]:
        """The complete object."""
        texts = {kind: "".join(pieces) or None for kind, pieces in self._texts.items()}
        refusal, reasoning = texts[Kind.REFUSAL], texts[Kind.REASONING]
        content = None if refusal else texts[Kind.TEXT] or ""
        message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": refusal, "annotations": []}
        choice = {
            "index": 0,
            "message": {**message, **({"reasoning_content": reasoning} if reasoning else {})},
            "finish_reason": self._finish_reason(),
            "logprobs": None,
        }
        return {
            **self._head("chat.completion"),
            "choices": [choice],
            "usage": self._usage_object(),
            FIELD: extension_fields(self._renderer),
        }

    def _chunks(self, event: RunEvent, pieces: list[Piece]) -> Iterator[dict[str, Any]]:
        if event.HasField("run_accepted"):
            yield self._chunk({"role": "assistant", "content": "", "refusal": None})
        for piece in pieces:
            yield self._chunk({_KEYS[piece.kind]: piece.text})
        if event.HasField("run_ended"):
            yield {**self._chunk({}, self._finish_reason()), FIELD: extension_fields(self._renderer)}
            if self._usage:
                yield {**self._head("chat.completion.chunk"), "choices": [], "usage": self._usage_object()}

    def _chunk(self, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        unused = {"usage": None} if self._usage else {}
        return {**self._head("chat.completion.chunk"), "choices": [choice], **unused}

    def _head(self, kind: str) -> dict[str, Any]:
        run = self._renderer.run
        return {
            "id": object_id(COMPLETION, run.run_id),
            "object": kind,
            "created": run.create_time.seconds,
            "model": self._renderer.options.model,
            "service_tier": None,
            "system_fingerprint": None,
        }

    def _finish_reason(self) -> str:
        return "length" if self._renderer.run.failure.reason in TRUNCATION_REASONS else "stop"

    def _usage_object(self) -> dict[str, Any]:
        usage = self._renderer.run.usage
        return {
            "prompt_tokens": usage.input_tokens,
            "completion_tokens": usage.output_tokens,
            "total_tokens": usage.input_tokens + usage.output_tokens,
        }

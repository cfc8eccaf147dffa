"""A run as a chat completion: whole, or in chunks."""

from collections.abc import Iterator
from typing import Any

from gateway.openai.event_rendering import Kind, Piece, Telling
from gateway.openai.extension_field import FIELD, extras
from gateway.openai.ids import COMPLETION, named
from protos.hugginggpt.v1.event_pb2 import RunEvent

CUT = frozenset({"BUDGET", "DEADLINE"})
"""Reasons for which an answer ends before all is said."""

_KEYS = {Kind.THOUGHT: "reasoning_content", Kind.WORDS: "content", Kind.REFUSAL: "refusal"}
"""Where front ends look for a piece; how the work goes is shown as reasoning."""


class Completion:
    """Takes a run's events, all and in order.

    Args:
        site: scheme and host under which artifacts are fetched.
        usage: the chunks end with what the run's LLMs took.
    """

    def __init__(self, site: str, *, usage: bool = False) -> None:
        self._telling = Telling(site)
        self._usage = usage
        self._texts: dict[Kind, list[str]] = {kind: [] for kind in Kind}

    def take(self, event: RunEvent) -> list[dict[str, Any]]:
        """The chunks an event adds."""
        pieces = self._telling.take(event)
        for piece in pieces:
            self._texts[piece.kind].append(piece.text)
        return list(self._chunks(event, pieces))

    def whole(self) -> dict[str, Any]:
        """All that was told."""
        texts = {kind: "".join(pieces) or None for kind, pieces in self._texts.items()}
        refusal, thoughts = texts[Kind.REFUSAL], texts[Kind.THOUGHT]
        content = None if refusal else texts[Kind.WORDS] or ""
        message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": refusal, "annotations": []}
        choice = {
            "index": 0,
            "message": {**message, **({"reasoning_content": thoughts} if thoughts else {})},
            "finish_reason": self._finish(),
            "logprobs": None,
        }
        return {
            **self._head("chat.completion"),
            "choices": [choice],
            "usage": self._used(),
            FIELD: extras(self._telling),
        }

    def _chunks(self, event: RunEvent, pieces: list[Piece]) -> Iterator[dict[str, Any]]:
        if event.HasField("run_accepted"):
            yield self._chunk({"role": "assistant", "content": "", "refusal": None})
        for piece in pieces:
            yield self._chunk({_KEYS[piece.kind]: piece.text})
        if event.HasField("run_ended"):
            yield {**self._chunk({}, self._finish()), FIELD: extras(self._telling)}
            if self._usage:
                yield {**self._head("chat.completion.chunk"), "choices": [], "usage": self._used()}

    def _chunk(self, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        unused = {"usage": None} if self._usage else {}
        return {**self._head("chat.completion.chunk"), "choices": [choice], **unused}

    def _head(self, kind: str) -> dict[str, Any]:
        run = self._telling.run
        return {
            "id": named(COMPLETION, run.run_id),
            "object": kind,
            "created": run.create_time.seconds,
            "model": self._telling.terms.model,
            "service_tier": None,
            "system_fingerprint": None,
        }

    def _finish(self) -> str:
        return "length" if self._telling.run.failure.reason in CUT else "stop"

    def _used(self) -> dict[str, Any]:
        usage = self._telling.run.usage
        return {
            "prompt_tokens": usage.input_tokens,
            "completion_tokens": usage.output_tokens,
            "total_tokens": usage.input_tokens + usage.output_tokens,
        }

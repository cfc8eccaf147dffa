"""Replies of a scripted LLM server."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class TextReply:
    """Replies with a text.

    Args:
        text: The complete text.
        tokens_per_second: Speed of streaming, one chunk per token; None for no delay.
        chunk: Characters per chunk; None for a word with its trailing space.
        finish: The finish reason; "length" for a truncated answer, None to end without one.
        usage: Whether to report token usage.
        after: Seconds before the first chunk.
    """

    text: str
    tokens_per_second: float | None = None
    chunk: int | None = None
    finish: str | None = "stop"
    usage: bool = True
    after: float = 0.0


@dataclass(frozen=True)
class ErrorReply:
    """Replies with an HTTP error.

    Args:
        status: The HTTP status.
        retry_after: Value of the header Retry-After; None for no header.
        body: JSON body; None for an error in OpenAI's format.
        headers: Further response headers.
    """

    status: int
    retry_after: float | str | None = None
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class TruncatedReply:
    """Streams the text, then closes the connection without ending the response."""

    text: str


@dataclass(frozen=True)
class StalledReply:
    """Streams the text, then waits until ScriptedLLM.released is set, and ends normally."""

    text: str = ""


@dataclass(frozen=True)
class RawReply:
    """Replies with status 200 and arbitrary bytes as the body."""

    content: bytes


ScriptedReply = TextReply | ErrorReply | TruncatedReply | StalledReply | RawReply
Script = Iterable[ScriptedReply] | Callable[[Any], ScriptedReply]
"""Replies in the order of requests, or a function that chooses one by a request's JSON body."""

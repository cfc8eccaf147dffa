"""What a scripted server may answer to one request."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Says:
    """Answers with the text.

    Args:
        text: all of it.
        tokens_per_second: how fast it streams, a chunk being a token; None: as fast as it goes.
        chunk: characters per chunk; None: a word with the space after it.
        finish: why it ends; "length" for an answer that was cut, None for a server that ends without a word.
        usage: whether it reports what it took.
        after: seconds before the first of it.
    """

    text: str
    tokens_per_second: float | None = None
    chunk: int | None = None
    finish: str | None = "stop"
    usage: bool = True
    after: float = 0.0


@dataclass(frozen=True)
class Fails:
    """Refuses with an HTTP status.

    Args:
        status: of HTTP.
        retry_after: what the header Retry-After says; None: there is none.
        body: JSON; None: an error in the usual shape.
        headers: of the answer, more of them.
    """

    status: int
    retry_after: float | str | None = None
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Cuts:
    """Streams the text, then loses the connection."""

    text: str


@dataclass(frozen=True)
class Stalls:
    """Streams the text, if any, then says nothing until ScriptedLLM.released is set; then ends as it should."""

    text: str = ""


@dataclass(frozen=True)
class Garbage:
    """Answers 200 with these bytes as the body."""

    content: bytes


Turn = Says | Fails | Cuts | Stalls | Garbage
Script = Iterable[Turn] | Callable[[Any], Turn]
"""Turns in the order of the requests, or who decides from a request's JSON body."""

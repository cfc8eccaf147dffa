"""What a server may do wrong with an answer, so that it is an answer no more."""

import gzip
import json
from collections.abc import AsyncIterator, Mapping
from functools import cache
from typing import Any

from tests.fakes.web import Answer, Reset

LIMIT = 1024 * 1024
"""What the experts of these tests read at most."""
_CHUNK = b" " * 65_536


async def endless() -> AsyncIterator[bytes]:
    """More than anybody may read: were it read whole, the test would never end."""
    yield b"["
    while True:
        yield _CHUNK


async def broken_off() -> AsyncIterator[bytes]:
    yield b'[{"label'
    raise Reset


@cache
def bomb() -> bytes:
    """A few kilobytes that become many megabytes."""
    return gzip.compress(b"[" + b" " * (100 * LIMIT) + b"]", mtime=0)


def answers(elsewhere: str) -> Mapping[str, tuple[Answer, str]]:
    """By fault the answer, and the status it is to become.

    Args:
        elsewhere: an address that nobody may be sent to.
    """
    page: dict[str, Any] = {"media_type": "text/html"}
    moved = {"Location": elsewhere}
    return {
        "a page": (Answer(b"<html>Welcome</html>", **page), "DATA_LOSS"),
        "an error's page": (Answer(b"<html>Bad gateway</html>", status=502, **page), "UNAVAILABLE"),
        "half an answer": (Answer(b'[{"label": "gl', media_type="application/json"), "DATA_LOSS"),
        "nothing": (Answer(b"", media_type="application/json"), "DATA_LOSS"),
        "deep": (Answer(b"[" * 100_000, media_type="application/json"), "DATA_LOSS"),
        "numbers that are none": (Answer([[{"label": "glad", "score": float("nan")}]]), "DATA_LOSS"),
        "endless": (Answer(endless(), media_type="application/json"), "DATA_LOSS"),
        "too long, as it says": (Answer(b"", headers={"Content-Length": str(10**12)}), "DATA_LOSS"),
        "an endless refusal": (Answer(endless(), status=500), "INTERNAL"),
        "a bomb": (Answer(bomb(), headers={"Content-Encoding": "gzip"}), "DATA_LOSS"),
        "a refusal's bomb": (Answer(bomb(), status=500, headers={"Content-Encoding": "gzip"}), "INTERNAL"),
        "compressed wrongly": (Answer(b"plain", headers={"Content-Encoding": "gzip"}), "DATA_LOSS"),
        "compressed oddly": (Answer(b"plain", headers={"Content-Encoding": "br"}), "DATA_LOSS"),
        "broken off": (Answer(broken_off(), media_type="application/json"), "UNAVAILABLE"),
        "moved": (Answer(b"", status=307, headers=moved), "INTERNAL"),
        "moved for good": (Answer(b"", status=301, headers=moved), "INTERNAL"),
        "strange status": (Answer(b"", status=418), "INTERNAL"),
    }


NAMES = tuple(answers(""))


def compressed(answer: Any) -> Answer:
    """An honest answer that is compressed though nobody asked for that."""
    content = gzip.compress(json.dumps(answer).encode(), mtime=0)
    return Answer(content, headers={"Content-Encoding": "gzip"}, media_type="application/json")

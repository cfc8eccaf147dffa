"""Faulty HTTP responses: truncated, endless, wrongly encoded or redirected."""

import gzip
import json
from collections.abc import AsyncIterator, Mapping
from functools import cache
from typing import Any

from tests.fakes.web import Answer, Reset

LIMIT = 1024 * 1024
"""Response limit of the experts under test, in bytes."""
_CHUNK = b" " * 65_536


async def endless() -> AsyncIterator[bytes]:
    """An endless body: a client without a limit would never finish reading."""
    yield b"["
    while True:
        yield _CHUNK


async def broken_off() -> AsyncIterator[bytes]:
    yield b'[{"label'
    raise Reset


@cache
def bomb() -> bytes:
    """A compressed body of a few kilobytes that expands to many megabytes."""
    return gzip.compress(b"[" + b" " * (100 * LIMIT) + b"]", mtime=0)


def answers(elsewhere: str) -> Mapping[str, tuple[Answer, str]]:
    """Responses by fault, each with the status that the expert must report.

    Args:
        elsewhere: An address to which no redirect may be followed.
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
    """A valid response, compressed although the client does not accept that."""
    content = gzip.compress(json.dumps(answer).encode(), mtime=0)
    return Answer(content, headers={"Content-Encoding": "gzip"}, media_type="application/json")

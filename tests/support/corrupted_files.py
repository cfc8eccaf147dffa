"""Corrupted and mislabelled files."""

import io
import struct
import wave
import zlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

DATA = Path(__file__).parents[1] / "data"


@cache
def corrupted_files() -> dict[str, bytes]:
    """Contents by file name."""
    return {
        "truncated.png": (DATA / "sign.png").read_bytes()[:4000],
        "truncated.pdf": (DATA / "letter.pdf").read_bytes()[:300],
        "text.png": b"this is text, not an image",
        "latin.txt": "Grüße aus Köln".encode("latin-1"),
        "invalid_at_end.txt": b"plain enough " * 10_000 + b"\xff\xfe",
        "bomb.png": b"".join(_bomb()),
        "silent.wav": _silence(),
        "empty.png": b"",
        "empty.txt": b"",
    }


def _bomb() -> Iterator[bytes]:
    """An image whose header claims 3.6 billion pixels."""
    yield b"\x89PNG\r\n\x1a\n"
    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 0, 0, 0, 0)
    for kind, content in ((b"IHDR", header), (b"IDAT", zlib.compress(bytes(1_000_000))), (b"IEND", b"")):
        yield struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def _silence() -> bytes:
    """A recording of zero length."""
    file = io.BytesIO()
    with wave.open(file, "wb") as silent:
        silent.setparams((1, 2, 16000, 0, "NONE", ""))
    return file.getvalue()

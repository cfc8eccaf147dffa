"""Bodies written piece by piece, such as multipart/form-data: a file of any size takes one piece of memory."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from secrets import token_hex
from typing import Protocol

from gateway.client.attachments import Attachment
from gateway.client.errors import InvalidRequest

PIECE_BYTES = 1 << 20

Sent = Callable[[int, int], None]
"""Told of bytes sent and of all there are to send."""


class Body(Protocol):
    """What can be sent piece by piece, and more than once."""

    @property
    def headers(self) -> Mapping[str, str]: ...

    def __iter__(self) -> Iterator[bytes]: ...

    def __aiter__(self) -> AsyncIterator[bytes]: ...


class Form:
    """A body that can be sent more than once.

    Args:
        fields: plain ones.
        files: each sent in a field called file.
        on_sent: told of progress.
    """

    def __init__(self, fields: Mapping[str, str], files: Sequence[Attachment], on_sent: Sent | None = None) -> None:
        self._boundary = token_hex(16)
        self._heads = [self._head(f'name="{name}"') + content.encode() for name, content in fields.items()]
        self._files = [(self._head(f'name="file"; filename="{_quoted(file.name)}"'), file) for file in files]
        self._sizes = [file.size for file in files]
        self._on_sent = on_sent

    @property
    def headers(self) -> dict[str, str]:
        return {"Content-Type": f"multipart/form-data; boundary={self._boundary}", "Content-Length": str(self._length)}

    @property
    def _length(self) -> int:
        heads = [*self._heads, *(head for head, _ in self._files), self._end]
        return sum(map(len, heads)) + sum(self._sizes)

    @property
    def _end(self) -> bytes:
        return f"\r\n--{self._boundary}--\r\n".encode()

    def __iter__(self) -> Iterator[bytes]:
        sent, total = 0, self._length
        for piece in self._pieces():
            yield piece
            sent += len(piece)
            if self._on_sent:
                self._on_sent(sent, total)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return in_threads(iter(self))

    def _pieces(self) -> Iterator[bytes]:
        yield from self._heads
        for (head, file), size in zip(self._files, self._sizes, strict=True):
            yield head
            yield from _content(file, size)
        yield self._end

    def _head(self, disposition: str) -> bytes:
        return f"\r\n--{self._boundary}\r\nContent-Disposition: form-data; {disposition}\r\n\r\n".encode()


async def in_threads(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """What a generator of pieces gives, made on threads."""
    try:
        while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
            yield piece
    finally:
        await asyncio.to_thread(pieces.close)  # type: ignore[attr-defined]  # a generator's


def _quoted(name: str) -> str:
    """As curl writes it; a name that is no text has marks where its bytes are none."""
    text = name.encode(errors="surrogateescape").decode(errors="replace")
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return re.sub(r"[\r\n]", "_", escaped)


def _content(file: Attachment, size: int) -> Iterator[bytes]:
    """So many bytes of it.

    Raises:
        InvalidRequest: FILE, it is not so long any more.
    """
    with file.open() as opened:
        while size and (piece := opened.read(min(size, PIECE_BYTES))):
            size -= len(piece)
            yield piece
    if size:
        raise InvalidRequest(f"{file.name} was cut while it was sent", code="FILE", remedy="send it again")

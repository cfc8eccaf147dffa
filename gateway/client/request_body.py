"""Streaming request bodies, such as multipart/form-data, with constant memory."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from secrets import token_hex
from typing import Protocol

from gateway.client.attachments import Attachment
from gateway.client.errors import InvalidRequest

CHUNK_BYTES = 1 << 20

OnSent = Callable[[int, int], None]
"""Called with the bytes sent so far and in total."""


class Body(Protocol):
    """A streaming body that can be sent repeatedly."""

    @property
    def headers(self) -> Mapping[str, str]: ...

    def __iter__(self) -> Iterator[bytes]: ...

    def __aiter__(self) -> AsyncIterator[bytes]: ...


class Form:
    """A multipart/form-data body that can be sent repeatedly.

    Args:
        fields: text fields.
        files: files, each sent in a field named file.
        on_sent: called with the progress.
    """

    def __init__(self, fields: Mapping[str, str], files: Sequence[Attachment], on_sent: OnSent | None = None) -> None:
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
        for chunk in self._chunks():
            yield chunk
            sent += len(chunk)
            if self._on_sent:
                self._on_sent(sent, total)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return in_threads(iter(self))

    def _chunks(self) -> Iterator[bytes]:
        yield from self._heads
        for (head, file), size in zip(self._files, self._sizes, strict=True):
            yield head
            yield from _content(file, size)
        yield self._end

    def _head(self, disposition: str) -> bytes:
        return f"\r\n--{self._boundary}\r\nContent-Disposition: form-data; {disposition}\r\n\r\n".encode()


async def in_threads(chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Iterates over a generator on threads."""
    try:
        while (chunk := await asyncio.to_thread(next, chunks, None)) is not None:
            yield chunk
    finally:
        await asyncio.to_thread(chunks.close)  # type: ignore[attr-defined]  # method of a generator


def _quoted(name: str) -> str:
    """Quotes a name like curl; invalid UTF-8 becomes replacement characters."""
    text = name.encode(errors="surrogateescape").decode(errors="replace")
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return re.sub(r"[\r\n]", "_", escaped)


def _content(file: Attachment, size: int) -> Iterator[bytes]:
    """Yields `size` bytes of a file.

    Raises:
        InvalidRequest: FILE, the file has become shorter.
    """
    with file.open() as opened:
        while size and (chunk := opened.read(min(size, CHUNK_BYTES))):
            size -= len(chunk)
            yield chunk
    if size:
        raise InvalidRequest(f"{file.name} was truncated while it was sent", code="FILE", remedy="send it again")

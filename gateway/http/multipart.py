"""multipart/form-data, part by part as it comes in, in constant memory."""

from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from services.common.errors import InvalidRequest

MAX_PARTS = 256

_MEDIA_TYPE = b"multipart/form-data"


@dataclass(frozen=True)
class Part:
    """A part whose content is about to come. It must be read, or skipped by asking for the next part."""

    name: str
    filename: str | None
    """None for a plain field."""
    media_type: str
    """As stated; empty if it is not."""
    content: AsyncIterator[bytes]


def is_form(content_type: str) -> bool:
    return parse_options_header(content_type)[0] == _MEDIA_TYPE


async def parts(content_type: str, body: AsyncIterator[bytes]) -> AsyncIterator[Part]:
    """The parts of a body, in order.

    Raises:
        InvalidRequest: the body is not what its type says, or has too many parts.
    """
    form = _Form(content_type, body)
    count = 0
    while await form.to_next_part():
        count += 1
        if count > MAX_PARTS:
            message = f"the form has more than {MAX_PARTS} fields and files"
            raise InvalidRequest(message, reason="TOO_LARGE", remedy="send fewer files at once")
        yield form.part()


@dataclass(frozen=True)
class _Head:
    """Where a part begins."""

    disposition: dict[bytes, bytes]
    media_type: bytes


@dataclass
class _End:
    """Where a part ends."""


class _Form:
    def __init__(self, content_type: str, body: AsyncIterator[bytes]) -> None:
        boundary = parse_options_header(content_type)[1].get(b"boundary")
        if not boundary:
            raise _broken("has no boundary")
        self._body = body
        self._seen: deque[_Head | bytes | _End] = deque()
        self._headers: dict[bytes, bytes] = {}
        self._field, self._value = b"", b""
        self._complete = False
        self._head = _Head({}, b"")
        try:
            self._parser = MultipartParser(
                boundary,
                {
                    "on_part_begin": self._headers.clear,
                    "on_header_field": self._on_field,
                    "on_header_value": self._on_value,
                    "on_header_end": self._on_header,
                    "on_headers_finished": self._on_headers,
                    "on_part_data": lambda data, start, end: self._seen.append(data[start:end]),
                    "on_part_end": lambda: self._seen.append(_End()),
                    "on_end": self._on_end,
                },
            )
        except FormParserError as error:
            raise _broken("has a broken boundary") from error

    async def to_next_part(self) -> bool:
        """Skips to where a part begins; False at the end."""
        while (seen := await self._next()) is not None:
            if isinstance(seen, _Head):
                self._head = seen
                return True
        return False

    def part(self) -> Part:
        name, filename = self._head.disposition.get(b"name"), self._head.disposition.get(b"filename")
        if name is None:
            raise _broken("has a part without a name")
        stated = self._head.media_type.decode("latin-1")
        try:
            return Part(name.decode(), filename.decode() if filename is not None else None, stated, self._content())
        except UnicodeDecodeError as error:
            message = "the name of a part or file is not UTF-8"
            raise InvalidRequest(message, reason="NOT_UTF8", remedy="send names as UTF-8") from error

    async def _content(self) -> AsyncIterator[bytes]:
        while isinstance(seen := await self._next(), bytes):
            yield seen
        if seen is None:
            raise _broken("ends within a part")

    async def _next(self) -> _Head | bytes | _End | None:
        while not self._seen:
            chunk = await anext(self._body, None)
            if chunk is None:
                if not self._complete:
                    raise _broken("ends before its last boundary")
                return None
            try:
                self._parser.write(chunk)
            except FormParserError as error:
                raise _broken("is not well formed") from error
        return self._seen.popleft()

    def _on_field(self, data: bytes, start: int, end: int) -> None:
        self._field += data[start:end]

    def _on_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _on_header(self) -> None:
        self._headers[self._field.lower()] = self._value
        self._field, self._value = b"", b""

    def _on_headers(self) -> None:
        kind, options = parse_options_header(self._headers.get(b"content-disposition", b""))
        disposition = options if kind == b"form-data" else {}
        self._seen.append(_Head(disposition, self._headers.get(b"content-type", b"")))

    def _on_end(self) -> None:
        self._complete = True


def _broken(what: str) -> InvalidRequest:
    return InvalidRequest(f"the multipart body {what}", remedy="send it with a client's own multipart support")

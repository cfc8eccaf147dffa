"""Streaming multipart/form-data parser with constant memory."""

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
    """A form part. Its content must be read before the next part; the iterator skips the rest."""

    name: str
    filename: str | None
    """None for a field that is not a file."""
    media_type: str
    """Stated content type; empty if none is stated."""
    content: AsyncIterator[bytes]


def is_form(content_type: str) -> bool:
    return parse_options_header(content_type)[0] == _MEDIA_TYPE


def require_form(content_type: str) -> str:
    """Returns the content type of a form.

    Raises:
        InvalidRequest: CONTENT_TYPE, the body is not multipart/form-data.
    """
    if not is_form(content_type):
        remedy = "send multipart/form-data, as curl does with -F file=@picture.png"
        raise InvalidRequest("the body is not multipart/form-data", reason="CONTENT_TYPE", remedy=remedy)
    return content_type


async def parts(content_type: str, body: AsyncIterator[bytes]) -> AsyncIterator[Part]:
    """Iterates over the parts of a body in order.

    Raises:
        InvalidRequest: the body is malformed, or has too many parts.
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
class _PartStart:
    """Start of a part."""

    disposition: dict[bytes, bytes]
    media_type: bytes


@dataclass
class _PartEnd:
    """End of a part."""


class _Form:
    def __init__(self, content_type: str, body: AsyncIterator[bytes]) -> None:
        boundary = parse_options_header(content_type)[1].get(b"boundary")
        if not boundary:
            raise _malformed("has no boundary")
        self._body = body
        self._events: deque[_PartStart | bytes | _PartEnd] = deque()
        self._headers: dict[bytes, bytes] = {}
        self._header_name, self._header_value = b"", b""
        self._complete = False
        self._part_start = _PartStart({}, b"")
        try:
            self._parser = MultipartParser(
                boundary,
                {
                    "on_part_begin": self._headers.clear,
                    "on_header_field": self._on_header_name,
                    "on_header_value": self._on_header_value,
                    "on_header_end": self._on_header,
                    "on_headers_finished": self._on_headers,
                    "on_part_data": lambda data, start, end: self._events.append(data[start:end]),
                    "on_part_end": lambda: self._events.append(_PartEnd()),
                    "on_end": self._on_end,
                },
            )
        except FormParserError as error:
            raise _malformed("has a broken boundary") from error

    async def to_next_part(self) -> bool:
        """Skips to the start of the next part; returns False at the end of the body."""
        while (event := await self._next()) is not None:
            if isinstance(event, _PartStart):
                self._part_start = event
                return True
        return False

    def part(self) -> Part:
        name, filename = self._part_start.disposition.get(b"name"), self._part_start.disposition.get(b"filename")
        if name is None:
            raise _malformed("has a part without a name")
        stated = self._part_start.media_type.decode("latin-1")
        try:
            return Part(name.decode(), filename.decode() if filename is not None else None, stated, self._content())
        except UnicodeDecodeError as error:
            message = "the name of a part or file is not UTF-8"
            raise InvalidRequest(message, reason="NOT_UTF8", remedy="send names as UTF-8") from error

    async def _content(self) -> AsyncIterator[bytes]:
        while isinstance(event := await self._next(), bytes):
            yield event
        if event is None:
            raise _malformed("ends within a part")

    async def _next(self) -> _PartStart | bytes | _PartEnd | None:
        while not self._events:
            chunk = await anext(self._body, None)
            if chunk is None:
                if not self._complete:
                    raise _malformed("ends before its last boundary")
                return None
            try:
                self._parser.write(chunk)
            except FormParserError as error:
                raise _malformed("is not well formed") from error
        return self._events.popleft()

    def _on_header_name(self, data: bytes, start: int, end: int) -> None:
        self._header_name += data[start:end]

    def _on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._header_value += data[start:end]

    def _on_header(self) -> None:
        self._headers[self._header_name.lower()] = self._header_value
        self._header_name, self._header_value = b"", b""

    def _on_headers(self) -> None:
        kind, options = parse_options_header(self._headers.get(b"content-disposition", b""))
        disposition = options if kind == b"form-data" else {}
        self._events.append(_PartStart(disposition, self._headers.get(b"content-type", b"")))

    def _on_end(self) -> None:
        self._complete = True


def _malformed(what: str) -> InvalidRequest:
    return InvalidRequest(f"the multipart body {what}", remedy="send it with a client's own multipart support")

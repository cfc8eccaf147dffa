"""Stores sent files as artifacts: within the size limits of a request, and with the media type of their content."""

import codecs
from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping

from protos.hugginggpt.v1.artifact_pb2 import Artifact
from services.common.artifacts import ArtifactStore
from services.common.artifacts.downloads import clean_name
from services.common.errors import InvalidRequest
from services.common.media_types import HEAD_BYTES, UNKNOWN, in_one_family, is_known, is_text, media_type

_UNINFORMATIVE = frozenset(
    {"", UNKNOWN, "binary/octet-stream", "application/x-download", "application/force-download", "*/*"}
)
"""Types that state nothing about the content."""

_ALIASES: Mapping[str, str] = {
    "image/jpg": "image/jpeg",
    "image/pjpeg": "image/jpeg",
    "image/x-png": "image/png",
    "image/x-ms-bmp": "image/bmp",
    "image/x-bmp": "image/bmp",
    "image/vnd.microsoft.icon": "image/x-icon",
    "image/heif": "image/heic",
    "image/svg": "image/svg+xml",
    **dict.fromkeys(("audio/mp3", "audio/x-mp3", "audio/mpeg3", "audio/x-mpeg", "audio/mpg"), "audio/mpeg"),
    **dict.fromkeys(("audio/x-wav", "audio/wave", "audio/vnd.wave", "audio/x-pn-wav"), "audio/wav"),
    **dict.fromkeys(("audio/x-m4a", "audio/m4a", "audio/aacp"), "audio/mp4"),
    **dict.fromkeys(("audio/opus", "audio/vorbis", "application/ogg", "audio/x-vorbis+ogg"), "audio/ogg"),
    "audio/x-flac": "audio/flac",
    "audio/x-aac": "audio/aac",
    "audio/x-aiff": "audio/aiff",
    "audio/x-midi": "audio/midi",
    "audio/x-matroska": "video/x-matroska",
    "application/x-matroska": "video/x-matroska",
    "video/avi": "video/x-msvideo",
    "video/msvideo": "video/x-msvideo",
    "video/x-m4v": "video/mp4",
    "application/mp4": "video/mp4",
    "application/x-pdf": "application/pdf",
    "application/x-zip-compressed": "application/zip",
    "application/x-zip": "application/zip",
    "application/x-gzip": "application/gzip",
}

_TEXT_SUFFIXES = ("json", "xml", "yaml", "javascript", "toml", "sql", "x-sh", "/vnd.ms-excel")
"""Suffixes of further text types; the last is what browsers on Windows state for CSV files."""

_MEDIA_KINDS = ("image", "audio", "video")

MAX_FILES = 256
"""Maximum number of files in one request."""


def check_content_type(name: str, stated_type: str, sniffed_type: str) -> None:
    """Checks that a stated media type is compatible with the type found in the bytes.

    Raises:
        InvalidRequest: FILE_TYPE, the types are incompatible.
    """
    if not is_compatible(stated_type, sniffed_type):
        raise InvalidRequest(
            f"cannot accept {name}: it was sent as {stated_type[:100]}, but its content is {sniffed_type}",
            reason="FILE_TYPE",
            remedy="send the file with its real content type, or without one",
        )


def normalized_type(stated_type: str) -> str:
    """Canonical name of a media type without parameters; empty if the type states nothing."""
    plain = stated_type.partition(";")[0].strip().lower()
    return "" if plain in _UNINFORMATIVE else _ALIASES.get(plain, plain)


def is_compatible(stated_type: str, sniffed_type: str) -> bool:
    """Whether content of the sniffed type may be sent with the stated type."""
    stated_type = normalized_type(stated_type)
    if stated_type in ("", sniffed_type) or in_one_family(stated_type, sniffed_type):
        return True
    if is_text(sniffed_type):
        return stated_type.startswith("text/") or is_text(stated_type) or stated_type.endswith(_TEXT_SUFFIXES)
    if is_known(stated_type) or stated_type.startswith("text/"):
        return False
    kind = stated_type.partition("/")[0]
    return sniffed_type == UNKNOWN or kind not in _MEDIA_KINDS or kind == sniffed_type.partition("/")[0]


def files_too_large_error(limit: int) -> InvalidRequest:
    return InvalidRequest(
        f"the files are larger than the limit of {limit / 1e6:g} MB",
        reason="TOO_LARGE",
        remedy="send smaller files, or ask the operator to raise the limit",
    )


def too_many_files_error() -> InvalidRequest:
    return InvalidRequest(f"the request has more than {MAX_FILES} files", reason="TOO_LARGE", remedy="send fewer files")


class Allowance:
    """Number and total size of files that a request may still send.

    Args:
        limit: maximum total bytes.
        parent: a further allowance that the files count against.
    """

    def __init__(self, limit: int, parent: "Allowance | None" = None) -> None:
        self.limit = limit
        self._parent = parent
        self._remaining_bytes = limit
        self._files = 0

    def add_file(self) -> None:
        """Counts a file; raises InvalidRequest TOO_LARGE if there are too many."""
        self._files += 1
        if self._files > MAX_FILES:
            raise too_many_files_error()

    def add_bytes(self, size: int) -> None:
        """Counts bytes; raises InvalidRequest TOO_LARGE if there are too many."""
        self._remaining_bytes -= size
        if self._remaining_bytes < 0:
            raise files_too_large_error(self.limit)
        if self._parent:
            self._parent.add_bytes(size)


async def store_file(
    store: ArtifactStore,
    tenant: str,
    name: str,
    chunks: AsyncIterable[bytes],
    allowance: Allowance,
    *,
    stated_type: str = "",
) -> Artifact:
    """Stores a file whose content matches its name and stated media type.

    Raises:
        InvalidRequest: EMPTY_FILE, TOO_LARGE, FILE_TYPE or NOT_UTF8.
    """
    allowance.add_file()
    name = clean_name(name)
    rest = aiter(_counted(chunks, allowance))
    head, ended = await _head(rest)
    if not head:
        raise InvalidRequest(f"{name} is empty", reason="EMPTY_FILE", remedy="send a file with content")
    kind = media_type(name, head[:HEAD_BYTES], whole=ended and len(head) <= HEAD_BYTES)
    check_content_type(name, stated_type, kind)
    check = _utf8_check(name) if is_text(kind) else _accept

    async def content() -> AsyncIterator[bytes]:
        check(head, False)
        yield head
        async for chunk in rest:
            check(chunk, False)
            yield chunk
        check(b"", True)

    return await store.put_stream(tenant, content(), media_type=kind, name=name, limit=allowance.limit)


async def _counted(chunks: AsyncIterable[bytes], allowance: Allowance) -> AsyncIterator[bytes]:
    async for chunk in chunks:
        allowance.add_bytes(len(chunk))
        yield chunk


async def _head(chunks: AsyncIterator[bytes]) -> tuple[bytes, bool]:
    head = b""
    async for chunk in chunks:
        head += chunk
        if len(head) >= HEAD_BYTES:
            return head, False
    return head, True


def _accept(_chunk: bytes, _last: bool) -> None:
    pass


def _utf8_check(name: str) -> Callable[[bytes, bool], None]:
    decoder = codecs.getincrementaldecoder("utf-8")()

    def check(chunk: bytes, last: bool) -> None:
        try:
            whole = "\0" not in decoder.decode(chunk, last)
        except UnicodeDecodeError:
            whole = False
        if not whole:
            remedy = "save it as UTF-8 and send it again"
            raise InvalidRequest(
                f"cannot accept {name}: its name means text, but its content is not UTF-8",
                reason="NOT_UTF8",
                remedy=remedy,
            )

    return check

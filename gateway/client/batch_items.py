"""Writes the items of a new batch as JSON lines, after uploading their files, many in a request, each once."""

import hashlib
import json
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import Any, Self

from gateway.client import calls
from gateway.client.attachments import Attachment, FileId
from gateway.client.errors import InvalidRequest, Refused
from gateway.client.models import Artifact, Failure
from gateway.client.options import Given, part_or_value
from gateway.client.request_body import CHUNK_BYTES, in_threads

CONCURRENT_UPLOADS = 4
"""Concurrent requests."""

FILES_PER_UPLOAD, BYTES_PER_UPLOAD = 64, 16_000_000
"""Limits of the files sent in one request; a larger file is sent alone."""

READERS = 4
"""Threads that read and hash files."""

LOOKAHEAD = 2 * CONCURRENT_UPLOADS * FILES_PER_UPLOAD
"""Items processed ahead of the first one whose uploads are pending."""

IN_MEMORY_BYTES = 8_000_000
"""Size above which the body is stored in a temporary file."""

Send = Callable[[Sequence[Attachment]], Sequence[Artifact | Refused]]
"""Uploads files in one request; returns the artifact or error of each."""


@dataclass(frozen=True)
class Item:
    """One input of a batch."""

    inputs: Mapping[str, Given]
    """Values by parameter."""
    name: str = ""
    """Display name; need not be unique."""
    failure: Failure | None = field(default=None, kw_only=True)
    """Known reason why the item cannot run: it then fails with this reason."""


class JsonLinesBody:
    """A body of JSON lines that can be sent repeatedly; stored in a file if it is long."""

    def __init__(self, lines: Iterable[bytes]) -> None:
        self._file = SpooledTemporaryFile(IN_MEMORY_BYTES)  # noqa: SIM115  # closed by close()
        try:
            for line in lines:
                self._file.write(line)
        except BaseException:
            self.close()
            raise
        self._length = self._file.tell()

    def close(self) -> None:
        self._file.close()

    @property
    def headers(self) -> dict[str, str]:
        return {"Content-Type": "application/x-ndjson", "Content-Length": str(self._length)}

    def __iter__(self) -> Iterator[bytes]:
        self._file.seek(0)
        while piece := self._file.read(CHUNK_BYTES):
            yield piece

    def __aiter__(self) -> AsyncIterator[bytes]:
        return in_threads(iter(self))


class ItemWriter:
    """Writes items as JSON lines.

    Args:
        send: uploads files; called from several threads.
        on_ready: called with the number of written items.
    """

    def __init__(self, send: Send, on_ready: Callable[[int], None] | None = None) -> None:
        self._send = send
        self._on_ready = on_ready or (lambda _: None)
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Stops the writer from another thread."""
        self._stopped.set()

    def lines(self, spec: Mapping[str, Any], items: Iterable[Item]) -> Iterator[bytes]:
        """Yields the spec, then each item. An item whose file cannot be sent becomes a failed item.

        Raises:
            HuggingGPTError: the gateway is unreachable or rejects uploads.
        """
        yield _line(spec)
        with ThreadPoolExecutor(READERS) as readers, _Uploads(self._send) as uploads:
            for number, line in enumerate(self._in_order(readers, uploads, items), start=1):
                yield line
                self._on_ready(number)

    def _in_order(self, readers: ThreadPoolExecutor, uploads: "_Uploads", items: Iterable[Item]) -> Iterator[bytes]:
        pending: deque[tuple[Item, Future[dict[str, _Value]]]] = deque()
        try:
            for item in items:
                if self._stopped.is_set():
                    raise CancelledError
                pending.append((item, readers.submit(_values, item, uploads)))
                if len(pending) > LOOKAHEAD:
                    yield _line_of(*pending.popleft())
            while pending:
                yield _line_of(*pending.popleft())
        finally:
            for _, future in pending:
                future.cancel()


@dataclass(frozen=True)
class _UploadedFile:
    """A file that is being uploaded."""

    name: str
    artifact: "Future[Artifact]"


_Value = dict[str, Any] | _UploadedFile


def _values(item: Item, uploads: "_Uploads") -> dict[str, _Value]:
    """Returns the values of an item's parameters, with the uploads of its files started.

    Raises:
        InvalidRequest: a file cannot be read.
    """
    return {name: _value(name, given, uploads) for name, given in item.inputs.items()}


def _value(name: str, given: Given, uploads: "_Uploads") -> _Value:
    match part_or_value(given, name):
        case dict() as value:
            return value
        case FileId() as stored:
            return {"file_id": stored.id}
        case Attachment() as file:
            return _UploadedFile(file.name, uploads.start(file))
        case known:
            return calls.as_input(known)


def _line_of(item: Item, values: "Future[dict[str, _Value]]") -> bytes:
    try:
        inputs = [{"name": name, **_rendered(value)} for name, value in values.result().items()]
    except InvalidRequest as error:
        failure = {"reason": error.code, "message": error.message, "remedy": error.remedy}
        return _line({"name": item.name, "failure": failure})
    failed = {"failure": item.failure.model_dump(exclude_defaults=True)} if item.failure else {}
    return _line({"name": item.name, "inputs": inputs, **failed})


def _rendered(value: _Value) -> dict[str, Any]:
    if isinstance(value, _UploadedFile):
        return calls.as_input(value.artifact.result().model_copy(update={"name": value.name}))
    return value


@dataclass(frozen=True)
class _Upload:
    """A file to upload, by the digest and suffix of which it is known."""

    key: tuple[str, str]
    file: Attachment
    artifact: "Future[Artifact]" = field(default_factory=Future)


class _Uploads:
    """Uploads each content once, whatever its name; files that wait are sent together."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._lock = threading.Lock()
        self._sent: set[tuple[str, str]] = set()
        self._active: dict[tuple[str, str], _Upload] = {}
        self._waiting: deque[_Upload] = deque()
        self._senders = ThreadPoolExecutor(CONCURRENT_UPLOADS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._waiting.clear()
        self._senders.shutdown()

    def start(self, file: Attachment) -> "Future[Artifact]":
        """Uploads a file unless its content was uploaded before; returns its artifact.

        Raises:
            InvalidRequest: the file cannot be read.
        """
        upload = _Upload((_digest(file), Path(file.name).suffix.lower()), file)
        with self._lock:
            if upload.key in self._sent:
                upload.artifact.set_result(Artifact(sha256=upload.key[0], name=file.name))
                return upload.artifact
            if active := self._active.get(upload.key):
                return active.artifact
            self._active[upload.key] = upload
            self._waiting.append(upload)
        self._senders.submit(self._send_waiting)
        return upload.artifact

    def _send_waiting(self) -> None:
        """Sends waiting files, as many as one request may have; none if another thread has sent them."""
        with self._lock:
            group = self._next_group()
        if group:
            self._send_group(group)

    def _next_group(self) -> list[_Upload]:
        group, size = list[_Upload](), 0
        while self._waiting and len(group) < FILES_PER_UPLOAD:
            size += self._waiting[0].file.size
            if group and size > BYTES_PER_UPLOAD:
                break
            group.append(self._waiting.popleft())
        return group

    def _send_group(self, group: Sequence[_Upload]) -> None:
        results: Sequence[Artifact | BaseException]
        try:
            results = self._send([upload.file for upload in group])
        except InvalidRequest as error:
            if len(group) > 1:  # one of the files is at fault, such as one that was truncated meanwhile
                for upload in group:
                    self._send_group([upload])
                return
            results = [error]
        except BaseException as error:  # noqa: BLE001  # raised where the artifact is awaited
            results = [error] * len(group)
        for upload, result in zip(group, results, strict=True):
            self._end(upload, result)

    def _end(self, upload: _Upload, result: Artifact | BaseException) -> None:
        with self._lock:
            del self._active[upload.key]
            if isinstance(result, Artifact) and result.sha256 == upload.key[0]:  # the file has not changed meanwhile
                self._sent.add(upload.key)
        if isinstance(result, BaseException):
            upload.artifact.set_exception(result)
        else:
            upload.artifact.set_result(result)


def _digest(file: Attachment) -> str:
    _ = file.size
    digest = hashlib.sha256()
    try:
        with file.open() as opened:
            while piece := opened.read(CHUNK_BYTES):
                digest.update(piece)
    except OSError as error:
        raise InvalidRequest(f"cannot read {file.name}: {error.strerror}", code="FILE", remedy="check it") from error
    return digest.hexdigest()


def _line(content: Mapping[str, Any]) -> bytes:
    """Encodes a JSON line; invalid UTF-8 in names becomes replacement characters."""
    written = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return written.encode(errors="replace") + b"\n"

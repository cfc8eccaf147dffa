"""Writes the items of a new batch as JSON lines, after uploading their files concurrently, each once."""

import hashlib
import json
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import Any

from gateway.client import calls
from gateway.client.attachments import Attachment, FileId
from gateway.client.errors import InvalidRequest
from gateway.client.models import Artifact, Failure
from gateway.client.options import Given, part_or_value
from gateway.client.request_body import CHUNK_BYTES, in_threads

CONCURRENT_UPLOADS = 8
"""Concurrent uploads."""

LOOKAHEAD = 64
"""Items processed ahead of the first one whose uploads are pending."""

IN_MEMORY_BYTES = 8_000_000
"""Size above which the body is stored in a temporary file."""

Upload = Callable[[Attachment], Artifact]


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
        upload: uploads a file; called from several threads.
        on_ready: called with the number of written items.
    """

    def __init__(self, upload: Upload, on_ready: Callable[[int], None] | None = None) -> None:
        self._uploads = _Uploads(upload)
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
        with ThreadPoolExecutor(CONCURRENT_UPLOADS) as pool:
            for number, line in enumerate(self._in_order(pool, items), start=1):
                yield line
                self._on_ready(number)

    def _in_order(self, pool: ThreadPoolExecutor, items: Iterable[Item]) -> Iterator[bytes]:
        pending: deque[Future[bytes]] = deque()
        try:
            for item in items:
                if self._stopped.is_set():
                    raise CancelledError
                pending.append(pool.submit(self._line_of, item))
                if len(pending) > LOOKAHEAD:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()

    def _line_of(self, item: Item) -> bytes:
        try:
            inputs = [{"name": name, **self._value(name, given)} for name, given in item.inputs.items()]
        except InvalidRequest as error:
            failure = {"reason": error.code, "message": error.message, "remedy": error.remedy}
            return _line({"name": item.name, "failure": failure})
        failed = {"failure": item.failure.model_dump(exclude_defaults=True)} if item.failure else {}
        return _line({"name": item.name, "inputs": inputs, **failed})

    def _value(self, name: str, given: Given) -> dict[str, Any]:
        match part_or_value(given, name):
            case dict() as value:
                return value
            case FileId() as stored:
                return {"file_id": stored.id}
            case Attachment() as file:
                return calls.as_input(self._uploads.artifact(file))
            case known:
                return calls.as_input(known)


class _Uploads:
    """Uploads each content once, whatever its name."""

    def __init__(self, upload: Upload) -> None:
        self._upload = upload
        self._lock = threading.Lock()
        self._sent: set[tuple[str, str]] = set()
        self._active: dict[tuple[str, str], Future[Artifact]] = {}

    def artifact(self, file: Attachment) -> Artifact:
        """Uploads a file if needed; returns its artifact with the file's own name."""
        key = (_digest(file), Path(file.name).suffix.lower())
        with self._lock:
            if key in self._sent:
                return Artifact(sha256=key[0], name=file.name)
            others = self._active.get(key)
            mine = self._active.setdefault(key, Future())
        if others:
            return others.result().model_copy(update={"name": file.name})
        return self._upload_new(file, key, mine)

    def _upload_new(self, file: Attachment, key: tuple[str, str], future: "Future[Artifact]") -> Artifact:
        try:
            artifact = self._upload(file)
        except BaseException as error:
            future.set_exception(error)
            raise
        else:
            future.set_result(artifact)
            with self._lock:
                if artifact.sha256 == key[0]:  # the file has not changed meanwhile
                    self._sent.add(key)
            return artifact
        finally:
            with self._lock:
                del self._active[key]


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

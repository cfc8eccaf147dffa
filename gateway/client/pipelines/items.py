"""Items of a new batch: put on lines of JSON, their files sent before, several at once and each only once."""

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
from gateway.client.request_body import PIECE_BYTES, in_threads
from gateway.client.values import Given, part_or_value

AT_ONCE = 8
"""Files that are sent side by side."""

AHEAD = 64
"""Items looked at beyond the first whose files are still on their way."""

IN_MEMORY_BYTES = 8_000_000
"""Longer bodies wait in a temporary file."""

Upload = Callable[[Attachment], Artifact]


@dataclass(frozen=True)
class Item:
    """One input of a batch."""

    inputs: Mapping[str, Given]
    """By the names of the plan's parameters."""
    name: str = ""
    """What a person would call it; need not be unique."""
    failure: Failure | None = field(default=None, kw_only=True)
    """Why it cannot be run, where that is known: it then fails by itself, and says so."""


class Lines:
    """A body of JSON lines that can be sent more than once; a long one waits in a file."""

    def __init__(self, lines: Iterable[bytes]) -> None:
        self._file = SpooledTemporaryFile(IN_MEMORY_BYTES)  # noqa: SIM115  # close closes it
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
        while piece := self._file.read(PIECE_BYTES):
            yield piece

    def __aiter__(self) -> AsyncIterator[bytes]:
        return in_threads(iter(self))


class Writing:
    """Puts items on lines.

    Args:
        upload: sends a file; called from several threads.
        on_ready: told of how many items are on lines.
    """

    def __init__(self, upload: Upload, on_ready: Callable[[int], None] | None = None) -> None:
        self._uploads = _Uploads(upload)
        self._on_ready = on_ready or (lambda _: None)
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Ends it from another thread."""
        self._stopped.set()

    def lines(self, spec: Mapping[str, Any], items: Iterable[Item]) -> Iterator[bytes]:
        """The spec, then each item. An item with a file that cannot be sent says so instead.

        Raises:
            HuggingGPTError: the gateway is not there, or takes no files.
        """
        yield _line(spec)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for number, line in enumerate(self._in_order(pool, items), start=1):
                yield line
                self._on_ready(number)

    def _in_order(self, pool: ThreadPoolExecutor, items: Iterable[Item]) -> Iterator[bytes]:
        waiting: deque[Future[bytes]] = deque()
        try:
            for item in items:
                if self._stopped.is_set():
                    raise CancelledError
                waiting.append(pool.submit(self._written, item))
                if len(waiting) > AHEAD:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()

    def _written(self, item: Item) -> bytes:
        try:
            inputs = [{"name": name, **self._value(name, given)} for name, given in item.inputs.items()]
        except InvalidRequest as error:
            why = {"reason": error.code, "message": error.message, "remedy": error.remedy}
            return _line({"name": item.name, "failure": why})
        failed = {"failure": item.failure.model_dump(exclude_defaults=True)} if item.failure else {}
        return _line({"name": item.name, "inputs": inputs, **failed})

    def _value(self, name: str, given: Given) -> dict[str, Any]:
        match part_or_value(given, name):
            case dict() as value:
                return value
            case FileId() as kept:
                return {"file_id": kept.id}
            case Attachment() as file:
                return calls.as_input(self._uploads.artifact(file))
            case known:
                return calls.as_input(known)


class _Uploads:
    """Sends each file once, whatever it is called."""

    def __init__(self, upload: Upload) -> None:
        self._upload = upload
        self._lock = threading.Lock()
        self._sent: set[tuple[str, str]] = set()
        self._under_way: dict[tuple[str, str], Future[Artifact]] = {}

    def artifact(self, file: Attachment) -> Artifact:
        """What a file is at the gateway, under its own name."""
        key = (_digest(file), Path(file.name).suffix.lower())
        with self._lock:
            if key in self._sent:
                return Artifact(sha256=key[0], name=file.name)
            others = self._under_way.get(key)
            mine = self._under_way.setdefault(key, Future())
        if others:
            return others.result().model_copy(update={"name": file.name})
        return self._own(file, key, mine)

    def _own(self, file: Attachment, key: tuple[str, str], told: "Future[Artifact]") -> Artifact:
        try:
            artifact = self._upload(file)
        except BaseException as error:
            told.set_exception(error)
            raise
        else:
            told.set_result(artifact)
            with self._lock:
                if artifact.sha256 == key[0]:  # it has not been changed meanwhile
                    self._sent.add(key)
            return artifact
        finally:
            with self._lock:
                del self._under_way[key]


def _digest(file: Attachment) -> str:
    _ = file.size
    digest = hashlib.sha256()
    try:
        with file.open() as opened:
            while piece := opened.read(PIECE_BYTES):
                digest.update(piece)
    except OSError as error:
        raise InvalidRequest(f"cannot read {file.name}: {error.strerror}", code="FILE", remedy="check it") from error
    return digest.hexdigest()


def _line(content: Mapping[str, Any]) -> bytes:
    """Names that are no text have marks where their bytes are none."""
    written = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return written.encode(errors="replace") + b"\n"

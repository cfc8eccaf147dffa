"""The folder that a batch's results go to: claimed by one batch, and each file in it whole."""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from gateway.cli.errors import FAILED, USAGE, Problem
from gateway.client import Artifact
from gateway.client.file_names import safe_name

LINES, TABLE, SUMMARY, FILES = "results.jsonl", "results.csv", "summary.json", "files"

PROBE_BYTES = 64 * 1024
"""Written once to see whether there is room."""

_PARTIAL = ".part"


class Folder:
    """Results of a batch.

    Args:
        path: the folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._batch_id = "BATCH"

    def prepare(self) -> None:
        """Makes it if it is not there.

        Raises:
            Problem: it cannot be written, or is full.
        """
        probe = self.path / f".probe{_PARTIAL}"
        with self._writing(USAGE):
            self.path.mkdir(parents=True, exist_ok=True)
            try:
                with probe.open("wb") as file:
                    file.write(bytes(PROBE_BYTES))
                    file.flush()
                    os.fsync(file.fileno())
            finally:
                probe.unlink(missing_ok=True)

    def check_free(self, batch_id: str = "") -> None:
        """Raises Problem if it has results already: of another batch, or of nobody knows what."""
        there = [name for name in (LINES, TABLE, SUMMARY) if (self.path / name).exists()]
        owner = self._owner()
        if there and (not batch_id or owner != batch_id):
            whose = f"batch {owner}" if owner else "something else"
            going_on = f", or go on if it is still there: {_going_on(owner, self.path)}" if owner else ""
            raise Problem(
                f"{self.path} has the results of {whose}", remedy=f"choose another --out{going_on}", status=USAGE
            )

    @property
    def going_on(self) -> str:
        """The command that goes on with what it was claimed for."""
        return _going_on(self._batch_id, self.path)

    def claim(self, batch_id: str) -> None:
        """Says whose it is, until there is a summary.

        Raises:
            Problem: it cannot be written.
        """
        self._batch_id = batch_id
        self.write_summary({"batch_id": batch_id})

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """How the batch ended.

        Raises:
            Problem: it cannot be written.
        """
        with self.writing(SUMMARY) as file:
            file.write(json.dumps(summary, ensure_ascii=False, indent=2).encode() + b"\n")

    @contextmanager
    def writing(self, name: str) -> Iterator[BinaryIO]:
        """A file that takes its place when the block has ended well.

        Raises:
            Problem: it cannot be written.
        """
        path = self.path / name
        partial = path.with_name(path.name + _PARTIAL)
        with self._writing(FAILED):
            path.parent.mkdir(exist_ok=True)
            try:
                with partial.open("wb") as file:
                    yield file
                partial.replace(path)
            except BaseException:
                with suppress(OSError):
                    partial.unlink()
                raise

    def has(self, name: str, artifact: Artifact) -> bool:
        """Whether a file is there already, byte for byte."""
        path = self.path / name
        try:
            if path.stat().st_size != artifact.size_bytes:
                return False
            with path.open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest() == artifact.sha256
        except OSError:
            return False

    @contextmanager
    def _writing(self, status: int) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            going_on = f"make room, and go on: {self.going_on}"
            remedy = "choose another --out" if status == USAGE else going_on
            raise Problem(f"cannot write to {self.path}: {error.strerror}", remedy=remedy, status=status) from error

    def _owner(self) -> str:
        try:
            content = json.loads((self.path / SUMMARY).read_text("utf-8"))
        except (OSError, ValueError):
            return ""
        return str(content.get("batch_id", "")) if isinstance(content, dict) else ""


def file_name(index: int, item: str, output: str, artifact: Artifact) -> str:
    """Where an item's file goes: the item's place and name, and which output it is: files/0007-sign.audio.wav."""
    stem = PurePosixPath(safe_name(item, "")).stem
    ending = PurePosixPath(safe_name(artifact.name, artifact.media_type)).suffix
    return f"{FILES}/{index:04}-{stem}.{safe_name(output, '')}{ending}"


def _going_on(batch_id: str, path: Path) -> str:
    return f"hugginggpt resume {batch_id} --out {path}"

"""Output folder of a batch: owned by one batch, with atomically written files."""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from gateway.cli.errors import FAILED, USAGE, Problem
from gateway.client import Artifact
from gateway.client.downloads import safe_name

LINES, TABLE, SUMMARY, FILES = "results.jsonl", "results.csv", "summary.json", "files"

PROBE_BYTES = 64 * 1024
"""Size of the file that is written to check for free space."""

_PARTIAL = ".part"


class Folder:
    """Output folder of a batch.

    Args:
        path: path of the folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._batch_id = "BATCH"

    def prepare(self) -> None:
        """Creates the folder if it is missing, and checks that it is writable.

        Raises:
            Problem: the folder is not writable, or the disk is full.
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
        """Raises Problem if the folder has results of another batch, or of unknown origin."""
        there = [name for name in (LINES, TABLE, SUMMARY) if (self.path / name).exists()]
        owner = self._owner()
        if there and (not batch_id or owner != batch_id):
            origin = f"batch {owner}" if owner else "an unknown source"
            resume_hint = f", or resume that batch: {_resume_command(owner, self.path)}" if owner else ""
            raise Problem(
                f"{self.path} has the results of {origin}", remedy=f"choose another --out{resume_hint}", status=USAGE
            )

    @property
    def resume_hint(self) -> str:
        """The command that resumes the folder's batch."""
        return _resume_command(self._batch_id, self.path)

    def claim(self, batch_id: str) -> None:
        """Marks the folder as owned by a batch until its summary is written.

        Raises:
            Problem: the file cannot be written.
        """
        self._batch_id = batch_id
        self.write_summary({"batch_id": batch_id})

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Writes the summary of the batch.

        Raises:
            Problem: the file cannot be written.
        """
        with self.writing(SUMMARY) as file:
            file.write(json.dumps(summary, ensure_ascii=False, indent=2).encode() + b"\n")

    @contextmanager
    def writing(self, name: str) -> Iterator[BinaryIO]:
        """Opens a file that replaces its target when the block succeeds.

        Raises:
            Problem: the file cannot be written.
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
        """Whether the folder has an identical file."""
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
            resume_hint = f"free disk space, then: {self.resume_hint}"
            remedy = "choose another --out" if status == USAGE else resume_hint
            raise Problem(f"cannot write to {self.path}: {error.strerror}", remedy=remedy, status=status) from error

    def _owner(self) -> str:
        try:
            content = json.loads((self.path / SUMMARY).read_text("utf-8"))
        except (OSError, ValueError):
            return ""
        return str(content.get("batch_id", "")) if isinstance(content, dict) else ""


def file_name(index: int, item: str, output: str, artifact: Artifact) -> str:
    """Path of an item's output file, from index, item name and output: files/0007-sign.audio.wav."""
    stem = PurePosixPath(safe_name(item, "")).stem
    ending = PurePosixPath(safe_name(artifact.name, artifact.media_type)).suffix
    return f"{FILES}/{index:04}-{stem}.{safe_name(output, '')}{ending}"


def _resume_command(batch_id: str, path: Path) -> str:
    return f"hugginggpt resume {batch_id} --out {path}"

"""Output folder of a batch: owned by one batch, with atomically written results and files."""

import csv
import hashlib
import io
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from gateway import spreadsheets
from gateway.cli.errors import FAILED, USAGE, Problem
from gateway.client import Artifact, Batch, BatchResult, HuggingGPT
from gateway.client.downloads import safe_name
from gateway.client.models import END_STATES

LINES, TABLE, SUMMARY, FILES = "results.jsonl", "results.csv", "summary.json", "files"

PROBE_BYTES = 64 * 1024
"""Size of the file that is written to check for free space."""

_PARTIAL = ".part"

_NO_FILES = frozenset({"text", "json"})
"""Modalities of outputs that are files only if they are very long."""


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


class OutputFiles:
    """Saves the output files of items, in the order of the input.

    Args:
        client: client of the gateway.
        batch_id: id of the batch.
        folder: output folder.
    """

    def __init__(self, client: HuggingGPT, batch_id: str, folder: Folder) -> None:
        self._client = client
        self._batch_id = batch_id
        self._folder = folder
        self._after = 0

    def save_available(self, batch: Batch) -> None:
        """Saves new files, up to the first item that has not ended; nothing if the plan's outputs are texts and JSON.

        Raises:
            Problem: a file cannot be written.
        """
        outputs = batch.pipeline.outputs if batch.pipeline else ()
        if all(port.modality in _NO_FILES for port in outputs):
            return
        for item in self._client.batch_items(self._batch_id, after=self._after):
            if item.state not in END_STATES:
                return
            self._save_all(item.index, item.name, item.outputs)
            self._after = item.index

    def saving(self, results: Iterable[BatchResult]) -> Iterator[BatchResult]:
        """Passes results on, each once its files are saved.

        Raises:
            Problem: a file cannot be written.
        """
        for result in results:
            if result.index > self._after:
                self._save_all(result.index, result.name, result.outputs)
            yield result

    def _save_all(self, index: int, item: str, outputs: Mapping[str, Any]) -> None:
        for output, value in outputs.items():
            if isinstance(value, Artifact):
                self._save(file_name(index, item, output, value), value)

    def _save(self, name: str, artifact: Artifact) -> None:
        if not self._folder.has(name, artifact):
            with self._folder.writing(name) as file:
                self._client.copy(artifact, file)


def write_results(results: Iterable[BatchResult], outputs: Sequence[str], folder: Folder) -> None:
    """Writes the JSON lines and the table; their columns are those of the gateway, with paths instead of URLs.

    Args:
        results: results of the items, in the order of the input.
        outputs: names of the plan's outputs, for the table.
        folder: output folder.

    Raises:
        Problem: a file cannot be written.
    """
    with folder.writing(LINES) as lines, folder.writing(TABLE) as table, _text(table) as rows:
        writer = csv.writer(rows)
        writer.writerow(spreadsheets.header(outputs))
        for result in results:
            line = _line(result)
            lines.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")
            writer.writerow(spreadsheets.row(line, outputs, _cell))


def _line(result: BatchResult) -> dict[str, Any]:
    """The result as in the gateway's JSON, with paths of files."""
    return {
        **{field: getattr(result, field) for field in spreadsheets.LEADING_FIELDS},
        "outputs": {name: _output(result, name, value) for name, value in result.outputs.items()},
        "error": result.error and {field: getattr(result.error, field) for field in spreadsheets.ERROR_FIELDS},
        **{field: getattr(result, field) for field in spreadsheets.TRAILING_FIELDS},
    }


def _output(result: BatchResult, name: str, value: Any) -> Any:
    if not isinstance(value, Artifact):
        return value
    path = file_name(result.index, result.name, name, value)
    return {"path": path, "artifact": value.model_dump(mode="json")}


def _cell(output: Any) -> Any:
    match output:
        case None | str():
            return output
        case {"path": path, "artifact": _}:
            return path
    return json.dumps(output, ensure_ascii=False, separators=(",", ":"))


@contextmanager
def _text(file: BinaryIO) -> Iterator[io.TextIOWrapper]:
    """Text writer of a binary file, which stays open."""
    wrapper = io.TextIOWrapper(file, encoding="utf-8", newline="")
    try:
        yield wrapper
    finally:
        wrapper.detach()

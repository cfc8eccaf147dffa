"""Writes the results of a batch: JSON lines, a table, and the output files of the items."""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO

from gateway import spreadsheets
from gateway.cli.batch.output_folder import LINES, TABLE, Folder, file_name
from gateway.client import Artifact, BatchResult, HuggingGPT
from gateway.client.models import END_STATES


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

    def save_available(self, *, include_ended: bool = False) -> None:
        """Saves new files, up to the first item that has not ended; with include_ended, of all ended items.

        Raises:
            Problem: a file cannot be written.
        """
        over = END_STATES if include_ended else ()
        for item in self._client.batch_items(self._batch_id, after=self._after, states=sorted(over)):
            if item.state not in END_STATES:
                return
            for output, value in item.outputs.items():
                if isinstance(value, Artifact):
                    self._save(file_name(item.index, item.name, output, value), value)
            self._after = item.index

    def _save(self, name: str, artifact: Artifact) -> None:
        if not self._folder.has(name, artifact):
            with self._folder.writing(name) as file:
                self._client.copy(artifact, file)


def write(results: Iterable[BatchResult], outputs: Sequence[str], folder: Folder) -> None:
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

"""Results as files: a line of JSON and a row of a table an item, and what the items made beside them."""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO

from gateway import spreadsheets
from gateway.cli.batch.output_folder import LINES, TABLE, Folder, file_name
from gateway.client import Artifact, BatchResult, HuggingGPT
from gateway.client.models import ENDS


class Files:
    """Saves what items made, in the order of the input.

    Args:
        house: has them.
        batch_id: whose they are.
        folder: where they go.
    """

    def __init__(self, house: HuggingGPT, batch_id: str, folder: Folder) -> None:
        self._house = house
        self._batch_id = batch_id
        self._folder = folder
        self._after = 0

    def go_on(self, *, to_the_end: bool = False) -> None:
        """Saves what is new, up to the first item that has not ended, or beyond.

        Raises:
            Problem: it cannot be written.
        """
        over = ENDS if to_the_end else ()
        for item in self._house.batch_items(self._batch_id, after=self._after, states=sorted(over)):
            if item.state not in ENDS:
                return
            for output, value in item.outputs.items():
                if isinstance(value, Artifact):
                    self._save(file_name(item.index, item.name, output, value), value)
            self._after = item.index

    def _save(self, name: str, artifact: Artifact) -> None:
        if not self._folder.has(name, artifact):
            with self._folder.writing(name) as file:
                self._house.copy(artifact, file)


def write(told: Iterable[BatchResult], outputs: Sequence[str], folder: Folder) -> None:
    """Writes both files anew; the table has the columns of the gateway's, and paths where that has addresses.

    Args:
        told: what became of the items, in the order of the input.
        outputs: what a plan's outputs are called, for the table.
        folder: where the files go.

    Raises:
        Problem: they cannot be written.
    """
    with folder.writing(LINES) as lines, folder.writing(TABLE) as table, _text(table) as rows:
        writer = csv.writer(rows)
        writer.writerow(spreadsheets.header(outputs))
        for result in told:
            line = _line(result)
            lines.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")
            writer.writerow(spreadsheets.row(line, outputs, _cell))


def _line(result: BatchResult) -> dict[str, Any]:
    """As the gateway tells it, with the paths of files."""
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
    """Letters into a file that stays open."""
    wrapper = io.TextIOWrapper(file, encoding="utf-8", newline="")
    try:
        yield wrapper
    finally:
        wrapper.detach()

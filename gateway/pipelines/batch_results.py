"""What came of a batch, a line an item: as JSON, or as a table for spreadsheets."""

import csv
import io
from collections.abc import AsyncIterable, AsyncIterator, Sequence
from typing import Any

from gateway import spreadsheets
from gateway.http.sse import line
from gateway.json_encoder import dumps, encode
from protos.hugginggpt.v1.batch_pb2 import Batch, BatchItem

JSON_LINES, TABLE = "application/x-ndjson", "text/csv"

PIECE_BYTES = 64 * 1024
"""About how much is sent at a time."""


def result(item: BatchItem) -> dict[str, Any]:
    """What came of an item."""
    told = encode(BatchItem(state=item.state, outputs=item.outputs))
    return {
        "index": item.index,
        "name": item.name,
        "state": told["state"],
        "run_id": item.run_id or None,
        "outputs": told["outputs"],
        "error": {field: getattr(item.failure, field) for field in spreadsheets.REASONS}
        if item.HasField("failure")
        else None,
        "seconds": seconds(item),
        "input_tokens": item.usage.input_tokens,
        "output_tokens": item.usage.output_tokens,
        "cost": item.usage.cost,
    }


def seconds(item: BatchItem) -> float | None:
    """What an item took of its experts, without its turns at waiting behind others; None while that is not known."""
    return round(item.usage.busy.ToNanoseconds() / 1e9, 3) if item.usage.HasField("busy") else None


async def json_lines(items: AsyncIterable[BatchItem]) -> AsyncIterator[bytes]:
    """A line of JSON for each."""
    async for item in items:
        yield line(result(item)) + b"\n"


async def table(batch: Batch, items: AsyncIterable[BatchItem]) -> AsyncIterator[bytes]:
    """A header, then a row for each; the names of columns are the paths of what stands in them in JSON.

    An artifact is its address here, JSON is JSON. Text that a spreadsheet would take for a formula begins with an
    apostrophe.
    """
    outputs = [port.name for port in batch.pipeline.outputs]
    yield _written(spreadsheets.header(outputs))
    async for item in items:
        yield _written(spreadsheets.row(result(item), outputs, _cell))


async def joined(pieces: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """The same bytes in fewer pieces."""
    begun = bytearray()
    async for piece in pieces:
        begun += piece
        if len(begun) >= PIECE_BYTES:
            yield bytes(begun)
            begun.clear()
    yield bytes(begun)


def _written(cells: Sequence[Any]) -> bytes:
    written = io.StringIO()
    csv.writer(written).writerow(cells)
    return written.getvalue().encode()


def _cell(output: Any) -> Any:
    match output:
        case None | str():
            return output
        case {"artifact": {"sha256": digest}}:
            return f"/v1/artifacts/{digest}"
        case {"json": content}:
            return dumps(content).decode()
    return dumps(output).decode()

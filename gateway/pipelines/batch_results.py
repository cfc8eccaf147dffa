"""Results of a batch, one line per item: JSON Lines, or CSV for spreadsheets."""

import csv
import io
from collections.abc import AsyncIterable, AsyncIterator, Sequence
from typing import Any

from gateway import spreadsheets
from gateway.http.sse import single_line_json
from gateway.json_encoder import dumps, encode
from protos.hugginggpt.v1.batch_pb2 import Batch, BatchItem

JSON_LINES, TABLE = "application/x-ndjson", "text/csv"

CHUNK_BYTES = 64 * 1024
"""Approximate size of a response chunk."""


def result(item: BatchItem) -> dict[str, Any]:
    """Result of an item as JSON."""
    encoded = encode(BatchItem(state=item.state, outputs=item.outputs))
    return {
        "index": item.index,
        "name": item.name,
        "state": encoded["state"],
        "run_id": item.run_id or None,
        "outputs": encoded["outputs"],
        "error": {field: getattr(item.failure, field) for field in spreadsheets.ERROR_FIELDS}
        if item.HasField("failure")
        else None,
        "seconds": seconds(item),
        "input_tokens": item.usage.input_tokens,
        "output_tokens": item.usage.output_tokens,
        "cost": item.usage.cost,
    }


def seconds(item: BatchItem) -> float | None:
    """Time that the experts spent on an item, without queueing, in seconds; None if unknown."""
    return round(item.usage.busy.ToNanoseconds() / 1e9, 3) if item.usage.HasField("busy") else None


async def json_lines(items: AsyncIterable[BatchItem]) -> AsyncIterator[bytes]:
    """Encodes each result as a line of JSON."""
    async for item in items:
        yield single_line_json(result(item)) + b"\n"


async def table(batch: Batch, items: AsyncIterable[BatchItem]) -> AsyncIterator[bytes]:
    """CSV: a header and one row per item; column names are the paths of the values in the JSON result.

    Artifacts are URL paths, JSON stays JSON. Text that a spreadsheet would interpret as a formula starts with an
    apostrophe.
    """
    outputs = [port.name for port in batch.pipeline.outputs]
    yield _written(spreadsheets.header(outputs))
    async for item in items:
        yield _written(spreadsheets.row(result(item), outputs, _cell))


async def buffered(pieces: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Joins chunks into larger ones."""
    buffer = bytearray()
    async for piece in pieces:
        buffer += piece
        if len(buffer) >= CHUNK_BYTES:
            yield bytes(buffer)
            buffer.clear()
    yield bytes(buffer)


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

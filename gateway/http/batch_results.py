"""Results of a batch as JSON Lines or CSV, its summary, and its states as server-sent events."""

import csv
import io
import math
import statistics
from array import array
from collections import defaultdict
from collections.abc import AsyncIterable, AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappush, heappushpop
from typing import Any

from gateway import spreadsheets
from gateway.core.run_stream import BatchFeed
from gateway.http.sse import RETRY, Stream, closing_frame, single_line_json
from gateway.json_encoder import dumps, encode
from protos.hugginggpt.v1.batch_pb2 import Batch, BatchItem
from services.common.errors import ServiceError

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


def last_event_id(batch: Batch) -> str:
    """Id of the batch's last event; differs for each round of a resumed batch."""
    return str(batch.end_time.ToMicroseconds())


def batch_event_frame(batch: Batch) -> bytes:
    id_ = f"id: {last_event_id(batch)}\n".encode() if batch.HasField("end_time") else b""
    return b"%sevent: batch\ndata: %s\n\n" % (id_, single_line_json(encode(batch)))


class BatchStream(Stream):
    """Streams a batch whenever it changes, and stops the feed at the end."""

    greeting = RETRY

    def __init__(self, feed: BatchFeed) -> None:
        super().__init__()
        self._feed = feed

    async def close(self) -> None:
        self._feed.stop()

    async def next(self) -> tuple[bytes, bool]:
        """Returns the next update; an interrupted stream ends without an event that has an id."""
        try:
            batch = await self._feed.read()
        except ServiceError as error:
            return closing_frame(error), True
        return (batch_event_frame(batch), self._feed.ended) if batch else (b"", True)


SLOWEST, NAMES = 5, 3
"""Number of slowest items, and of item names per error."""

MAX_ERROR_GROUPS = 100
"""Maximum number of distinct errors; further ones are grouped by reason, then all together."""

_PERCENTILE = 0.95


@dataclass
class ErrorGroup:
    """Items with the same error."""

    message: str
    """Message of the first item's error."""
    count: int = 0
    names: list[str] = field(default_factory=list)

    def add(self, item: BatchItem) -> None:
        self.count += 1
        if len(self.names) < NAMES:
            self.names.append(item.name or f"item {item.index}")


async def summary(batch: Batch, items: AsyncIterable[BatchItem]) -> dict[str, Any]:
    """Computes counts, durations, tokens, cost, the slowest items and the errors; stores one number per item."""
    times, slowest, groups = array("d"), list[tuple[float, int, str]](), dict[tuple[str, str], ErrorGroup]()
    input_tokens, output_tokens, cost, pools = 0, 0, 0.0, defaultdict[str, float](float)
    async for item in items:
        cost += item.usage.cost
        for pool, used in item.usage.pool_seconds.items():
            pools[pool] += used
        input_tokens += item.usage.input_tokens
        output_tokens += item.usage.output_tokens
        if (took := seconds(item)) is not None:
            times.append(took)
            _remember(slowest, (took, -item.index, item.name))
        if item.HasField("failure"):
            _group_for(groups, item).add(item)
    encoded = encode(batch)
    return {
        "batch_id": batch.batch_id,
        "state": encoded["state"],
        "counts": encoded["counts"],
        "seconds": _spread(times),
        "input_tokens": input_tokens,
        "output_tokens": output_tokens,
        "cost": cost,
        "pool_seconds": {pool: round(pools[pool], 3) for pool in sorted(pools)},
        "slowest": [
            {"index": -index, "name": name, "seconds": round(took, 3)} for took, index, name in sorted(slowest)[::-1]
        ],
        "errors": [
            {
                "reason": reason,
                "message": message if group.count > 1 else group.message,
                "count": group.count,
                "names": group.names,
            }
            for (reason, message), group in sorted(groups.items(), key=lambda entry: -entry[1].count)
        ],
    }


def _remember(slowest: list[tuple[float, int, str]], entry: tuple[float, int, str]) -> None:
    if len(slowest) < SLOWEST:
        heappush(slowest, entry)
    else:
        heappushpop(slowest, entry)


def _group_for(groups: dict[tuple[str, str], ErrorGroup], item: BatchItem) -> ErrorGroup:
    reason, message = item.failure.reason, item.failure.message
    for key in ((reason, _without_file_name(item)), (reason, "")):
        if key in groups or len(groups) < MAX_ERROR_GROUPS:
            return groups.setdefault(key, ErrorGroup(message))
    return groups.setdefault(("", ""), ErrorGroup(message))


def _without_file_name(item: BatchItem) -> str:
    """The error message with the item's file name replaced, so that equal errors of several files are grouped."""
    file, message = item.name.rstrip("/").rpartition("/")[2], item.failure.message
    return "".join(_split_around(file, message)) if file and file in message else message


def _split_around(file: str, message: str) -> Iterator[str]:
    """Splits the message around the file name where it is a separate word, with an ellipsis in its place."""
    begin = at = 0
    while (at := message.find(file, at)) >= 0:
        end = at + len(file)
        if _is_letter(message[at - 1 : at]) or _is_letter(message[end : end + 1]):
            at += 1
        else:
            yield message[begin:at] + "…"
            begin = at = end
    yield message[begin:]


def _is_letter(character: str) -> bool:
    """Whether the character is part of a word."""
    return character.isalnum() or character == "_"


def _spread(times: "array[float]") -> dict[str, float]:
    if not times:
        return {"total": 0.0, "median": 0.0, "p95": 0.0}
    ordered = sorted(times)
    p95 = ordered[math.ceil(len(ordered) * _PERCENTILE) - 1]
    total, median = sum(ordered), statistics.median(ordered)
    return {"total": round(total, 3), "median": round(median, 3), "p95": round(p95, 3)}

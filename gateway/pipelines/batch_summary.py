"""Summary statistics of a batch, computed in one pass over its items."""

import math
import statistics
from array import array
from collections import defaultdict
from collections.abc import AsyncIterable, Iterator
from dataclasses import dataclass, field
from heapq import heappush, heappushpop
from typing import Any

from gateway.json_encoder import encode
from gateway.pipelines.batch_results import seconds
from protos.hugginggpt.v1.batch_pb2 import Batch, BatchItem

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

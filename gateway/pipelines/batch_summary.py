"""A batch in a few figures, from one reading of its items."""

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
"""How many are told: of the slowest, and of those with the same error."""

MOST_ERRORS = 100
"""Errors told apart; more are told by their reasons, and at last together."""

_PERCENTILE = 0.95


@dataclass
class Trouble:
    """Items with the same error."""

    message: str
    """Of the first one."""
    count: int = 0
    names: list[str] = field(default_factory=list)

    def add(self, item: BatchItem) -> None:
        self.count += 1
        if len(self.names) < NAMES:
            self.names.append(item.name or f"item {item.index}")


async def summary(batch: Batch, items: AsyncIterable[BatchItem]) -> dict[str, Any]:
    """Counts, times, tokens, cost, the slowest and the errors; it holds one number an item."""
    times, slowest, troubles = array("d"), list[tuple[float, int, str]](), dict[tuple[str, str], Trouble]()
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
            _place(troubles, item).add(item)
    told = encode(batch)
    return {
        "batch_id": batch.batch_id,
        "state": told["state"],
        "counts": told["counts"],
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
                "message": message if trouble.count > 1 else trouble.message,
                "count": trouble.count,
                "names": trouble.names,
            }
            for (reason, message), trouble in sorted(troubles.items(), key=lambda entry: -entry[1].count)
        ],
    }


def _remember(slowest: list[tuple[float, int, str]], entry: tuple[float, int, str]) -> None:
    if len(slowest) < SLOWEST:
        heappush(slowest, entry)
    else:
        heappushpop(slowest, entry)


def _place(troubles: dict[tuple[str, str], Trouble], item: BatchItem) -> Trouble:
    reason, message = item.failure.reason, item.failure.message
    for key in ((reason, _of_any(item)), (reason, "")):
        if key in troubles or len(troubles) < MOST_ERRORS:
            return troubles.setdefault(key, Trouble(message))
    return troubles.setdefault(("", ""), Trouble(message))


def _of_any(item: BatchItem) -> str:
    """What went wrong, as it is said of other files, too."""
    file, message = item.name.rstrip("/").rpartition("/")[2], item.failure.message
    return "".join(_around(file, message)) if file and file in message else message


def _around(file: str, message: str) -> Iterator[str]:
    """The message with an ellipsis for the file, where that is a word of its own."""
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
    """Whether a word goes on with it."""
    return character.isalnum() or character == "_"


def _spread(times: "array[float]") -> dict[str, float]:
    if not times:
        return {"total": 0.0, "median": 0.0, "p95": 0.0}
    ordered = sorted(times)
    late = ordered[math.ceil(len(ordered) * _PERCENTILE) - 1]
    total, median = sum(ordered), statistics.median(ordered)
    return {"total": round(total, 3), "median": round(median, 3), "p95": round(late, 3)}

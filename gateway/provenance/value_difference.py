"""Compares values with tolerances for rounding; findings contain no content.

Tolerances: coordinates 0.5 pixels, times 2 ms, other numbers 0.001, or 0.1 percent of numbers above 1. Numbers in a
text may differ by one in their last digit. Lists of items with scores are compared regardless of order, because the
order follows from the scores.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

PIXELS, SECONDS, NUMBERS = 0.5, 0.002, 0.001

_COORDINATES = frozenset({"xmin", "ymin", "xmax", "ymax", "x", "y", "width", "height", "box", "bbox"})
_TIMES = frozenset({"start", "end", "time", "timestamp", "duration"})
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,30}")


def of_json(before: str, after: str, where: str) -> Iterator[str]:
    """Yields the differences between two JSON texts."""
    yield from _compared(json.loads(before), json.loads(after), where, NUMBERS)


def of_text(before: str, after: str, where: str) -> Iterator[str]:
    """Yields the differences between two texts."""
    if _NUMBER.sub("#", before) != _NUMBER.sub("#", after):
        yield f"{where}: different text"
        return
    for was, now in zip(_NUMBER.findall(before), _NUMBER.findall(after), strict=True):
        digits = max(len(number.partition(".")[2]) for number in (was, now))
        if abs(float(was) - float(now)) > 10.0**-digits * 1.001:
            yield f"{where}: number in the text changed from {was} to {now}"


def _compared(before: Any, after: Any, where: str, allowed: float) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        yield from _objects(before, after, where, allowed)
    elif isinstance(before, list) and isinstance(after, list):
        yield from _lists(before, after, where, allowed)
    elif _is_number(before) and _is_number(after):
        tolerated = max(allowed, NUMBERS * abs(before)) if allowed == NUMBERS else allowed
        if abs(before - after) > tolerated * (1 + 1e-9):
            yield f"{where}: changed from {before:g} to {after:g}; the tolerance is {tolerated:g}"
    elif before != after or type(before) is not type(after):
        yield f"{where}: different value"


def _objects(before: Mapping[str, Any], after: Mapping[str, Any], where: str, allowed: float) -> Iterator[str]:
    for key in sorted(before.keys() | after.keys()):
        path = f"{where}.{key if _PLAIN.fullmatch(key) else '…'}"
        if key not in after:
            yield f"{path}: missing"
        elif key not in before:
            yield f"{path}: new"
        else:
            yield from _compared(before[key], after[key], path, _allowed(key, allowed))


def _lists(before: list[Any], after: list[Any], where: str, allowed: float) -> Iterator[str]:
    if len(before) != len(after):
        yield f"{where}: {len(before)} items before, {len(after)} after"
        return
    if all(isinstance(item, dict) and "score" in item for item in (*before, *after)):
        before, after = sorted(before, key=_non_numeric), sorted(after, key=_non_numeric)
    for index, (was, now) in enumerate(zip(before, after, strict=True)):
        yield from _compared(was, now, f"{where}[{index}]", allowed)


def _allowed(key: str, around: float) -> float:
    if key in _COORDINATES:
        return PIXELS
    return SECONDS if key in _TIMES else around


def _non_numeric(item: Any) -> str:
    """Sort key of an item: its values that are not numbers."""
    plain = {key: value for key, value in item.items() if isinstance(value, str | bool)}
    return json.dumps(plain, sort_keys=True)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)

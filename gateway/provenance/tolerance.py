"""Whether two values are the same but for rounding. What is found is told without content.

Boxes and points may differ by 0.5 pixels, times by 2 ms, other numbers by 0.001, or a thousandth of what is above 1.
Numbers in a text may differ by one in their last digit. Items that carry a score are compared by what they are, not by
where they stand: their order follows from the scores.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

PIXELS, SECONDS, NUMBERS = 0.5, 0.002, 0.001

_PLACES = frozenset({"xmin", "ymin", "xmax", "ymax", "x", "y", "width", "height", "box", "bbox"})
_TIMES = frozenset({"start", "end", "time", "timestamp", "duration"})
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,30}")


def of_json(before: str, after: str, where: str) -> Iterator[str]:
    """What differs between two JSON texts."""
    yield from _compared(json.loads(before), json.loads(after), where, NUMBERS)


def of_text(before: str, after: str, where: str) -> Iterator[str]:
    """What differs between two texts."""
    if _NUMBER.sub("#", before) != _NUMBER.sub("#", after):
        yield f"{where}: another text"
        return
    for was, now in zip(_NUMBER.findall(before), _NUMBER.findall(after), strict=True):
        digits = max(len(number.partition(".")[2]) for number in (was, now))
        if abs(float(was) - float(now)) > 10.0**-digits * 1.001:
            yield f"{where}: {was} became {now} in the text"


def _compared(before: Any, after: Any, where: str, allowed: float) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        yield from _objects(before, after, where, allowed)
    elif isinstance(before, list) and isinstance(after, list):
        yield from _lists(before, after, where, allowed)
    elif _is_number(before) and _is_number(after):
        tolerated = max(allowed, NUMBERS * abs(before)) if allowed == NUMBERS else allowed
        if abs(before - after) > tolerated * (1 + 1e-9):
            yield f"{where}: {before:g} became {after:g}, where {tolerated:g} is allowed"
    elif before != after or type(before) is not type(after):
        yield f"{where}: another value"


def _objects(before: Mapping[str, Any], after: Mapping[str, Any], where: str, allowed: float) -> Iterator[str]:
    for key in sorted(before.keys() | after.keys()):
        place = f"{where}.{key if _PLAIN.fullmatch(key) else '…'}"
        if key not in after:
            yield f"{place}: is missing"
        elif key not in before:
            yield f"{place}: is new"
        else:
            yield from _compared(before[key], after[key], place, _allowed(key, allowed))


def _lists(before: list[Any], after: list[Any], where: str, allowed: float) -> Iterator[str]:
    if len(before) != len(after):
        yield f"{where}: {len(before)} items became {len(after)}"
        return
    if all(isinstance(item, dict) and "score" in item for item in (*before, *after)):
        before, after = sorted(before, key=_what), sorted(after, key=_what)
    for place, (was, now) in enumerate(zip(before, after, strict=True)):
        yield from _compared(was, now, f"{where}[{place}]", allowed)


def _allowed(key: str, around: float) -> float:
    if key in _PLACES:
        return PIXELS
    return SECONDS if key in _TIMES else around


def _what(item: Any) -> str:
    """All but the numbers of it."""
    plain = {key: value for key, value in item.items() if isinstance(value, str | bool)}
    return json.dumps(plain, sort_keys=True)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)

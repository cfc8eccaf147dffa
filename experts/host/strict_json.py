"""JSON as it may cross a hop: finite numbers, and one way to write it."""

import json
import math
from typing import Any


def read(text: str) -> Any:
    """What the text says.

    Raises:
        ValueError: it is no JSON, has NaN or an infinity in it, or is nested too deeply.
    """
    try:
        return json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def write(value: Any) -> str:
    """Canonical JSON: sorted keys, no spaces.

    Raises:
        TypeError: it holds something JSON has no word for.
        ValueError: it holds NaN or an infinity, or itself.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a number that JSON knows")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"{digits[:20]} is too large a number")
    return number

"""Strict JSON for messages between services: finite numbers only, and a canonical output format."""

import json
import math
from typing import Any


def read(text: str) -> Any:
    """Parses JSON text.

    Raises:
        ValueError: it is not JSON, contains NaN or an infinity, or is nested too deeply.
    """
    try:
        return json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def write(value: Any) -> str:
    """Returns canonical JSON: sorted keys, no spaces.

    Raises:
        TypeError: the value contains a type that JSON cannot represent.
        ValueError: it contains NaN, an infinity or a circular reference.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a JSON number")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"the number {digits[:20]} is too large")
    return number

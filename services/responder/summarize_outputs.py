"""Shortens structured outputs: groups findings by label, rounds numbers, truncates lists and strings."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from services.responder.escape import shorten

MAX_ITEMS = 20
"""Limit of list items, or of keys of an object."""

MAX_EXAMPLES = 5
"""Findings of one label that are listed individually."""

MAX_STRING_LENGTH = 400
MAX_DEPTH = 6
_ROUNDED_FROM = 100  # larger numbers, such as pixel coordinates, are rounded to integers
_LABELS = ("label", "entity")


def summarize(data: Any) -> str:
    """Renders the data in one or a few lines."""
    label = _label_of(data)
    if not label:
        return _json(data)
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for finding in data:
        groups.setdefault(str(finding[label]), []).append({key: finding[key] for key in finding if key != label})
    lines = [_group(name, findings) for name, findings in list(groups.items())[:MAX_ITEMS]]
    more = [f"{len(groups) - MAX_ITEMS} more labels"] if len(groups) > MAX_ITEMS else []
    return "\n".join(lines + more)


def _label_of(data: Any) -> str:
    """Returns the key that labels every finding of a list; empty if there is none."""
    if not isinstance(data, list) or not data or not all(isinstance(finding, dict) for finding in data):
        return ""
    return next((key for key in _LABELS if all(isinstance(finding.get(key), str) for finding in data)), "")


def _group(name: str, findings: Sequence[Mapping[str, Any]]) -> str:
    examples = "; ".join(_json(finding) for finding in findings[:MAX_EXAMPLES] if finding)
    more = f"; {len(findings) - MAX_EXAMPLES} more like these" if len(findings) > MAX_EXAMPLES else ""
    return f"{shorten(name, MAX_STRING_LENGTH)} × {len(findings)}{': ' if examples else ''}{examples}{more}"


def _json(data: Any) -> str:
    return json.dumps(_shorten_values(data, MAX_DEPTH), ensure_ascii=False)


def _shorten_values(data: Any, depth: int) -> Any:
    match data:
        case dict() | list() if depth == 0:
            return "…"
        case dict():
            return {
                shorten(str(key), MAX_STRING_LENGTH): _shorten_values(value, depth - 1)
                for key, value in list(data.items())[:MAX_ITEMS]
            } | _more(len(data))
        case list():
            items = [_shorten_values(item, depth - 1) for item in data[:MAX_ITEMS]]
            return [*items, *(f"{key} {value}" for key, value in _more(len(data)).items())]
        case float() if math.isfinite(data):
            return round(data) if abs(data) >= _ROUNDED_FROM else round(data, 3)
        case str():
            return shorten(data, MAX_STRING_LENGTH)
        case _:
            return data


def _more(count: int) -> dict[str, str]:
    return {"…": f"{count - MAX_ITEMS} more"} if count > MAX_ITEMS else {}

"""Structured results as short as they can be told: like findings counted together, numbers rounded, long lists cut."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from services.responder.escape import shortened

MOST_ITEMS = 20
"""Items of one list, or keys of one object."""

MOST_ALIKE = 5
"""Findings with one label that are told each by itself."""

LONGEST_STRING = 400
DEEPEST = 6
_WHOLE = 100  # numbers from here on, such as pixels, need no decimals
_LABELS = ("label", "entity")


def condensed(data: Any) -> str:
    """The data in a line or a few."""
    label = _label_of(data)
    if not label:
        return _json(data)
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for finding in data:
        groups.setdefault(str(finding[label]), []).append({key: finding[key] for key in finding if key != label})
    lines = [_group(name, findings) for name, findings in list(groups.items())[:MOST_ITEMS]]
    more = [f"{len(groups) - MOST_ITEMS} more labels"] if len(groups) > MOST_ITEMS else []
    return "\n".join(lines + more)


def _label_of(data: Any) -> str:
    """The key all findings of a list are labelled by."""
    if not isinstance(data, list) or not data or not all(isinstance(finding, dict) for finding in data):
        return ""
    return next((key for key in _LABELS if all(isinstance(finding.get(key), str) for finding in data)), "")


def _group(name: str, findings: Sequence[Mapping[str, Any]]) -> str:
    told = "; ".join(_json(finding) for finding in findings[:MOST_ALIKE] if finding)
    more = f"; {len(findings) - MOST_ALIKE} more like these" if len(findings) > MOST_ALIKE else ""
    return f"{shortened(name, LONGEST_STRING)} × {len(findings)}{': ' if told else ''}{told}{more}"


def _json(data: Any) -> str:
    return json.dumps(_less(data, DEEPEST), ensure_ascii=False)


def _less(data: Any, depth: int) -> Any:
    match data:
        case dict() | list() if depth == 0:
            return "…"
        case dict():
            return {
                shortened(str(key), LONGEST_STRING): _less(value, depth - 1)
                for key, value in list(data.items())[:MOST_ITEMS]
            } | _more(len(data))
        case list():
            kept = [_less(item, depth - 1) for item in data[:MOST_ITEMS]]
            return [*kept, *(f"{key} {value}" for key, value in _more(len(data)).items())]
        case float() if math.isfinite(data):
            return round(data) if abs(data) >= _WHOLE else round(data, 3)
        case str():
            return shortened(data, LONGEST_STRING)
        case _:
            return data


def _more(count: int) -> dict[str, str]:
    return {"…": f"{count - MOST_ITEMS} more"} if count > MOST_ITEMS else {}

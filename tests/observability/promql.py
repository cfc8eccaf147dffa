"""Parses PromQL queries for metrics and their labels."""

import re
from collections.abc import Iterator, Mapping

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_RANGE = re.compile(r"\[[^\]]*\]")
_NAMED = re.compile(r"(?<![\w.])([a-zA-Z_:][\w:]*)\b(?!\s*\()\s*(\{[^}]*\})?")
_MATCHED = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
_KEYWORDS = {"and", "or", "unless", "bool", "offset", "inf", "nan"}

Known = Mapping[str, set[str]]
"""Labels by metric."""


def metrics(text: str) -> dict[str, set[str]]:
    """Metrics of a query, with the labels of their selectors."""
    found: dict[str, set[str]] = {}
    for name, selector in _NAMED.findall(_RANGE.sub("", _GROUPING.sub("", _STRING.sub('""', text)))):
        if name.lower() not in _KEYWORDS:
            found.setdefault(name, set()).update(_MATCHED.findall(selector))
    return found


def grouped(text: str) -> set[str]:
    """Labels that a query aggregates by."""
    named = _GROUPING.findall(_STRING.sub('""', text))
    return {label.strip() for labels in named for label in labels.split(",") if label.strip()}


def query_errors(text: str, known: Known) -> Iterator[str]:
    """Reports metrics of a query that do not exist, and labels that they do not have."""
    named = metrics(text)
    for name, labels in named.items():
        if name not in known:
            yield f"there is no {name}"
        else:
            yield from (f"{name} has no label {label}" for label in sorted(labels - known[name]))
    had = {label for name in named for label in known.get(name, ())}
    yield from (f"none of {', '.join(named)} has the label {label}" for label in sorted(grouped(text) - had))

"""Word lists of the rules, stored as data."""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files


@cache
def vocabulary() -> Mapping[str, Sequence[str]]:
    """Stop words, given names, places, false matches of places and organisations, and labels of forms."""
    lists: dict[str, list[str]] = json.loads((files(__package__) / "vocabulary.json").read_text(encoding="utf-8"))
    return lists

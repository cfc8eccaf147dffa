"""Lists of words the rules go by, kept as data."""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files


@cache
def vocabulary() -> Mapping[str, Sequence[str]]:
    """Stop words, given names, places, what only looks like a place or an organisation, and the labels of forms."""
    lists: dict[str, list[str]] = json.loads((files(__package__) / "vocabulary.json").read_text(encoding="utf-8"))
    return lists

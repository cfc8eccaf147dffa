"""Word lists of the rule-based engines, read from vocabulary.json."""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files


@cache
def load_vocabulary() -> Mapping[str, Sequence[str]]:
    """Returns word lists by name: stop words, given names, places, false matches, form labels, instruction words."""
    lists: dict[str, list[str]] = json.loads((files(__package__) / "vocabulary.json").read_text(encoding="utf-8"))
    return lists

"""Meanings of labels of forms, tables and lists, and of the words by which questions ask for them, in six languages."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

_FLAGS = re.IGNORECASE
_UNSPACED = re.compile(r"[\u3400-\u9fff\uac00-\ud7af]")
_GAP = re.compile(r"\.(?:\*|\{0,\d+\})")
_SHORTEST_ASKED = 4
"""Letters from which a label is also a word of questions; shorter ones, such as "ab", mean something else there."""


CLOCK = re.compile(
    r"(?:(?:오전|오후|上午|下午|晚上)\s?)?\d{1,2}"
    r"(?:\s?(?:[:h.]\s?\d{2}|[ap]\.?m\b|h\b|uhr\b|시|点)(?:\s?(?:uhr\b|[ap]\.?m\b|\d{1,2}분|半))?)",
    _FLAGS,
)
"""Times of day in six languages."""


@cache
def load_labels() -> Mapping[str, Any]:
    """Returns labels.json: meanings of labels, contexts, weekdays and words of opening hours."""
    data: dict[str, Any] = json.loads((files(__package__) / "labels.json").read_text(encoding="utf-8"))
    return data


@dataclass(frozen=True)
class Meaning:
    """What a label means.

    Args:
        value: kind of its value.
        labels: patterns of labels: those that mean nothing else, then those that may.
        asked: pattern of questions; its groups are what questions have in between.
    """

    value: str
    labels: tuple[re.Pattern[str], ...]
    asked: re.Pattern[str]


def said_spans(match: re.Match[str]) -> tuple[tuple[int, int], ...]:
    """Returns the parts of a match of `asked` without what is in between."""
    gaps = sorted(match.span(group) for group in range(1, match.re.groups + 1) if match[group])
    starts = [match.start(), *(end for _, end in gaps)]
    ends = [*(start for start, _ in gaps), match.end()]
    return tuple(zip(starts, ends, strict=True))


def whole_words(patterns: Sequence[str]) -> re.Pattern[str]:
    """Compiles alternatives that match whole words; those in Chinese and Korean match anywhere."""
    whole = (one if _UNSPACED.search(one) else rf"(?<!\w)(?:{one})(?!\w)" for one in patterns)
    return re.compile("|".join(whole) or r"(?!)", _FLAGS)


def _read_meaning(data: Mapping[str, Any]) -> Meaning:
    labels: Sequence[Sequence[str]] = data["labels"]
    words = [one for one in labels[0] if len(one) >= _SHORTEST_ASKED or _UNSPACED.search(one)]
    asked = [_GAP.sub(lambda gap: f"({gap[0]})", one) for one in [*words, *data.get("asked", ())]]
    return Meaning(data["value"], tuple(map(whole_words, labels)), whole_words(asked))


MEANINGS = tuple(map(_read_meaning, load_labels()["concepts"].values()))
"""Meanings with a value, the more special ones first."""
CONTEXTS = tuple(map(whole_words, load_labels()["contexts"].values()))
"""Words of several languages for what a row, a column or a block is about, such as adults or the way back."""


def _read_days(shortest: int) -> tuple[tuple[re.Pattern[str], int, int], ...]:
    """Returns patterns of weekdays with the first and last day that they mean, 0 for Monday."""
    days = []
    for name, words in load_labels()["days"].items():
        first, _, last = name.partition("-")
        chosen = [one for one in words if len(one) >= shortest or _UNSPACED.search(one)]
        days.append((whole_words(chosen), int(first), int(last or first)))
    return tuple(days)


DAYS = _read_days(_SHORTEST_ASKED)
"""Weekdays as questions write them, with their numbers."""
SHORT_DAYS = _read_days(1)
"""Weekdays as lists write them, abbreviated, too."""

"""Meanings of labels of forms, tables and lists, and of the words by which questions ask for them, in six languages."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

_FLAGS = re.IGNORECASE
_UNSPACED = re.compile(r"[\u3400-\u9fff\uac00-\ud7af]")
_GAP = re.compile(r"\.(?:\*|\{0,\d+\})")
_SHORTEST_ASKED = 4
"""Letters from which a label is also a word of questions; shorter ones, such as "ab", mean something else there."""


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


def _compile(patterns: Sequence[str]) -> re.Pattern[str]:
    """Compiles alternatives that match whole words; those in Chinese and Korean match anywhere."""
    whole = (one if _UNSPACED.search(one) else rf"(?<!\w)(?:{one})(?!\w)" for one in patterns)
    return re.compile("|".join(whole) or r"(?!)", _FLAGS)


def _read_meaning(data: Mapping[str, Any]) -> Meaning:
    labels: Sequence[Sequence[str]] = data["labels"]
    words = [one for one in labels[0] if len(one) >= _SHORTEST_ASKED or _UNSPACED.search(one)]
    asked = [_GAP.sub(lambda gap: f"({gap[0]})", one) for one in [*words, *data.get("asked", ())]]
    return Meaning(data["value"], tuple(map(_compile, labels)), _compile(asked))


def _load() -> Mapping[str, Any]:
    data: dict[str, Any] = json.loads((files(__package__) / "labels.json").read_text(encoding="utf-8"))
    return data


MEANINGS = tuple(map(_read_meaning, _load()["concepts"].values()))
"""Meanings with a value, the more special ones first."""
CONTEXTS = tuple(map(_compile, _load()["contexts"].values()))
"""Words of several languages for what a row, a column or a block is about, such as adults or the way back."""

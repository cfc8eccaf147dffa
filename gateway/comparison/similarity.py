"""Similarity of two answers by words, labels and numbers, computed without a model."""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from gateway.client import Artifact

_TOP = "labels"
"""Output of which only the label with the highest score counts."""
_FOUND = ("objects", "entities", "segments")
"""Outputs of which all labels count, with their multiplicity."""
_SPOKEN = "segments"
"""Output that has no labels for audio, where the text is compared instead."""
_KEYS = ("label", "entity")
"""Keys of a label."""
_CLOSE = 0.01
"""Relative and absolute tolerance of equal numbers."""
_COMPARED_WORDS = 2_000
"""Number of compared words of a text; the rest is assumed to be as similar."""
_WORD = re.compile(r"\w+")

Labels = Counter[str]


@dataclass(frozen=True)
class Answer:
    """Answer of a model in comparable form."""

    value: Any
    """Text, a label, labels with counts, JSON, or files."""
    shown: str
    """Text for the table."""


def answer(outputs: Mapping[str, Any]) -> Answer:
    """Chooses the most specific output: labels, found objects, text, JSON or files, in this order.

    Args:
        outputs: text, JSON or an Artifact by output name.
    """
    if labels := _labelled(outputs.get(_TOP)):
        best = max(labels, key=lambda each: float(each.get("score", 0)))
        return Answer(Label(_folded(_label(best))), _label(best))
    for port in _FOUND:
        found = _labelled(outputs.get(port))
        if found or (found == [] and port != _SPOKEN):
            names = sorted(map(_label, found))
            return Answer(Labels(map(_folded, names)), ", ".join(names) or "none")
    if "text" in outputs:
        return Answer(outputs["text"], str(outputs["text"]))
    if data := {port: value for port, value in outputs.items() if not isinstance(value, Artifact)}:
        return Answer(data, ", ".join(f"{port}: {value}" for port, value in data.items()))
    files = {port: value for port, value in outputs.items() if isinstance(value, Artifact)}
    return Answer(
        {port: File(file.sha256) for port, file in files.items()},
        ", ".join(file.name or file.sha256[:12] for file in files.values()),
    )


@dataclass(frozen=True)
class Label:
    """One label; two labels are equal or different."""

    folded: str


@dataclass(frozen=True)
class File:
    """An output file; different files are not comparable."""

    sha256: str


def similarity(one: Any, other: Any) -> float | None:  # noqa: PLR0911  # a case per type
    """Similarity of two values from 0 to 1; None if it cannot be computed without a model."""
    match one, other:
        case File(), File():
            return 1.0 if one == other else None
        case Label(), Label():
            return float(one == other)
        case Counter(), Counter():
            return 2 * (one & other).total() / (one + other).total() if one or other else 1.0
        case str(), str():
            return _of_texts(one, other)
        case (bool(), _) | (_, bool()):
            return float(one is other)
        case ((int() | float()), (int() | float())):
            return float(math.isclose(one, other, rel_tol=_CLOSE, abs_tol=_CLOSE))
        case Mapping(), Mapping():
            return _mean([similarity(one.get(key), other.get(key)) for key in one.keys() | other.keys()])
        case Sequence(), Sequence() if not isinstance(one, str) and not isinstance(other, str):
            missing = abs(len(one) - len(other))
            return _mean([similarity(*pair) for pair in zip(one, other, strict=False)] + [0.0] * missing)
    return float(one == other)


def correctness(given: Answer, label: str) -> float | None:
    """Similarity of an answer to its label; None if not comparable.

    Args:
        given: the answer.
        label: expected text; for found objects their labels separated by commas, or their number.
    """
    if isinstance(given.value, Counter):
        if label.strip().isdigit():
            return float(given.value.total() == int(label))
        return similarity(given.value, Labels(_folded(part) for part in label.split(",") if part.strip()))
    if isinstance(given.value, Label):
        return similarity(given.value, Label(_folded(label)))
    return similarity(given.value, label) if isinstance(given.value, str) else None


def _of_texts(one: str, other: str) -> float:
    numbers = _number(one), _number(other)
    if numbers[0] is not None and numbers[1] is not None:
        return float(math.isclose(*numbers, rel_tol=_CLOSE, abs_tol=_CLOSE))  # type: ignore[arg-type]  # neither is None
    first, second = _words(one), _words(other)
    if first == second:
        return 1.0
    return SequenceMatcher(None, first[:_COMPARED_WORDS], second[:_COMPARED_WORDS], autojunk=False).ratio()


def _mean(parts: Sequence[float | None]) -> float | None:
    known = [part for part in parts if part is not None]
    return sum(known) / len(known) if known else (None if parts else 1.0)


def _words(text: str) -> list[str]:
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def _folded(label: str) -> str:
    return " ".join(_words(label)) or label.strip().casefold()


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _labelled(value: Any) -> Sequence[Mapping[str, Any]] | None:
    """The value if it is a list of objects with labels."""
    if not isinstance(value, list):
        return None
    return value if all(isinstance(each, Mapping) and not each.keys().isdisjoint(_KEYS) for each in value) else None


def _label(thing: Mapping[str, Any]) -> str:
    """Label of an object; of an entity with its text."""
    return " ".join(str(thing[key]) for key in (*_KEYS, "text") if key in thing)

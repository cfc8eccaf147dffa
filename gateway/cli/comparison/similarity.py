"""How far two answers say the same: by words, labels and numbers, and with no model's help."""

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
"""Of these only the surest counts."""
_FOUND = ("objects", "entities", "segments")
"""Of these all count, as often as they come."""
_SPOKEN = "segments"
"""Of a recording they have no labels; then the text says what there is."""
_KEYS = ("label", "entity")
"""Under which things have their label."""
_CLOSE = 0.01
"""By which numbers may differ, of the larger one; and by which any may."""
_READ_WORDS = 2_000
"""Of a text; what comes after is taken to be as like as the rest."""
_WORD = re.compile(r"\w+")

Labels = Counter[str]


@dataclass(frozen=True)
class Answer:
    """What a model said about a file, in the form in which it is compared."""

    value: Any
    """Text, a label, labels with how often they come, JSON, or files."""
    shown: str
    """For people."""


def answer(outputs: Mapping[str, Any]) -> Answer:
    """The output that says most: labels, else what was found, else the text, else JSON, else the files made.

    Args:
        outputs: text, JSON or an Artifact, by port.
    """
    if labels := _labelled(outputs.get(_TOP)):
        surest = max(labels, key=lambda each: float(each.get("score", 0)))
        return Answer(Label(_folded(_label(surest))), _label(surest))
    for port in _FOUND:
        found = _labelled(outputs.get(port))
        if found or (found == [] and port != _SPOKEN):
            names = sorted(map(_label, found))
            return Answer(Labels(map(_folded, names)), ", ".join(names) or "nothing")
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
    """One label: the same or another."""

    folded: str


@dataclass(frozen=True)
class File:
    """A file that was made: the same, or nothing is known."""

    sha256: str


def likeness(one: Any, other: Any) -> float | None:  # noqa: PLR0911  # one for each kind
    """From 0, nothing in common, to 1, the same; None where that cannot be told without a model."""
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
            return _mean([likeness(one.get(key), other.get(key)) for key in one.keys() | other.keys()])
        case Sequence(), Sequence() if not isinstance(one, str) and not isinstance(other, str):
            missing = abs(len(one) - len(other))
            return _mean([likeness(*pair) for pair in zip(one, other, strict=False)] + [0.0] * missing)
    return float(one == other)


def correctness(given: Answer, label: str) -> float | None:
    """How like an answer is to what a person says is right.

    Args:
        given: the answer.
        label: its words; for what was found its labels with commas between, or how many there are.
    """
    if isinstance(given.value, Counter):
        if label.strip().isdigit():
            return float(given.value.total() == int(label))
        return likeness(given.value, Labels(_folded(part) for part in label.split(",") if part.strip()))
    if isinstance(given.value, Label):
        return likeness(given.value, Label(_folded(label)))
    return likeness(given.value, label) if isinstance(given.value, str) else None


def _of_texts(one: str, other: str) -> float:
    numbers = _number(one), _number(other)
    if numbers[0] is not None and numbers[1] is not None:
        return float(math.isclose(*numbers, rel_tol=_CLOSE, abs_tol=_CLOSE))  # type: ignore[arg-type]  # neither is None
    ours, theirs = _words(one), _words(other)
    if ours == theirs:
        return 1.0
    return SequenceMatcher(None, ours[:_READ_WORDS], theirs[:_READ_WORDS], autojunk=False).ratio()


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
    """The value, if it is a list of things that have labels."""
    if not isinstance(value, list):
        return None
    return value if all(isinstance(each, Mapping) and not each.keys().isdisjoint(_KEYS) for each in value) else None


def _label(thing: Mapping[str, Any]) -> str:
    """Of an entity with its words."""
    return " ".join(str(thing[key]) for key in (*_KEYS, "text") if key in thing)

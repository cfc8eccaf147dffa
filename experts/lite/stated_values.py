"""Finds the amount or the date that a text states for what words name: "deposit", "the delivery"."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Generic, TypeVar

from experts.lite.quantities import Amount, StatedDate, find_amounts, find_dates
from experts.lite.text_processing import STOPWORDS, load_vocabulary, split_words, stem

Value = TypeVar("Value", Amount, StatedDate)

_GENERIC = frozenset(("date", "day", "on", "at", "time", "sum", "total", "amount", "value"))
"""Words of a label that leave open what its value belongs to; the heading above says it."""
_SAME_BEGINNING = 6
"""Characters from which words with the same beginning are forms of one word: "delivery" and "delivered"."""
_SENTENCE_END = re.compile(r"(?<=[.!?;])\s+")
_SYNONYMS = {stem(word): group for group in load_vocabulary()["event_synonyms"] for word in group.split()}


@dataclass(frozen=True)
class Stated(Generic[Value]):
    """A value with the words that say what it is."""

    value: Value
    label: str
    """The words before and after it on its line, else those of the heading."""


def find_amount(text: str, words: str) -> Stated[Amount] | None:
    """Returns the amount that a text states for what words name; None if there is none or several fit equally."""
    return _best(list(_labelled(text, _money)), words)


def find_event(text: str, words: str) -> date | None:
    """Returns the date that a text states for what words name; one without a year is in the only year of the text."""
    found = _best(list(_labelled(text, _days)), words)
    years = {stated.year for stated in find_dates(text) if stated.year}
    if found is None or (found.value.year is None and len(years) != 1):
        return None
    try:
        return found.value.in_year(next(iter(years), 0))
    except ValueError:
        return None


def _money(line: str) -> list[tuple[Amount, int, int]]:
    return [(amount, *match.span()) for amount, match in find_amounts(line) if amount.is_money]


def _days(line: str) -> list[tuple[StatedDate, int, int]]:
    return [(stated, stated.start, stated.end) for stated in find_dates(line)]


def _labelled(text: str, find: Callable[[str], list[tuple[Value, int, int]]]) -> Iterator[Stated[Value]]:
    """Yields the values of each line; a value after several in one sentence has the words since the one before."""
    heading = ""
    for line in text.splitlines():
        if not line.strip():  # text that was read from a page has blank lines between rows
            continue
        for sentence in _SENTENCE_END.split(line):
            found = find(sentence)
            at = 0
            for value, start, end in found:
                label = sentence[at:start] + (sentence[end:] if len(found) == 1 else "")
                is_generic = set(split_words(label)) <= _GENERIC | STOPWORDS
                yield Stated(value, f"{heading} {label}" if is_generic else label)
                at = end
            if not found:
                heading = sentence if find is _days else ""


def _best(stated: Sequence[Stated[Value]], words: str) -> Stated[Value] | None:
    """Returns the value whose label has most of the words; None if no label has one, or several values do."""
    wanted = [word for word in _split(words) if word not in STOPWORDS]
    # The first word says most: "the end of the lease" is rather "ends" than "lease".
    weights = [(word, 1 if index else 1.5) for index, word in enumerate(wanted)]
    scores = [sum(weight for word, weight in weights if _names(label.label, word)) for label in stated]
    best = [one for one, score in zip(stated, scores, strict=True) if score and score == max(scores)]
    return best[0] if best and len({_key(one.value) for one in best}) == 1 else None


def _key(value: Amount | StatedDate) -> tuple[object, ...]:
    return (value.value, value.currency) if isinstance(value, Amount) else (value.day, value.month, value.year)


def named_words(texts: Iterable[str], words: Collection[str]) -> list[str]:
    """Returns those of the words that label an amount in every text."""
    labels = [[stated.label for stated in _labelled(text, _money)] for text in texts]
    return [word for word in words if all(any(_names(label, word) for label in of) for of in labels)]


def mentions(text: str, words: Iterable[str]) -> bool:
    """Whether a text contains a form of one of the words."""
    return any(_names(text, word) for word in words)


def _names(label: str, word: str) -> bool:
    """Whether a label contains a form of a word, or of one that means the same."""
    forms = {word, *_SYNONYMS.get(stem(word), "").split()}
    return any(_is_form(one, form) for one in _split(label) for form in forms)


def _split(words: str) -> list[str]:
    """Returns the words; those with a hyphen are one: "check-in"."""
    return split_words(re.sub(r"(?<=\w)-(?=\w)|(?<=\bcheck) (?=in\b|out\b)", "", words.lower()))


def _is_form(one: str, other: str) -> bool:
    if one == other or stem(one) == stem(other):
        return True
    return min(len(one), len(other)) >= _SAME_BEGINNING and one[:_SAME_BEGINNING] == other[:_SAME_BEGINNING]

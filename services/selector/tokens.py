"""Tokenizes text for the ranking (lower case, stemmed, without common words), and cleans text of other parties."""

import re
from collections.abc import Iterator
from functools import lru_cache

WEIGHED_CHARACTERS = 2000
"""Characters of a description that are used: a longer one gains nothing."""

_WORD = re.compile(r"[^\W_]+")
_SHORTEST = 3
"""Letters that a stem must have."""

_ENDINGS = (
    *("inesses", "iness", "ness", "iest", "ier", "ily", "ingly", "edly", "ely"),
    *("ions", "ion", "ings", "ing", "ies", "ied", "ors", "or", "ers", "er", "ed", "es", "ly", "s", "e", "y"),
)

_DENIED = re.compile(
    r"\b(?:(?:do(?:es)?|is|are) not|cannot|can't|doesn't|not|no|never|without|misses|except)\b[^.;:]*", re.IGNORECASE
)
"""A negated clause of a description."""

_COMMON = frozenset(
    _WORD.findall("""
    a about all also an and any are as at be been but by can could do does for from get give had has have he her his
    how i if in into is it its let like make many may me more much my no not of on one only or our out please say says
    she should show so some tell than that the their them then there these they this those to up us use used want was
    we were what when whether which who will with would you your
    """)
)


def affirmed(description: str) -> str:
    """The description without negated clauses: "does not detect topics" must not match a request about topics."""
    return _DENIED.sub(" ", description)


def words(text: str) -> Iterator[tuple[str, str]]:
    """The terms of a text, each with its stem and as written, in order."""
    for match in _WORD.finditer(text):
        written = match[0].lower()
        if written not in _COMMON:
            yield stem(written), written


@lru_cache(maxsize=65_536)
def stems(name: str, description: str) -> frozenset[str]:
    """Stems of a model's name and description; cached, since cards are read repeatedly."""
    return stemmed(f"{name} {affirmed(description[:WEIGHED_CHARACTERS])}")


def stemmed(text: str) -> frozenset[str]:
    """The stems of a text's words."""
    written = {word.lower() for word in set(_WORD.findall(text))}
    return frozenset(map(stem, written - _COMMON))


@lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    """The word without its ending, so that face and faces, happy and happiness are equal."""
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _SHORTEST and (ending != "s" or word[-2] != "s"):
            word = word.removesuffix(ending)
            break
    doubled = len(word) > _SHORTEST and word[-1] == word[-2]
    return word[:-1] if doubled else word


def plain(text: str, limit: int) -> str:
    """One line without control and invisible characters, cut to a number of characters."""
    line = " ".join("".join(character if character.isprintable() else " " for character in text[: 4 * limit]).split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"

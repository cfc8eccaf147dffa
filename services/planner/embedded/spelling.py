"""Slips of the pen in the few long words that most requests hang on; content and names stay as they were written."""

import re
from collections.abc import Iterable
from functools import lru_cache

from services.planner.embedded.resources import Resource
from services.planner.embedded.wording import Wording, read

SPELLED = (
    "transcribe",
    "transcript",
    "transcription",
    "summarize",
    "summarise",
    "summary",
    "summaries",
    "translate",
    "translation",
    "sentiment",
    "language",
    "recording",
    "background",
    "picture",
    "document",
    "invoice",
    "greyscale",
    "grayscale",
)
"""Words that nothing else in a request is one slip away from."""

_WORD = re.compile(r"(?<![\w.'-])[a-z]{6,}(?![\w.'-])")
_CONTENT_FOLLOWS = re.compile(r"[:\n]")


def read_mended(text: str, resources: Iterable[Resource]) -> Wording:
    """The wording of a request, its slips mended up to where pasted content may begin."""
    there = tuple(resources)
    wording = read(text, there)
    content = _CONTENT_FOLLOWS.search(wording.masked)
    end = content.start() if content else len(text)
    mended, at = "", 0
    for word in _WORD.finditer(wording.masked, 0, end):
        meant = _meant(word.group())
        if meant != word.group():
            mended, at = mended + text[at : word.start()] + meant, word.end()
    return read(mended + text[at:], there) if at else wording


@lru_cache(maxsize=4096)
def _meant(word: str) -> str:
    if any(word.startswith(known[:-1]) for known in SPELLED):
        return word
    return next((known for known in SPELLED if word[0] == known[0] and _one_slip(word, known)), word)


def _one_slip(word: str, known: str) -> bool:
    """Whether one letter is missing, added or wrong, or two have changed places."""
    shorter = min(len(word), len(known))
    front = next((at for at in range(shorter) if word[at] != known[at]), shorter)
    word, known = word[front:], known[front:]
    return (
        word[1:] == known
        or word == known[1:]
        or word[1:] == known[1:]
        or (word[:2] == known[1::-1] and word[2:] == known[2:])
    )

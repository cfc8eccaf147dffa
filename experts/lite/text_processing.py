"""Rule-based text processing: word lists, sentences, words and stems."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files

from services.common.errors import InvalidRequest

MAX_CHARACTERS = 500_000

_SENTENCE_END = re.compile(
    r"(?<![.!?…])[.!?…]+[\"'”’»)\]]*(?=\s|$)|[。！？]+[」』”’）]*|\n[ \t]*\n|\n(?=[ \t]*(?:[-*•]|\d+[.)])\s)"
)
_ABBREVIATION = re.compile(
    r"(?:^|[\s(])(?:[A-Z]|Mrs?|Ms|Dr|Prof|Sr|Jr|St|Mt|Gen|Col|Lt|Capt|Sgt|Rev|Hon|Gov|Sen|Rep|vs|etc|al|cf|approx|"
    r"No|no|Nr|nr|Fig|fig|Eq|p|pp|vol|Vol|ch|ed|Inc|Ltd|Co|Corp|Ave|Blvd|Rd|dept|est|[Tt]el|Jan|Feb|Mar|Apr|Jun|Jul|Aug|"
    r"Sept?|Oct|Nov|Dec|e\.g|i\.e|a\.m|p\.m|U\.S|U\.K|z\.B|d\.h|bzw|usw|ca|Str|M|Mme|Mlle)\.$"
)
_MAY_END_SENTENCE = re.compile(r"(?:etc|a\.m|p\.m|U\.S|U\.K|Inc|Ltd|Co|Corp|usw|al)\.$")
_DAY_NUMBER = re.compile(r"(?<!\d)\d{1,2}\.$")
_MONTH = re.compile(r"\s+(?:Jan|Feb|Mär|Apr|Mai|Jun|Jul|Aug|Sep|Okt|Nov|Dez)")
"""Beginning of a German month, before which a day has a full stop."""
_LOWER = re.compile(r"\s*[a-zà-öø-ÿ]")
_CAPITAL = re.compile(r"\s+[\"'“‘«(]*[A-ZÀ-ÖØ-Þ]")
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_SUFFIXES = (  # the longest first
    "ization", "ations", "ation", "ments", "ment", "ingly", "ness", "ings", "ing", "edly", "ies", "ied", "ers", "ors",
    "ed", "er", "or", "es", "ly", "s", "e",
)  # fmt: skip
_SHORTEST_STEM = 3


@cache
def load_vocabulary() -> Mapping[str, Sequence[str]]:
    """Returns word lists by name: stop words, given names, places, false matches, form labels, instruction words."""
    lists: dict[str, list[str]] = json.loads((files(__package__) / "vocabulary.json").read_text(encoding="utf-8"))
    return lists


STOPWORDS = frozenset(load_vocabulary()["stopwords"])


@dataclass(frozen=True)
class Sentence:
    """A span of a text with its position."""

    text: str
    start: int
    end: int


def require_text(text: str, port: str) -> str:
    """Returns the text if it is neither empty nor too long."""
    if not text.strip():
        raise InvalidRequest("the text is empty", remedy="send a text with words in it", port=port)
    if len(text) > MAX_CHARACTERS:
        raise InvalidRequest(
            f"the text has {len(text):,} characters; at most {MAX_CHARACTERS:,} are read at once",
            remedy="send it in parts",
            port=port,
        )
    return text


def split_sentences(text: str) -> list[Sentence]:
    """Returns the sentences in order; blank lines and list items end a sentence, too."""
    return list(_iter_sentences(text))


def split_words(text: str) -> list[str]:
    """Returns the words in lower case."""
    return [word.lower() for word in _WORD.findall(text)]


def stem_words(text: str) -> list[str]:
    """Returns the stems of the content words, in text order, for matching."""
    return [stem(word) for word in split_words(text) if word not in STOPWORDS]


@lru_cache(maxsize=20_000)
def stem(word: str) -> str:
    """Returns the stem: the same for invented, inventor and inventing."""
    bare = word.removesuffix("'s").removesuffix("’s")
    for suffix in _SUFFIXES:
        if bare.endswith(suffix) and len(bare) - len(suffix) >= _SHORTEST_STEM:
            return bare.removesuffix(suffix)
    return bare


def _iter_sentences(text: str) -> Iterator[Sentence]:
    start = 0
    for match in _SENTENCE_END.finditer(text):
        if _is_sentence_end(text, match):
            yield from _strip_span(text, start, match.end())
            start = match.end()
    yield from _strip_span(text, start, len(text))


def _is_sentence_end(text: str, match: re.Match[str]) -> bool:
    if not match[0].startswith("."):
        return not (match[0][0] in "!?…" and _LOWER.match(text, match.end()))
    if _LOWER.match(text, match.end()):
        return False
    if _DAY_NUMBER.search(text[max(0, match.start() - 3) : match.start() + 1]) and _MONTH.match(text, match.end()):
        return False
    before = text[max(0, match.start() - 10) : match.start() + 1]
    if not _ABBREVIATION.search(before):
        return True
    return bool(_MAY_END_SENTENCE.search(before) and _CAPITAL.match(text, match.end()))


def _strip_span(text: str, start: int, end: int) -> Iterator[Sentence]:
    piece = text[start:end]
    left = len(piece) - len(piece.lstrip())
    if stripped := piece.strip():
        yield Sentence(stripped, start + left, start + left + len(stripped))

"""Classifies questions by the kind of answer they accept, and names the words that evidence should contain."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum, auto
from functools import cache
from importlib.resources import files
from typing import Any
from unicodedata import normalize

from experts.lite.label_meanings import MEANINGS
from experts.lite.text_processing import STOPWORDS, load_vocabulary, split_words, stem


class AnswerKind(StrEnum):
    """What a span must be to answer a question."""

    EMAIL = auto()
    PHONE = auto()
    URL = auto()
    PAGE = auto()
    EXTREME = auto()
    """The row of a list with the lowest or highest amount."""
    DURATION = auto()
    MEASURE = auto()
    PERCENT = auto()
    TIME = auto()
    DATE = auto()
    COUNT = auto()
    MONEY = auto()
    CODE = auto()
    """A number or code behind a noun, such as a platform."""
    ADDRESS = auto()
    WHO = auto()
    WHERE = auto()
    WHY = auto()
    YES_NO = auto()
    ANY = auto()


@cache
def load_questions() -> Mapping[str, Any]:
    """Returns questions.json: patterns of questions and of what answers them, as alternatives in several languages."""
    data: dict[str, Any] = json.loads((files(__package__) / "questions.json").read_text(encoding="utf-8"))
    return data


def join_patterns(alternatives: Sequence[str]) -> str:
    return "|".join(alternatives)


def compile_pattern(name: str) -> re.Pattern[str]:
    """Compiles the alternatives of this name in questions.json."""
    return re.compile(join_patterns(load_questions()["patterns"][name]), re.IGNORECASE)


def remove_accents(text: str) -> str:
    """Returns a text as people type it without accents; ù is kept, because "ou" is another word than "où"."""
    plain = (one if one in "ùÙ" else normalize("NFD", one)[0] if "À" <= one <= "ž" else one for one in text)
    return "".join(plain)


_KINDS = tuple((AnswerKind(kind), join_patterns(patterns)) for kind, patterns in load_questions()["kinds"].items())
"""The kinds by how questions ask for them; the first that matches is meant."""
_KIND_PATTERNS = tuple((kind, re.compile(pattern, re.IGNORECASE)) for kind, pattern in _KINDS)
_TYPED_PATTERNS = tuple((kind, re.compile(remove_accents(pattern), re.IGNORECASE)) for kind, pattern in _KINDS)
"""The same for questions without accents."""

_NOUN_QUESTION = compile_pattern("noun_question")
"""Questions that ask for a thing by its name alone, such as "What is the deposit?"."""
_KIND_OF_VALUE = {
    "amount": AnswerKind.MONEY,
    "date": AnswerKind.DATE,
    "time": AnswerKind.TIME,
    "code": AnswerKind.CODE,
    "name": AnswerKind.WHO,
    "place": AnswerKind.ANY,
    "duration": AnswerKind.DURATION,
    "count": AnswerKind.ANY,
}

FIXED_FORMAT_KINDS = frozenset({AnswerKind.EMAIL, AnswerKind.PHONE, AnswerKind.URL})
"""Kinds whose spans are recognized by their form alone."""


_TYPE_WORDS = frozenset(map(stem, load_questions()["type_words"]))
"""Words of questions that name the kind of answer or the document itself, so that evidence need not repeat them."""

_SENTENCES_BEFORE = re.compile(r"(?:[^?？]*[.!。！]\s+|[^?？]*(?=¿))(?=[^?？]{8,}[?？]\W*$)")
"""What precedes a question that ends a text."""
_ELISION = re.compile(r"(?:[cdjlmnst]|qu)['’](?=[^\W\d_]{2})", re.IGNORECASE)
"""French articles and pronouns before a vowel."""
_SCOPE = compile_pattern("scope")
"""What a question to several files ends with: "in each case"."""
_CJK = re.compile(r"[\u3400-\u9fff]+")
_HANGUL = re.compile(r"[\uac00-\ud7af]+")
_CJK_TYPE_WORDS = compile_pattern("cjk_type_word")
_HANGUL_TYPE_WORDS = compile_pattern("hangul_type_word")
_HANGUL_STEM = 2
_LONGEST_QUESTION = 500
"""Characters of a question that are read, from its end."""
_OTHER_STOPWORDS = frozenset(load_vocabulary()["other_stopwords"])
_CLUSTERS: tuple[str, ...] = tuple(load_vocabulary()["synonyms"])


@dataclass(frozen=True)
class Question:
    """A question with the kind of its answer."""

    text: str
    kind: AnswerKind
    focus: frozenset[str]
    """Stems that evidence should contain; empty if the question names nothing but the kind of its answer."""
    hints: frozenset[str]
    """Stems of words such as "take" or "cost" that evidence may contain."""

    @classmethod
    def parse(cls, text: str) -> "Question":
        """Classifies a question."""
        plain = _SCOPE.sub("", _last_question(" ".join(text[-_LONGEST_QUESTION:].replace("’", "'").split())))
        kind = _find_kind(plain, _KIND_PATTERNS)
        if kind is AnswerKind.ANY:
            kind = _find_kind(remove_accents(plain), _TYPED_PATTERNS)
        if kind is AnswerKind.ANY and _NOUN_QUESTION.search(plain):
            kind = next((_KIND_OF_VALUE[one.value] for one in MEANINGS if one.asked.search(plain)), kind)
        tokens = content_tokens(plain, is_question=True)
        hints = frozenset(token for token in tokens if token in HINTS)
        return cls(plain, kind, tokens - hints, hints)


def _find_kind(text: str, patterns: Sequence[tuple[AnswerKind, re.Pattern[str]]]) -> AnswerKind:
    return next((kind for kind, pattern in patterns if pattern.search(text)), AnswerKind.ANY)


def _last_question(text: str) -> str:
    """Returns what is asked at the end, without sentences before it and, in Spanish, words before the opening mark."""
    found = _SENTENCES_BEFORE.match(text)
    return text[found.end() :] if found else text


def content_tokens(text: str, *, is_question: bool = False) -> frozenset[str]:
    """Returns stems of content words with synonyms replaced by one word; Chinese as pairs of characters.

    Args:
        text: any text.
        is_question: whether words that only name the kind of answer are left out.
    """
    return frozenset(token for token, _, _ in iter_tokens(text, is_question=is_question))


def iter_tokens(text: str, *, is_question: bool = False) -> Iterator[tuple[str, int, int]]:
    """Yields the stems of content words with their spans."""
    for match in re.finditer(r"[^\W_]+(?:['’][^\W_]+)*", text):
        elided = _ELISION.match(match[0])
        start = match.start() + (elided.end() if elided else 0)
        word = text[start : match.end()].lower()
        if _CJK.search(word):
            yield from _cjk_tokens(word, start, is_question=is_question)
        elif _HANGUL.search(word):
            if len(word) >= _HANGUL_STEM and not (is_question and _HANGUL_TYPE_WORDS.match(word)):
                yield word[:_HANGUL_STEM], start, match.end()
        elif word not in STOPWORDS and word not in _OTHER_STOPWORDS and len(word) > 1:
            token = remove_accents(stem(word) if _is_agent(word) else _canonical(stem(word)))
            if not (is_question and (stem(word) in _TYPE_WORDS or token in _TYPE_WORDS)):
                yield token, start, match.end()


def _cjk_tokens(word: str, start: int, *, is_question: bool) -> Iterator[tuple[str, int, int]]:
    plain = _CJK_TYPE_WORDS.sub(lambda match: " " * len(match[0]), word) if is_question else word
    for run in _CJK.finditer(plain):
        for index in range(run.start(), run.end() - 1):
            yield plain[index : index + 2], start + index, start + index + 2


def _is_agent(word: str) -> bool:
    """Whether a noun such as "charger" only looks like a form of a verb that has synonyms."""
    return word.endswith(("er", "ers")) and word not in _synonym_words()


@cache
def _synonym_words() -> frozenset[str]:
    return frozenset(word for cluster in _CLUSTERS for word in cluster.split())


def _canonical(token: str) -> str:
    return _synonyms().get(token, token)


@cache
def _synonyms() -> dict[str, str]:
    return {stem(word): stem(cluster.split()[0]) for cluster in _CLUSTERS for word in cluster.split()}


HINTS = frozenset(
    _canonical(stem(word))
    for word in ("take", "last", "cost", "charge", "valid", "new", "now", "current", "pay", "due")
)


def question_words(text: str) -> frozenset[str]:
    """Returns the words of a question, by which a span that only repeats it is recognized."""
    return frozenset(split_words(text))

"""Guesses at answers from weak evidence: everyday synonyms, words with typing errors, and the passages before.

A guess scores below what counts as sure, whatever its evidence, so that it is never stated as fact.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

from experts.lite.answer_spans import Span, find_spans
from experts.lite.question_types import (
    HINTS,
    AnswerKind,
    Question,
    compile_pattern,
    content_tokens,
    iter_tokens,
    load_questions,
)
from experts.lite.text_processing import STOPWORDS, Sentence, stem

Guess = tuple[int, int, float]
"""Start, end and share of the question's words that have evidence."""

_SYNONYM_WEIGHT, _TYPO_WEIGHT = 0.75, 0.8
_TYPE_WORD_WEIGHT = 0.3
"""Weight of a word that names the kind of answer, such as "cost"."""
_LAST_WORD_FACTOR = 1.25
"""Factor of the weight of the last word, which mostly names the subject: "Who teaches the trumpet?"."""
_PRECEDING_WEIGHTS = (0.5, 0.3)
"""Share of the evidence of the passages before that holds for a passage, the nearest first."""
_FOLLOWING_WEIGHT = 0.5
"""The same of a short line below a short line, such as a role below a name."""
_REFERENCE_WEIGHT = 0.9
"""The same for a passage that refers to the one before: "It costs ..."."""
_CLAUSE_SHARE = 0.6
"""Share of the evidence of a span that its own clause must have."""
_MIN_EVIDENCE = 0.3
_NEEDED_EVIDENCE = {AnswerKind.CODE: 0.45, AnswerKind.YES_NO: 0.6}
"""The same for kinds that nearly every passage could answer."""
_MISSING_NAME_EVIDENCE = 0.75
"""Share of the other words that is needed if the text lacks a name of the question."""
_MISSING_KEY_FACTOR, _OUTDATED_FACTOR, _NO_AGENT_FACTOR, _NO_LIMIT_FACTOR = 0.6, 0.5, 0.7, 0.7
_DISTANCE_FACTOR = 0.001
"""Evidence that each character between a span and the question's words takes away."""
_HEADING_PASSAGES = 3
"""Passages at the beginning of a text whose dates and numbers hold for all of it."""
_SHORTEST_TYPO = 5
_LONGEST_VALUE = 120
_MOST_SPANS = 20

LIMIT_ASKED = compile_pattern("limit_asked")
LIMIT = compile_pattern("limit")
"""What precedes a date or time until which something is possible."""
_POINT_KINDS = frozenset({AnswerKind.DATE, AnswerKind.TIME})
_REFERENCE = re.compile(r"\b(?:it|its|they|their|them|this|these|he|she|his|her|there)\b", re.IGNORECASE)
_CLAUSE_BREAK = re.compile(r"[,;]\s(?!(?:who|which)\b)|\s(?:and|but|while|although)\s")
_LABEL = re.compile(r"(?P<label>[^\t:]{2,50})(?:\t|:\s)\s*(?P<value>\S.*)", re.DOTALL)
_NO_AGENT = re.compile(r"\b(?:from|in|at|near|for|than)\s+(?:the\s+)?(?:[A-Z]\w*\.\s+)?$")
_SHORT_LINE = re.compile(r"[^\t:.!?]{2,40}")
_RELATIVE = re.compile(r",?\s+who\b")
_MONEY_WORD = compile_pattern("money_word")
_ALTERNATIVES = {
    AnswerKind.MONEY: (AnswerKind.MONEY, AnswerKind.PERCENT),
    AnswerKind.MEASURE: (AnswerKind.MEASURE, AnswerKind.MONEY, AnswerKind.PERCENT),
    AnswerKind.DATE: (AnswerKind.DATE, AnswerKind.TIME),
    AnswerKind.TIME: (AnswerKind.TIME, AnswerKind.DATE),
    AnswerKind.WHERE: (AnswerKind.WHERE, AnswerKind.ADDRESS),
    AnswerKind.COUNT: (AnswerKind.COUNT, AnswerKind.DURATION),
}
"""Kinds of spans that answer a question as well, the best first."""
_FREE_KINDS = frozenset({AnswerKind.ANY, AnswerKind.WHY, AnswerKind.YES_NO})
_AMOUNT_KINDS = frozenset({AnswerKind.ANY, AnswerKind.CODE})
"""Kinds of questions that ask for an amount if they have a word for it: "What was left on the account?"."""
_VALUE_KINDS = frozenset({AnswerKind.WHO, AnswerKind.WHERE})
"""Kinds that the value behind a label answers as it is."""
_NAME_VALUE = re.compile(r"[A-ZÀ-ÖØ-Þ][^@]*")
_UNGUESSED_KINDS = frozenset({AnswerKind.EXTREME, AnswerKind.PAGE})
_VALUE_FIT = 0.8
_SUBJECT = re.compile(r"[A-ZÀ-ÖØ-Þ][a-zß-ÿ]{2,}(?=\s(?:is|was|has|had|will|can|[a-z]+(?:s|ed))\b)")
"""A single word at the beginning of a sentence that may be a name: "Kirsty is ..."."""
_ROW_CODE = re.compile(r"(?<![\w.,/-])(?=[\w./-]*\d)[A-Z0-9][\w/-]*(?:\.\d+)*(?![\w/-])")
_REASON = compile_pattern("reason")
_CURRENT = compile_pattern("current")
_COUNTED_KINDS = frozenset({AnswerKind.CODE, AnswerKind.COUNT})
"""Kinds whose first word names what is counted or numbered."""
_LABEL_KINDS = frozenset({AnswerKind.DATE, AnswerKind.MONEY, AnswerKind.CODE, AnswerKind.MEASURE})
"""Kinds that a text has many of, so that a word such as "date" alone is no evidence."""
_SUBJECT_KINDS = frozenset({AnswerKind.WHERE, AnswerKind.WHO, AnswerKind.WHY, AnswerKind.TIME, AnswerKind.DURATION})
"""Kinds of questions of which words such as "pay" are the subject: "Where can I pay?"."""
_CONTRACTION = re.compile(r"[a-z]+['’](?:d|ll|m|re|s|ve|t)", re.IGNORECASE)
_KEY = compile_pattern("key_word")
_FILLERS = frozenset(map(stem, load_questions()["filler_words"]))
"""Words of questions that say nothing about the subject."""
_NAME = re.compile(r"(?<=[a-z,]\s)[A-ZÀ-ÖØ-Þ][a-zß-ÿ]{3,}")
_PLANNED = compile_pattern("planned")
"""What precedes what was planned, which a later "now" supersedes."""
_FROM = re.compile(r"\bfrom\s+$")
_TO = re.compile(r"\s+to\s+")


@dataclass(frozen=True)
class _Unit:
    """A word or phrase of the question."""

    word: str
    """In lower case; empty for a phrase."""
    token: str
    """Stem of the word."""
    clusters: frozenset[int]
    weight: float
    is_weak: bool = False
    """Whether it says little about the subject: a word such as "cost"."""


@dataclass(frozen=True)
class _Evidence:
    """What the words of a text are evidence for."""

    words: frozenset[str]
    tokens: frozenset[str]
    clusters: frozenset[int]


@dataclass(frozen=True)
class _Share:
    """Strengths of the evidence for each word of the question: of a passage, and of its neighbours."""

    own: Sequence[float]
    neighbouring: Sequence[float]

    def of(self, units: Sequence[_Unit], total: float) -> float:
        """Returns the share of the words, by weight, that have evidence."""
        pairs = zip(units, self.own, self.neighbouring, strict=True)
        return sum(unit.weight * max(own, other) for unit, own, other in pairs) / total

    def has_first_word(self, units: Sequence[_Unit]) -> bool:
        """Whether there is evidence for the first word, which names what a code is of: "which platform"."""
        first = next((index for index, unit in enumerate(units) if unit.word and not unit.is_weak), None)
        return first is None or max(self.own[first], self.neighbouring[first]) > 0


def find_guess(question: Question, passages: Sequence[Sentence]) -> Guess | None:
    """Returns the span with most weak evidence; None with little.

    Args:
        question: any question but those for a page or the largest amount.
        passages: of the text, in order.
    """
    if question.kind in _UNGUESSED_KINDS or not passages:
        return None
    evidence = [_read_evidence(passage.text) for passage in passages]
    found = list(_units(question))
    if question.kind in _LABEL_KINDS and all(unit.is_weak for unit in found):
        return None
    units = _weigh([_correct(unit) for unit in found], evidence)
    total = sum(unit.weight for unit in units)
    if not total:
        return None
    known = frozenset().union(*(one.tokens for one in evidence))
    names = content_tokens(" ".join(_NAME.findall(question.text)))
    needed = _NEEDED_EVIDENCE.get(question.kind, _MIN_EVIDENCE)
    if names - known:
        needed = max(needed, _MISSING_NAME_EVIDENCE)
    strengths = [_strengths(units, one) for one in evidence]
    shares = [_Share(own, _neighbouring(strengths, passages, index)) for index, own in enumerate(strengths)]
    best: Guess | None = None
    for index in sorted(range(len(passages)), key=lambda index: -shares[index].of(units, total)):
        whole = shares[index].of(units, total)
        if whole < max(_MIN_EVIDENCE, best[2] if best else 0.0):
            break  # no span has more evidence than its passage
        passage = passages[index]
        if question.kind in _COUNTED_KINDS and not shares[index].has_first_word(units):
            continue
        for start, end, factor in _spans(question, passage.text):
            clause = _clause_strengths(units, passage.text, (start, end), shares[index].own)
            near = _Share(clause, shares[index].neighbouring).of(units, total)
            score = (_CLAUSE_SHARE * near + (1 - _CLAUSE_SHARE) * whole) * factor
            score *= _plausibility(question, passages, index, (start, end))
            score -= _DISTANCE_FACTOR * _distance(units, passage.text, (start, end))
            if best is None or score > best[2]:
                best = (passage.start + start, passage.start + end, score)
    return best if best and best[2] >= needed else None


@cache
def _clusters() -> tuple[dict[str, frozenset[int]], re.Pattern[str], dict[str, frozenset[int]]]:
    """Returns clusters by the stem of a word, a pattern of all phrases, and clusters by phrase."""
    lines: list[str] = json.loads((files(__package__) / "near_synonyms.json").read_text(encoding="utf-8"))
    words: dict[str, set[int]] = {}
    phrases: dict[str, set[int]] = {}
    for index, line in enumerate(lines):
        for entry in line.split(", "):
            if re.search(r"\W", entry):
                phrases.setdefault(entry, set()).add(index)
            else:
                words.setdefault(stem(entry), set()).add(index)
    longest_first = sorted(phrases, key=len, reverse=True)
    joined = "|".join(re.escape(one).replace(r"\ ", r"\s+(?:\w+\s+)?") for one in longest_first)
    return (
        {word: frozenset(found) for word, found in words.items()},
        re.compile(rf"\b(?:{joined})\b", re.IGNORECASE),
        {phrase: frozenset(found) for phrase, found in phrases.items()},
    )


def _phrase_clusters(text: str) -> Iterator[tuple[frozenset[int], Span]]:
    """Yields the clusters of the phrases of a text, such as "set us back", with their spans."""
    _, pattern, phrases = _clusters()
    for match in pattern.finditer(text):
        plain = match[0].lower().split()
        keys = (" ".join(plain), " ".join((plain[0], *plain[2:])), " ".join((*plain[:-2], plain[-1])))
        found = next((phrases[key] for key in keys if key in phrases), None)
        if found:
            yield found, match.span()


def _words(text: str) -> Iterator[tuple[str, str, int, int]]:
    """Yields canonical token, stem, start and end of the content words."""
    for token, start, end in iter_tokens(text):
        yield token, stem(text[start:end].lower()), start, end


def _units(question: Question) -> Iterator[_Unit]:
    words, _, _ = _clusters()
    covered = [match.span() for match in LIMIT_ASKED.finditer(question.text)] if question.kind in _POINT_KINDS else []
    for clusters, span in _phrase_clusters(question.text):
        covered.append(span)
        yield _Unit("", "", clusters, 1.0)
    for token, bare, start, end in _words(question.text):
        if any(first <= start and end <= last for first, last in covered):
            continue
        if bare in _FILLERS or _CONTRACTION.fullmatch(question.text, start, end):
            continue
        is_weak = token not in question.focus and not (question.kind in _SUBJECT_KINDS and token in HINTS)
        word = question.text[start:end].lower()
        yield _Unit(word, token, words.get(bare, frozenset()), _TYPE_WORD_WEIGHT if is_weak else 1.0, is_weak)


def _read_evidence(text: str) -> _Evidence:
    of_stem, _, _ = _clusters()
    words: set[str] = set()
    tokens: set[str] = set()
    clusters: set[int] = set()
    for token, bare, start, end in _words(text):
        words.add(text[start:end].lower())
        tokens.add(token)
        clusters |= of_stem.get(bare, frozenset())
    for found, _ in _phrase_clusters(text):
        clusters |= found
    return _Evidence(frozenset(words), frozenset(tokens), frozenset(clusters))


def _weigh(units: Sequence[_Unit], evidence: Sequence[_Evidence]) -> list[_Unit]:
    """Multiplies the weights by the rarity of what matches; weak words that match nothing are left out."""
    counts = Counter(token for one in evidence for token in one.tokens)
    clusters = Counter(cluster for one in evidence for cluster in one.clusters)
    weighed = []
    last = next((unit for unit in reversed(units) if not unit.is_weak), None)
    for unit in units:
        is_known = counts[unit.token] or any(clusters[one] for one in unit.clusters)
        if unit.is_weak and not is_known:
            continue
        importance = unit.weight * (_LAST_WORD_FACTOR if unit is last else 1.0)
        count = counts[unit.token] or min((clusters[one] for one in unit.clusters if clusters[one]), default=1)
        weighed.append(replace(unit, weight=importance * math.log(1 + len(evidence) / count)))
    return weighed


def _correct(unit: _Unit) -> _Unit:
    """Returns a word without synonyms with those of the word that it may be a typing error of."""
    if unit.clusters or len(unit.word) < _SHORTEST_TYPO:
        return unit
    meant = (clusters for word, clusters in _clusters()[0].items() if _is_typo(stem(unit.word), word))
    return replace(unit, clusters=next(meant, unit.clusters))


def _strengths(units: Sequence[_Unit], evidence: _Evidence) -> list[float]:
    return [_strength(unit, evidence) for unit in units]


def _strength(unit: _Unit, evidence: _Evidence) -> float:
    """Returns how well a text has a word of the question: itself, by a synonym, or with a typing error."""
    if unit.token in evidence.tokens:
        return 1.0
    if unit.clusters & evidence.clusters:
        return _SYNONYM_WEIGHT
    if len(unit.word) >= _SHORTEST_TYPO and any(_is_typo(unit.word, word) for word in evidence.words):
        return _TYPO_WEIGHT
    if len(unit.token) >= _SHORTEST_TYPO and any(_is_typo(unit.token, token) for token in evidence.tokens):
        return _TYPO_WEIGHT
    return 0.0


def _is_typo(one: str, other: str) -> bool:
    """Whether one letter is missing, added, wrong, or two are exchanged, behind the same first letter."""
    if one[0] != other[0] or abs(len(one) - len(other)) > 1 or len(other) < _SHORTEST_TYPO - 1:
        return False
    start = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    rest, wanted = one[start:], other[start:]
    return (
        rest[1:] == wanted[1:]
        or rest[1:] == wanted
        or rest == wanted[1:]
        or (rest[:2] == wanted[:2][::-1] and rest[2:] == wanted[2:])
    )


def _neighbouring(strengths: Sequence[Sequence[float]], passages: Sequence[Sentence], index: int) -> Sequence[float]:
    """Returns the evidence of the passages before, as far as it holds here, and of a line below a short one."""
    found = [0.0] * len(strengths[index])
    if index + 1 < len(passages) and all(_SHORT_LINE.fullmatch(one.text) for one in passages[index : index + 2]):
        found = [_FOLLOWING_WEIGHT * one for one in strengths[index + 1]]
    for step, share in enumerate(_PRECEDING_WEIGHTS, 1):
        if index < step:
            break
        weight = _REFERENCE_WEIGHT if step == 1 and _REFERENCE.search(passages[index].text) else share
        found = [max(old, weight * new) for old, new in zip(found, strengths[index - step], strict=True)]
    return found


def _clause_strengths(units: Sequence[_Unit], text: str, span: Span, own: Sequence[float]) -> Sequence[float]:
    """Returns the evidence of the clause of a span; of the whole passage for what is valid now and for weak words."""
    breaks = [match.span() for match in _CLAUSE_BREAK.finditer(text)]
    start = max((last for _, last in breaks if last <= span[0]), default=0)
    end = min((first for first, _ in breaks if first >= span[1]), default=len(text))
    if _CURRENT.search(text[start : span[0]]):
        return own
    inside = _strengths(units, _read_evidence(text[start:end]))
    return [whole if unit.is_weak else one for unit, one, whole in zip(units, inside, own, strict=True)]


def _distance(units: Sequence[_Unit], text: str, span: Span) -> int:
    """Returns the characters between a span and the nearest word of the question."""
    tokens = {unit.token for unit in units}
    found = [(start, end) for token, _, start, end in _words(text) if token in tokens]
    return min((max(0, span[0] - end, start - span[1]) for start, end in found), default=0)


def _plausibility(question: Question, passages: Sequence[Sentence], index: int, span: Span) -> float:
    text = passages[index].text
    before, after = text[: span[0]], text[span[1] :]
    around = " ".join(one.text for one in (*passages[:_HEADING_PASSAGES], *passages[max(0, index - 1) : index + 1]))
    factor = 1.0
    keys = content_tokens(" ".join(match[0] for match in _KEY.finditer(question.text)))
    if not keys <= content_tokens(around):
        factor *= _MISSING_KEY_FACTOR
    following = passages[index + 1].text if index + 1 < len(passages) else ""
    if _PLANNED.search(before) and (_CURRENT.search(after) or _CURRENT.search(following)):
        factor *= _OUTDATED_FACTOR
    if _FROM.search(before) and _TO.match(after) and question.kind is not AnswerKind.TIME:
        factor *= _OUTDATED_FACTOR
    if LIMIT_ASKED.search(question.text) and question.kind in _POINT_KINDS and not LIMIT.search(before):
        factor *= _NO_LIMIT_FACTOR
    if question.kind is AnswerKind.WHO and _NO_AGENT.search(before) and not _RELATIVE.match(after):
        factor *= _NO_AGENT_FACTOR
    return factor


def _spans(question: Question, text: str) -> Iterator[tuple[int, int, float]]:
    """Yields what may answer a question in a passage, with how well it fits."""
    is_amount = question.kind in _AMOUNT_KINDS and _MONEY_WORD.search(question.text)
    kind = AnswerKind.MONEY if is_amount else question.kind
    label = _LABEL.fullmatch(text)
    found = False
    for rank, one in enumerate(_ALTERNATIVES.get(kind, (kind,))):
        spans = [] if one in _FREE_KINDS else find_spans(replace(question, kind=one), text)
        if not spans and one is AnswerKind.CODE:
            spans = [match.span() for match in _ROW_CODE.finditer(text)]
        for start, end in spans[:_MOST_SPANS]:
            found = True
            yield start, end, 1.0 - 0.1 * rank
        if found and one is not AnswerKind.DATE:
            break
    if kind in _FREE_KINDS:
        reason = _REASON.search(text) if kind is AnswerKind.WHY else None
        start = reason.start() if reason else 0
        if label and len(label["value"]) <= _LONGEST_VALUE:
            start = label.start("value")
        yield start, len(text.rstrip(". ")), 1.0
    elif not found and label and kind in _VALUE_KINDS and _NAME_VALUE.fullmatch(label["value"]):
        yield label.start("value"), len(text), _VALUE_FIT
    if kind is AnswerKind.WHO and (subject := _SUBJECT.match(text)) and subject[0].lower() not in STOPWORDS:
        yield *subject.span(), _VALUE_FIT

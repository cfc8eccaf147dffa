"""Extractive question answering: the sentence most similar to the question, and in it the requested kind of entity."""

import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from experts.host.handler import Handler, Inputs, Outputs, Parameters, single
from experts.lite.entities import find_entities
from experts.lite.text_processing import Sentence, require_text, split_sentences, split_words, stem, stem_words

NO_ANSWER = "The text does not say."

_KINDS: tuple[tuple[re.Pattern[str], frozenset[str]], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), frozenset(kinds.split()))
    for pattern, kinds in (
        (r"\bhow much (?:is|are|was|were|does|do|did|will)\b|\b(?:price|cost|fee|salary|amount|total)\b", "MONEY"),
        (r"\b(?:what|which|how many) per\s?cent|\bpercentage\b|\bwhat share\b", "PERCENT"),
        (r"\b(?:at )?what time\b|\bwhen (?:does|do|is) .*\b(?:start|begin|open|close|end)", "TIME DATE"),
        (r"\bwhen\b|\b(?:what|which) (?:date|day|year|month|century)\b|\bdate\b", "DATE TIME"),
        (r"\bhow (?:many|old|long|tall|far|big|large|high|deep|heavy|often|fast)\b|\bwhat number\b", "NUMBER"),
        (r"\be-?mail\b", "EMAIL"),
        (r"\b(?:web ?site|url|web address)\b", "URL"),
        (
            r"\b(?:phone|telephone|fax|mobile) number\b|\bwhat is .*\b(?:phone|telephone)\s*\?|\bnumber .*\bcall\b",
            "PHONE",
        ),
        (r"\baddress\b|\bwhich street\b", "ADDRESS LOC"),
        (r"\b(?:company|organi[sz]ation|firm|agency|university|employer)\b", "ORG"),
        (r"\bwho(?:m|se)?\b|\bwhat (?:is|was) (?:the name|his name|her name)\b|\bwhich person\b", "PER ORG NAME"),
        (r"\bwhere\b|\b(?:what|which) (?:country|city|town|place|state|continent|capital)\b", "LOC ADDRESS NAME"),
    )
)
_NUMBER = re.compile(
    r"\b(?:\d+(?:[.,]\d+)*|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty|thirty|forty|fifty|"
    r"hundred|a dozen)(?:[ -](?:thousand|million|billion|hundred|years?|months?|weeks?|days?|hours?|minutes?|seconds?|"
    r"km|kilometres?|kilometers?|miles?|metres?|meters?|m|cm|feet|foot|kg|tons?|tonnes?|people|percent|%))*",
    re.IGNORECASE,
)
_NAME = re.compile(r"(?<![\w.])[A-ZÀ-ÖØ-Þ][\w'’-]*\w(?:[ ]+(?:of[ ]+|the[ ]+|de[ ]+)?[A-ZÀ-ÖØ-Þ][\w'’-]*\w){0,4}")
_QUESTION_NAME = re.compile(r"(?<=\s)[A-ZÀ-ÖØ-Þ][a-zß-ÿ]{3,}")
_COPULA = re.compile(r"\b(?:is|are|was|were|means|became|called|named|remains)\b[ \t]*:?", re.IGNORECASE)
_REASON = re.compile(
    r"\b(?:because(?: of)?|since|due to|as a result of|in order to|so that|thanks to)\b", re.IGNORECASE
)
_TIMESPAN = re.compile(r"\s*(?:to|and|until|till|-|–|—)\s*")
_HOW_MANY = re.compile(r"\bhow many ([\w-]+)", re.IGNORECASE)
_FIXED_FORMAT_KINDS = frozenset({"MONEY", "PERCENT", "EMAIL", "URL", "PHONE"})
"""Kinds with a fixed format: without a match there is no answer."""
_MIN_OVERLAP = 0.25
_ENTITY_FACTOR, _NAME_FACTOR, _SENTENCE_FACTOR = 0.9, 0.6, 0.5
_PRECEDING_SHARE = 0.25
_DISTANCE_STEP = 60


@dataclass(frozen=True)
class Answer:
    """A span of the text with its score."""

    text: str
    score: float
    start: int
    end: int


def question_answering(_model_id: str, _device: str) -> Handler:
    """Handler without a model to load."""
    return single(_answer)


def find_answer(question: str, context: str) -> Answer | None:
    """Returns the best span; None if the text has none of the question's names or too few of its words."""
    names = _QUESTION_NAME.findall(question)
    if names and not any(name.lower() in context.lower() for name in names):
        return None
    candidates = split_sentences(context)
    question_stems, kinds = set(stem_words(question)), classify_question(question)
    ranked = [
        pair
        for pair in sorted(_score_sentences(question_stems, candidates), key=lambda pair: -pair[0])
        if pair[0] >= _MIN_OVERLAP
    ]
    for overlap, sentence in ranked:
        for start, end in _rank_spans(kinds, question, question_stems, sentence):
            score = min(overlap, 1.0) * (_NAME_FACTOR if "NAME" in kinds else _ENTITY_FACTOR)
            return Answer(context[start:end], round(score, 4), start, end)
        if not kinds & _FIXED_FORMAT_KINDS:
            start, end = _find_relevant_part(question, question_stems, sentence)
            return Answer(context[start:end], round(min(overlap, 1.0) * _SENTENCE_FACTOR, 4), start, end)
    return None


def classify_question(question: str) -> frozenset[str]:
    """Returns the kinds of entity that can answer the question, by its question word; empty if any words can."""
    matches = ((match.start(), kinds) for pattern, kinds in _KINDS if (match := pattern.search(question)))
    return min(matches, key=lambda pair: pair[0], default=(0, frozenset[str]()))[1]


def find_spans(kinds: frozenset[str], text: str) -> list[tuple[int, int]]:
    """Returns spans of these kinds, specific kinds before generic ones."""
    spans = _merge_ranges([(entity.start, entity.end) for entity in find_entities(text) if entity.kind in kinds], text)
    if "NUMBER" in kinds:
        spans += [match.span() for match in _NUMBER.finditer(text)]
    if "NAME" in kinds:
        spans += [match.span() for match in _NAME.finditer(text) if stem_words(match[0]) and match.span() not in spans]
    return spans


def _answer(inputs: Inputs, _parameters: Parameters) -> Outputs:
    question = require_text(inputs["question"], "question")
    answer = find_answer(question, require_text(inputs["context"], "context"))
    if answer is None:
        return {"text": NO_ANSWER, "details": {"answer": "", "score": 0.0, "start": 0, "end": 0}}
    details = {"answer": answer.text, "score": answer.score, "start": answer.start, "end": answer.end}
    return {"text": " ".join(answer.text.split()), "details": details}


def _score_sentences(question_stems: set[str], candidates: list[Sentence]) -> Iterator[tuple[float, Sentence]]:
    """Scores sentences by overlap with the question, weighted by rarity, plus a share of the preceding one."""
    stem_sets = [set(stem_words(sentence.text)) for sentence in candidates]
    document_counts = Counter(word for stems in stem_sets for word in stems)
    weights = {word: math.log(1 + len(candidates) / (document_counts[word] or 0.5)) for word in question_stems}
    total = sum(weights.values()) or 1.0
    previous_stems: set[str] = set()
    for stems, sentence in zip(stem_sets, candidates, strict=True):
        own = sum(weights[word] for word in question_stems & stems)
        preceding = sum(weights[word] for word in (question_stems & previous_stems) - stems)
        yield (own + (_PRECEDING_SHARE * preceding if own else 0.0)) / total, sentence
        previous_stems = stems


def _merge_ranges(spans: list[tuple[int, int]], text: str) -> list[tuple[int, int]]:
    """Merges ranges such as "from 1961 to 1972" into one answer."""
    merged: list[tuple[int, int]] = []
    for start, end in spans:
        if merged and _TIMESPAN.fullmatch(text, merged[-1][1], start):
            merged[-1] = (merged[-1][0], end)
        else:
            merged.append((start, end))
    return merged


def _rank_spans(
    kinds: frozenset[str], question: str, question_stems: set[str], sentence: Sentence
) -> Iterator[tuple[int, int]]:
    """Returns entities of the requested kind that the question does not contain, best first."""
    text, question_words = sentence.text, set(split_words(question))
    spans = [span for span in find_spans(kinds, text) if not set(split_words(text[slice(*span)])) <= question_words]
    positions = [match.start() for match in re.finditer(r"\w+", text) if set(stem_words(match[0])) & question_stems]
    middle = sum(positions) / len(positions) if positions else 0.0
    counted_noun = _HOW_MANY.search(question)

    def sort_key(span: tuple[int, int]) -> tuple[bool, bool, bool, float]:
        start, end = span
        is_agent = "PER" in kinds and text[:start].rstrip().endswith((" by", " was", " is"))
        has_counted_noun = counted_noun and stem(counted_noun[1].lower()) in stem_words(
            text[start : end + len(counted_noun[1]) + 1]
        )
        follows_question_word = "DATE" in kinds and question_stems.intersection(stem_words(text[:start])[-1:])
        return (
            not is_agent,
            not has_counted_noun,
            not follows_question_word,
            abs((start + end) / 2 - middle) // _DISTANCE_STEP,
        )

    for start, end in sorted(spans, key=sort_key):
        yield sentence.start + start, sentence.start + end


def _find_relevant_part(question: str, question_stems: set[str], sentence: Sentence) -> tuple[int, int]:
    """Returns the relevant part of a sentence: the reason, the complement of "is", or the whole."""
    reason = re.match(r"\s*why\b", question, re.IGNORECASE)
    match = (_REASON if reason else _COPULA).search(sentence.text)
    length = len(sentence.text.rstrip(".!?…\"'”’ "))
    if not match:
        return sentence.start, sentence.end
    if reason:
        return sentence.start + match.start(), sentence.start + length
    before, after = (
        set(stem_words(part)) & question_stems
        for part in (sentence.text[: match.start()], sentence.text[match.end() :])
    )
    if after and not before and match.start():
        return sentence.start, sentence.start + len(sentence.text[: match.start()].rstrip())
    start = match.end() + len(sentence.text[match.end() :]) - len(sentence.text[match.end() :].lstrip())
    return (
        (sentence.start + start, sentence.start + length)
        if before and start < length
        else (sentence.start, sentence.end)
    )

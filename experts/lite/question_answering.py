"""Extractive question answering: the sentence most similar to the question, and in it the requested kind of entity."""

import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from experts.host.handler import Handler, Inputs, Outputs, Parameters, single
from experts.lite.entities import entities
from experts.lite.sentences import Sentence, required, sentences, stem, stems, words

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
_ASKED_NAME = re.compile(r"(?<=\s)[A-ZÀ-ÖØ-Þ][a-zß-ÿ]{3,}")
_COPULA = re.compile(r"\b(?:is|are|was|were|means|became|called|named|remains)\b[ \t]*:?", re.IGNORECASE)
_REASON = re.compile(
    r"\b(?:because(?: of)?|since|due to|as a result of|in order to|so that|thanks to)\b", re.IGNORECASE
)
_TIMESPAN = re.compile(r"\s*(?:to|and|until|till|-|–|—)\s*")
_HOW_MANY = re.compile(r"\bhow many ([\w-]+)", re.IGNORECASE)
_EXACT = frozenset({"MONEY", "PERCENT", "EMAIL", "URL", "PHONE"})
"""Kinds with a fixed format: without a match there is no answer."""
_LEAST = 0.25
_SURE, _VAGUE, _SENTENCE = 0.9, 0.6, 0.5
_NEIGHBOUR = 0.25
_NEAR = 60


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


def find(question: str, context: str) -> Answer | None:
    """Returns the best span; None if the text has none of the question's names or too few of its words."""
    names = _ASKED_NAME.findall(question)
    if names and not any(name.lower() in context.lower() for name in names):
        return None
    found = sentences(context)
    asked, kinds = set(stems(question)), wanted(question)
    likely = [pair for pair in sorted(_overlaps(asked, found), key=lambda pair: -pair[0]) if pair[0] >= _LEAST]
    for overlap, sentence in likely:
        for start, end in _typed(kinds, question, asked, sentence):
            sure = min(overlap, 1.0) * (_VAGUE if "NAME" in kinds else _SURE)
            return Answer(context[start:end], round(sure, 4), start, end)
        if not kinds & _EXACT:
            start, end = _rest(question, asked, sentence)
            return Answer(context[start:end], round(min(overlap, 1.0) * _SENTENCE, 4), start, end)
    return None


def wanted(question: str) -> frozenset[str]:
    """Returns the kinds of entity that can answer the question, by its question word; empty if any words can."""
    matches = ((match.start(), kinds) for pattern, kinds in _KINDS if (match := pattern.search(question)))
    return min(matches, key=lambda pair: pair[0], default=(0, frozenset[str]()))[1]


def typed(kinds: frozenset[str], text: str) -> list[tuple[int, int]]:
    """Returns spans of these kinds, specific kinds before generic ones."""
    found = _joined([(one.start, one.end) for one in entities(text) if one.kind in kinds], text)
    if "NUMBER" in kinds:
        found += [match.span() for match in _NUMBER.finditer(text)]
    if "NAME" in kinds:
        found += [match.span() for match in _NAME.finditer(text) if stems(match[0]) and match.span() not in found]
    return found


def _answer(inputs: Inputs, _parameters: Parameters) -> Outputs:
    question = required(inputs["question"], "question")
    answer = find(question, required(inputs["context"], "context"))
    if answer is None:
        return {"text": NO_ANSWER, "details": {"answer": "", "score": 0.0, "start": 0, "end": 0}}
    details = {"answer": answer.text, "score": answer.score, "start": answer.start, "end": answer.end}
    return {"text": " ".join(answer.text.split()), "details": details}


def _overlaps(asked: set[str], found: list[Sentence]) -> Iterator[tuple[float, Sentence]]:
    """Scores sentences by overlap with the question, weighted by rarity, plus a share of the preceding one."""
    bags = [set(stems(sentence.text)) for sentence in found]
    spread = Counter(word for bag in bags for word in bag)
    weights = {word: math.log(1 + len(found) / (spread[word] or 0.5)) for word in asked}
    total = sum(weights.values()) or 1.0
    before: set[str] = set()
    for bag, sentence in zip(bags, found, strict=True):
        own = sum(weights[word] for word in asked & bag)
        lent = sum(weights[word] for word in (asked & before) - bag)
        yield (own + (_NEIGHBOUR * lent if own else 0.0)) / total, sentence
        before = bag


def _joined(spans: list[tuple[int, int]], text: str) -> list[tuple[int, int]]:
    """Merges ranges such as "from 1961 to 1972" into one answer."""
    joined: list[tuple[int, int]] = []
    for start, end in spans:
        if joined and _TIMESPAN.fullmatch(text, joined[-1][1], start):
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((start, end))
    return joined


def _typed(kinds: frozenset[str], question: str, asked: set[str], sentence: Sentence) -> Iterator[tuple[int, int]]:
    """Returns entities of the requested kind that the question does not contain, best first."""
    text, named = sentence.text, set(words(question))
    spans = [span for span in typed(kinds, text) if not set(words(text[slice(*span)])) <= named]
    places = [match.start() for match in re.finditer(r"\w+", text) if set(stems(match[0])) & asked]
    middle = sum(places) / len(places) if places else 0.0
    counted = _HOW_MANY.search(question)

    def order(span: tuple[int, int]) -> tuple[bool, bool, bool, float]:
        start, end = span
        by = "PER" in kinds and text[:start].rstrip().endswith((" by", " was", " is"))
        of = counted and stem(counted[1].lower()) in stems(text[start : end + len(counted[1]) + 1])
        follows = "DATE" in kinds and asked.intersection(stems(text[:start])[-1:])
        return not by, not of, not follows, abs((start + end) / 2 - middle) // _NEAR

    for start, end in sorted(spans, key=order):
        yield sentence.start + start, sentence.start + end


def _rest(question: str, asked: set[str], sentence: Sentence) -> tuple[int, int]:
    """Returns the relevant part of a sentence: the reason, the complement of "is", or the whole."""
    reason = re.match(r"\s*why\b", question, re.IGNORECASE)
    match = (_REASON if reason else _COPULA).search(sentence.text)
    bare = len(sentence.text.rstrip(".!?…\"'”’ "))
    if not match:
        return sentence.start, sentence.end
    if reason:
        return sentence.start + match.start(), sentence.start + bare
    before, after = (
        set(stems(part)) & asked for part in (sentence.text[: match.start()], sentence.text[match.end() :])
    )
    if after and not before and match.start():
        return sentence.start, sentence.start + len(sentence.text[: match.start()].rstrip())
    start = match.end() + len(sentence.text[match.end() :]) - len(sentence.text[match.end() :].lstrip())
    return (
        (sentence.start + start, sentence.start + bare) if before and start < bare else (sentence.start, sentence.end)
    )

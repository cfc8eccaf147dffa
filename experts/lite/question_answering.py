"""Extractive question answering: the passage with most of the question's words, and in it a span of the right kind.

An answer has a score. Below a threshold there is none: the result is then that no answer was found, never that the
text does not state one.
"""

import math
import re
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

from experts.host.handler import Handler, Inputs, Outputs, Parameters, single
from experts.lite.answer_spans import Span, find_spans
from experts.lite.bill_fields import find_bill_field, find_extreme
from experts.lite.guesses import LIMIT, LIMIT_ASKED, find_guess
from experts.lite.qualifiers import lacks_qualifier
from experts.lite.question_types import (
    FIXED_FORMAT_KINDS,
    AnswerKind,
    Question,
    compile_pattern,
    content_tokens,
    iter_tokens,
)
from experts.lite.text_processing import Sentence, require_text, split_sentences

SURE = 0.6
"""Score from which an answer is stated as a fact rather than as a guess."""
WEAK_FIELD = 0.6
"""Score of a field of a bill below which a passage may answer better."""
UNQUALIFIED_FACTOR = 0.55
"""Factor of the score of an answer that lacks a word that narrows the question down."""
_MIN_COVERAGE = 0.34
"""Share of the question's words, weighted by rarity, that a passage must have."""
_MIN_FREE = {AnswerKind.ANY: 0.5, AnswerKind.WHY: 0.5, AnswerKind.YES_NO: 0.34}
"""The same for questions whose kind no span has."""
_NO_FOCUS_COVERAGE = 0.5
"""Assumed share where the question names nothing but the kind of its answer."""
_PRECEDING_SHARE, _HINT_SHARE = 0.4, 0.15
_LABEL_SHARE = 0.3
_LABEL_WORDS = re.compile(r"[^\W_]+")
_SHORT_TEXT_WORDS = 60
_LONE_SPAN_SCORE, _LONE_FIXED_SCORE, _GUESS_SCORE = 0.35, 0.6, 0.25
_BEST_GUESS = 0.55
_OLD_SHARE = 0.8
"""Share of the score of an unsure answer from the question's own words that a guess must have to replace it."""
_AMBIGUITY_FACTOR = 0.55
_OUTDATED_FACTOR = 0.4
_RIVAL_SHARE = 0.9
"""Share of the best coverage from which a span of another passage makes an answer ambiguous."""
_DOUBTFUL_SUPPORT = 0.44
"""So that the answer is at most a guess."""
_DISTANCE_STEP, _PRECEDING_PENALTY = 25, 25
_LONGEST_COMPLEMENT = 14
_FACTORS = {
    **dict.fromkeys(FIXED_FORMAT_KINDS, 0.95),
    AnswerKind.DATE: 0.9,
    AnswerKind.TIME: 0.9,
    AnswerKind.COUNT: 0.9,
    AnswerKind.DURATION: 0.9,
    AnswerKind.MEASURE: 0.9,
    AnswerKind.MONEY: 0.85,
    AnswerKind.CODE: 0.95,
    AnswerKind.WHO: 0.8,
    AnswerKind.WHERE: 0.75,
}
_DEFAULT_FACTOR = 0.6
_UNTYPED_KINDS = frozenset({AnswerKind.ANY, AnswerKind.WHY, AnswerKind.YES_NO})
_NAMED_KINDS = frozenset({AnswerKind.WHO, AnswerKind.WHERE})
"""Kinds of which texts have many spans, so that a question without further words says too little."""
_AMOUNT_KINDS = frozenset({AnswerKind.MONEY, AnswerKind.COUNT})
_CLAUSE_KINDS = _AMOUNT_KINDS | {
    AnswerKind.TIME, AnswerKind.DATE, AnswerKind.DURATION, AnswerKind.MEASURE, AnswerKind.PERCENT,
}  # fmt: skip
"""Kinds whose spans belong to the clause that they are in."""
_CONJUNCTION = re.compile(r"\s(?:and|but|while|und|aber|et|mais|y|pero)\s", re.IGNORECASE)
_CLAUSE_BREAK = re.compile(r"[,;:]\s|[，；：]|\s(?:and|but|while|und|aber|et|mais|y|pero)\s")
_LONE_KINDS = frozenset(
    {AnswerKind.WHERE, AnswerKind.DATE, AnswerKind.TIME, AnswerKind.MONEY, AnswerKind.ADDRESS, AnswerKind.PERCENT}
)

_QUESTION_NAME = re.compile(r"(?<=[a-z,]\s)[A-ZÀ-ÖØ-Þ][a-zß-ÿ]{3,}")
_KEY_WORD = compile_pattern("key_word")
_CHOICE = re.compile(
    r"\W*which (?:one|of|text|file|letter|document|offer|review|recording|page|picture)\b", re.IGNORECASE
)
"""Questions that ask for one of several texts rather than for a part of one."""
_COPULA, _REASON = compile_pattern("copula"), compile_pattern("reason")
_SUPERSEDED, _CURRENT = compile_pattern("superseded"), compile_pattern("current")
_PLANNED = compile_pattern("planned")
_ASKS_FOR_OLD = re.compile(r"\b(?:old|original(?:ly)?|before|previous(?:ly)?|former(?:ly)?|first|was)\b", re.IGNORECASE)
_FROM_TO = re.compile(r"\b(?:mov|chang|postpon|reschedul|shift|push|verschoben)\w*\b.{0,40}\bfrom\s+$", re.IGNORECASE)
_FINAL_PREPOSITION = re.compile(r"\b(with|by|from|to|for|of|under|at)\s*\?*$", re.IGNORECASE)
_NO_AGENT = re.compile(r"\b(?:in|at|on|to|from|for|near|of)\s+(?:the\s+|[A-Z]\w*\.\s+)?$")
"""What precedes a name that does nothing."""
_AGENT = re.compile(r"\b(?:by|is|was|are|were|von|par|por|is called|am)\s*(?:the\s+)?$", re.IGNORECASE)
_CLAUSE_END = re.compile(
    r"[.;!?\n\t]|,\s+(?:and|but|which|who|while)\b|\s+(?:and then|but|because|so that|before|until)\s"
)
_CONTINUATION = re.compile(
    r"(?:and|or|but|which|who|that|than|so|because|in|on|at|to|for|from|with|und|et|y)\b|\d+$", re.IGNORECASE
)
"""How a complement begins that answers nothing: with the next clause or a preposition, or as a bare number."""
_SHORT_LINE = 45
_LABELLED = re.compile(r"[A-ZÀ-ÖØ-Þ][^\W\d_]+(?: [^\W\d_]+){0,2}: ")
"""How a line with a label begins, which is a passage of its own."""
_LONGEST_PASSAGE, _MOST_SPANS = 500, 20


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


def describe_no_answer(question: str, file: str = "") -> str:
    """Returns the text of a result without an answer."""
    where = f" in {file}" if file else ""
    return f"I found no answer to “{' '.join(question.split())[:200]}”{where}."


def find_answer(question: str, context: str) -> Answer | None:
    """Returns the best span; None without enough evidence."""
    parsed = Question.parse(question)
    answer = _find_best(parsed, context)
    if answer is None or not is_unqualified(parsed, context, answer.start, answer.end):
        return answer
    return replace(answer, score=round(answer.score * UNQUALIFIED_FACTOR, 4))


def is_unqualified(question: Question, context: str, start: int, end: int) -> bool:
    """Whether an answer lacks a word that narrows the question down; a passage of its own has the label before it."""
    passages = split_passages(context)
    index = next((index for index, one in enumerate(passages) if one.start <= start < one.end), None)
    if index is None:
        return lacks_qualifier(question, context, start, end)
    first = passages[index].start
    if (first, passages[index].end) == (start, end) and index:
        first = passages[index - 1].start
    return lacks_qualifier(question, context[first : passages[index].end], start - first, end - first)


def _find_best(parsed: Question, context: str) -> Answer | None:
    if parsed.kind is AnswerKind.EXTREME:
        return _span_answer(find_extreme(parsed, context), context)
    field, passage = _span_answer(find_bill_field(parsed, context), context), None
    if field is None or field.score < WEAK_FIELD:
        passage = find_passage_answer(parsed, context)
    if field and passage and passage.text == field.text:
        return field
    return max((one for one in (field, passage) if one), key=lambda one: one.score, default=None)


def find_passage_answer(question: Question, context: str) -> Answer | None:
    """Answers from the passages of a text; if no answer is sure, with a guess. None without enough evidence."""
    passages = split_passages(context)
    answer = _find_supported(question, passages, context)
    if answer and answer.score >= SURE:
        return answer
    guess = find_guess(question, passages)
    if guess is None:
        return answer
    start, end, evidence = guess
    score = min(_BEST_GUESS, round(evidence * _DEFAULT_FACTOR, 4))
    if answer and (answer.score * _OLD_SHARE > score or start <= answer.start < answer.end <= end):
        return answer
    return Answer(context[start:end], score, start, end)


def _find_supported(question: Question, units: Sequence[Sentence], context: str) -> Answer | None:
    """Answers from the passages that share the question's own words."""
    names = _QUESTION_NAME.findall(question.text)
    if names and not any(name.lower() in context.lower() for name in names):
        return None
    if question.kind in _UNTYPED_KINDS:
        return _find_free_answer(question, units, context)
    candidates = list(_candidates(question, units))
    covered = [one for one in candidates if one.coverage >= _MIN_COVERAGE]
    if not covered:
        return _find_lone_span(question, candidates, context)
    best = max(covered, key=lambda one: one.rank)
    text = context[best.start : best.end]
    ambiguity = _AMBIGUITY_FACTOR if _is_ambiguous(question, best, covered, context) else 1.0
    currency = _OUTDATED_FACTOR if best.currency < 0 else 1.0
    score = min(1.0, best.coverage) * _FACTORS.get(question.kind, _DEFAULT_FACTOR) * ambiguity * currency
    return Answer(text, round(score, 4), best.start, best.end)


def _is_ambiguous(question: Question, best: "_Candidate", covered: Sequence["_Candidate"], context: str) -> bool:
    """Whether another span has as much evidence, or a name is one of several without the role that is asked for."""
    if (not question.focus and question.kind in _NAMED_KINDS) or best.role < 0:
        return True
    text = context[best.start : best.end]
    rivals = [one for one in covered if context[one.start : one.end] != text]
    if question.kind in _NAMED_KINDS and best.role <= 0 and any(one.passage == best.passage for one in rivals):
        return True
    return any(
        one.rank[:-1] == best.rank[:-1]
        or (
            one.passage != best.passage
            and (one.currency, one.role) == (best.currency, best.role)
            and one.coverage >= _RIVAL_SHARE * best.coverage
        )
        for one in rivals
    )


def coverage_of(question: Question, context: str) -> float:
    """Returns the largest share of the question's words in a passage of the text."""
    return max((coverage for coverage, _ in _score_passages(question, split_passages(context))), default=0.0)


def split_passages(text: str) -> list[Sentence]:
    """Returns sentences; lines of tables and short lines such as headings are passages of their own."""
    passages: list[Sentence] = []
    for sentence in _cut(split_sentences(text)):
        start = 0
        lines = list(re.finditer(r"[^\n]+", sentence.text))
        for line, following in zip(lines, [*lines[1:], None], strict=True):
            if following is None or _ends_passage(line[0], following[0]):
                piece = sentence.text[start : line.end()]
                offset = sentence.start + start + len(piece) - len(piece.lstrip())
                if piece.strip():
                    passages.append(Sentence(piece.strip(), offset, offset + len(piece.strip())))
                start = line.end()
    return passages


def _cut(sentences: Sequence[Sentence]) -> Iterator[Sentence]:
    """Yields sentences in pieces that patterns are matched on in time."""
    for sentence in sentences:
        for start in range(0, len(sentence.text), _LONGEST_PASSAGE):
            piece = sentence.text[start : start + _LONGEST_PASSAGE]
            yield Sentence(piece, sentence.start + start, sentence.start + start + len(piece))


@dataclass(frozen=True)
class _Candidate:
    coverage: float
    rank: tuple[float, ...]
    """Coverage with currency, then the features of the span."""
    passage: int
    """Start of its passage."""
    start: int
    end: int

    @property
    def currency(self) -> float:
        return self.rank[1]

    @property
    def role(self) -> float:
        return self.rank[2]


def _ends_passage(line: str, following: str) -> bool:
    has_cells = "\t" in line or "\t" in following
    return (
        has_cells or _LABELLED.match(following) is not None or (len(line) < _SHORT_LINE and not following[:1].islower())
    )


def _answer(inputs: Inputs, _parameters: Parameters) -> Outputs:
    question = require_text(inputs["question"], "question")
    answer = find_answer(question, require_text(inputs["context"], "context"))
    if answer is None:
        details = {"answer": "", "score": 0.0, "start": 0, "end": 0}
        return {"text": describe_no_answer(question), "details": details}
    details = {"answer": answer.text, "score": answer.score, "start": answer.start, "end": answer.end}
    return {"text": " ".join(answer.text.split()), "details": details}


def _span_answer(found: tuple[int, int, float] | None, context: str) -> Answer | None:
    return Answer(context[found[0] : found[1]], found[2], found[0], found[1]) if found else None


def _score_passages(
    question: Question, passages: Sequence[Sentence], answering: Container[Sentence] = ()
) -> Iterator[tuple[float, Sentence]]:
    """Scores passages by overlap with the question, weighted by rarity, plus a share of the preceding one.

    Args:
        question: with the words that count.
        passages: in text order.
        answering: passages with spans of the question's kind, whose words count for no other passage.
    """
    token_sets = [content_tokens(passage.text) for passage in passages]
    counts = Counter(token for tokens in token_sets for token in tokens)
    weights = {token: math.log(1 + len(passages) / (counts[token] or 0.5)) for token in question.focus}
    total = sum(weights.values())
    previous: frozenset[str] = frozenset()
    for tokens, passage in zip(token_sets, passages, strict=True):
        own = sum(weights[token] for token in question.focus & tokens)
        preceding = sum(weights[token] for token in (question.focus & previous) - tokens)
        base = (own + _PRECEDING_SHARE * preceding) / total if total else _NO_FOCUS_COVERAGE
        hinted = _HINT_SHARE if question.hints & tokens and base else 0.0
        labelled = _LABEL_SHARE if base and _is_label_in(passage.text, question.text) else 0.0
        yield min(1.0, base + hinted + labelled), passage
        previous = frozenset() if passage in answering else tokens


def _is_label_in(passage: str, question: str) -> bool:
    """Whether the first cell of a row, such as "Check-out", is in the question."""
    label = " ".join(_LABEL_WORDS.findall(passage.partition("\t")[0].lower()))
    return "\t" in passage and bool(label) and f" {label} " in f" {' '.join(_LABEL_WORDS.findall(question.lower()))} "


def _candidates(question: Question, passages: Sequence[Sentence]) -> Iterator[_Candidate]:
    found = {passage: spans for passage in passages if (spans := find_spans(question, passage.text)[:_MOST_SPANS])}
    keys, before = _key_tokens(question), dict(zip(passages[1:], passages, strict=False))
    after = {one: following.text for one, following in pairwise(passages)}
    limits = question.kind in {AnswerKind.DATE, AnswerKind.TIME} and LIMIT_ASKED.search(question.text) is not None
    for whole, passage in _score_passages(question, passages, found):
        for start, end in found.get(passage, ()):
            features = _features(question, passage.text, (start, end), after.get(passage, ""))
            is_supported = keys <= content_tokens(f"{passage.text} {before[passage].text if passage in before else ''}")
            if limits and "\t" not in passage.text:
                is_supported &= LIMIT.search(passage.text[:start]) is not None
            support = _DOUBTFUL_SUPPORT
            if is_supported:
                support = _support(question, passage.text, (start, end), found[passage])
            coverage = whole * support
            rank = (round(coverage + 0.2 * features[0], 4), *features)
            yield _Candidate(coverage, rank, passage.start, passage.start + start, passage.start + end)


def _key_tokens(question: Question) -> frozenset[str]:
    """Returns the weekdays, months, names and numbers of a question, which no other word stands for."""
    words = [match[0] for pattern in (_KEY_WORD, _QUESTION_NAME) for match in pattern.finditer(question.text)]
    return content_tokens(" ".join(words)) & question.focus


def _support(question: Question, text: str, span: Span, spans: Sequence[Span]) -> float:
    """Returns the share of a passage's coverage that holds for a span.

    It is lower if the clause of another span has words of the question that its own clause has not; for an amount also
    if the other words of the question are missing, or in another part of the sentence.
    """
    if question.kind not in _CLAUSE_KINDS or not question.focus:
        return 1.0
    others = question.focus - content_tokens(text[slice(*span)])
    inside = others & _clause_tokens(text, span)
    if question.kind in _AMOUNT_KINDS and others and not (others & content_tokens(text) and inside):
        return _DOUBTFUL_SUPPORT
    own = question.focus & _clause_tokens(text, span)
    is_best = all(question.focus & _clause_tokens(text, other) <= own for other in spans)
    following = _CONJUNCTION.search(text, span[1])
    until = following.start() if following else len(text)
    is_about_later = not question.focus & content_tokens(text[until:]) <= content_tokens(text[:until])
    return 1.0 if is_best and not is_about_later else _DOUBTFUL_SUPPORT


@lru_cache(maxsize=64)
def _clause_tokens(text: str, span: Span) -> frozenset[str]:
    """Returns the content words around a span, up to the next commas or conjunctions."""
    breaks = list(_CLAUSE_BREAK.finditer(text))
    start = max((match.end() for match in breaks if match.end() <= span[0]), default=0)
    end = min((match.start() for match in breaks if match.start() >= span[1]), default=len(text))
    return content_tokens(text[start : span[0]] + " " + text[span[1] : end])


def _features(question: Question, text: str, span: Span, following: str) -> tuple[float, ...]:
    """Returns what speaks for a span within its passage, the most important first; larger is better."""
    start, end = span
    before, after = text[:start], text[end:]
    found = [(first, last) for token, first, last in iter_tokens(text) if token in question.focus]
    distance = min((_distance(question, span, word) for word in found), default=0)
    role = 0.0
    if question.kind is AnswerKind.WHO:
        preposition = _FINAL_PREPOSITION.search(question.text)
        if preposition:
            role = 1.0 if re.search(rf"\b{preposition[1]}\s+(?:\w+\.?\s+)?$", before, re.IGNORECASE) else -1.0
        else:
            role = 1.0 if _AGENT.search(before) or re.match(r",?\s+who\b", after) else 0.0
            role = -1.0 if _NO_AGENT.search(before) else role
    if question.kind in {AnswerKind.MEASURE, AnswerKind.COUNT, AnswerKind.MONEY}:
        noun = re.match(r"\s+(?:of\s+|for\s+)?([\w-]+)", after)
        role = 1.0 if noun and content_tokens(noun[1]) & question.focus else 0.0
    return (_currency(question, text, span, following), role, -(distance // _DISTANCE_STEP), -float(distance))


def _distance(question: Question, span: Span, word: Span) -> int:
    """Returns the characters between a span and a word; only agents may as well precede what they belong to."""
    if span[0] >= word[0]:
        return max(0, span[0] - word[1])
    return word[0] - span[1] + (0 if question.kind is AnswerKind.WHO else _PRECEDING_PENALTY)


def _currency(question: Question, text: str, span: Span, following: str) -> float:
    """Returns 1 for what is valid now, -1 for what has been moved or cancelled, 0 if the passage tells neither."""
    if _ASKS_FOR_OLD.search(question.text):
        return 0.0
    before, after = text[: span[0]], text[span[1] :]
    if _FROM_TO.search(before) or (_PLANNED.search(before) and _CURRENT.search(after + following)):
        return -1.0
    if _SUPERSEDED.search(after) and not _CURRENT.search(before):
        return -1.0
    return 1.0 if _CURRENT.search(before) else 0.0


def _find_lone_span(question: Question, candidates: Sequence[_Candidate], context: str) -> Answer | None:
    """Returns the only span of the kind, if the text is short or the kind has a fixed format."""
    distinct = {context[one.start : one.end] for one in candidates}
    if not candidates or len(distinct) > 1:
        return None
    one = candidates[0]
    if question.kind in FIXED_FORMAT_KINDS:
        return Answer(context[one.start : one.end], _LONE_FIXED_SCORE, one.start, one.end)
    is_short = len(context.split()) <= _SHORT_TEXT_WORDS
    if question.kind in _LONE_KINDS and is_short:
        score = _GUESS_SCORE if question.kind is AnswerKind.WHERE else _LONE_SPAN_SCORE
        return Answer(context[one.start : one.end], score, one.start, one.end)
    return None


def _find_free_answer(question: Question, passages: Sequence[Sentence], context: str) -> Answer | None:
    """Answers a question whose kind no span has: with the reason, the complement of a verb, or the passage."""
    ranked = sorted(_score_passages(question, passages), key=lambda pair: -pair[0])
    if not ranked or not question.focus or ranked[0][0] < _MIN_FREE[question.kind]:
        return None
    coverage, passage = ranked[0]
    start, end, is_exact = _find_relevant_part(question, passage)
    has_rival = len(ranked) > 1 and ranked[1][0] >= _RIVAL_SHARE * coverage
    is_sure = is_exact and not has_rival and not _CHOICE.match(question.text)
    score = coverage * (_DEFAULT_FACTOR if is_sure else _DEFAULT_FACTOR / 2)
    return Answer(context[start:end], round(score, 4), start, end)


def _find_relevant_part(question: Question, passage: Sentence) -> tuple[int, int, bool]:
    """Returns the relevant part of a passage, and whether it is more than a guess."""
    text = passage.text
    length = len(text.rstrip(".!?…\"'”’ "))
    if question.kind is AnswerKind.WHY:
        reason = _REASON.search(text)
        start = reason.start() if reason else 0
        return passage.start + start, passage.start + length, reason is not None
    if question.kind is AnswerKind.YES_NO:
        return passage.start, passage.start + length, False
    if complement := _find_complement(question, text, length):
        is_clear = not _CONTINUATION.match(text[slice(*complement)]) and (len(question.focus) > 1 or "\t" in text)
        return passage.start + complement[0], passage.start + complement[1], is_clear
    return passage.start, passage.start + length, False


def _find_complement(question: Question, text: str, length: int) -> Span | None:
    """Returns what follows the question's last word or "is"; what precedes "is" if the question's words follow it."""
    if copula := _COPULA.search(text):
        before = question.focus & content_tokens(text[: copula.start()])
        after = question.focus & content_tokens(text[copula.end() :])
        if after and not before and copula.start():
            return 0, len(text[: copula.start()].rstrip())
        if before and not after and copula.end() < length:
            return _trim(text, copula.end(), length)
    spans = [(first, last) for token, first, last in iter_tokens(text) if token in question.focus]
    if not spans:
        return None
    start = spans[-1][1]
    stop = _CLAUSE_END.search(text, start)
    end = min(stop.start() if stop else length, length)
    words = text[start:end].split()
    return _trim(text, start, end) if 0 < len(words) <= _LONGEST_COMPLEMENT else None


def _trim(text: str, start: int, end: int) -> Span | None:
    piece = text[start:end]
    start += len(piece) - len(piece.lstrip(" \t:,"))
    return (start, start + len(text[start:end].rstrip(" ,"))) if text[start:end].strip() else None

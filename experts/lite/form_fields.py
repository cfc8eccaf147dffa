"""Answers from a page: fields of bills, values next to or below a label that the question names, and passages."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from experts.host.media import Line
from experts.lite.answer_spans import find_spans
from experts.lite.bill_fields import find_bill_field, find_extreme
from experts.lite.question_answering import UNQUALIFIED_FACTOR, WEAK_FIELD, find_passage_answer, is_unqualified
from experts.lite.question_types import AnswerKind, Question, content_tokens
from experts.lite.reading_order import group_rows, line_height

_PAIR = re.compile(r"([^\W\d_][^:：]{0,40}?)\s*(?::(?!\d)|：)\s*")
_PREFIX = re.compile(r"(\D{2,40}?)\s*[#.]?\s*((?=[$€£¥+(]?\d|[A-Z]{1,5}[-/]?\d).+)")
_CODE = re.compile(r"(?<![\w:.,])(?:[A-Z0-9][\w/-]*\d[\w/-]*|\d+)(?![\w:]|[.,]\d)", re.IGNORECASE)
_INTEGER = re.compile(r"\d+(?:[.,]\d{3})*(?![\d.,]|\s*%)")
_WORDS = re.compile(r"[^\W_]+")
_INEXACT = 0.95
_LABEL_WORDS, _LONGEST_VALUE = 4, 60
_SAME_LINE, _RIGHT, _BELOW = 1.0, 0.95, 0.8
_INTEGER_FIT, _NAME_FIT, _FREE_FIT = 0.6, 0.8, 0.7
_MIN_SCORE = 0.4
_AMBIGUOUS = 0.55
_MAX_LINE_GAP = 2.5


@dataclass(frozen=True)
class FieldAnswer:
    """An answer with the line that contains it."""

    answer: str
    score: float
    line: Line | None


def find_field_answer(question: Question, text: str, lines: Sequence[Line]) -> FieldAnswer | None:
    """Returns the best answer of one page, or None.

    Args:
        question: about the page.
        text: of the page in reading order, with tabs between cells.
        lines: of the page.
    """
    found = _find_best(question, text, lines)
    if found is None or not _is_unqualified(question, found.answer, text):
        return found
    return replace(found, score=found.score * UNQUALIFIED_FACTOR)


def _is_unqualified(question: Question, answer: str, text: str) -> bool:
    """Whether the answer lacks a word that narrows the question down, wherever it is on the page."""
    places = list(re.finditer(r"\s+".join(map(re.escape, answer.split())), text))
    return bool(places) and all(is_unqualified(question, text, *place.span()) for place in places)


def _find_best(question: Question, text: str, lines: Sequence[Line]) -> FieldAnswer | None:
    if question.kind is AnswerKind.EXTREME:
        return _locate(find_extreme(question, text), text, lines)
    field = _locate(find_bill_field(question, text), text, lines)
    if field and field.score >= WEAK_FIELD:
        return field
    other = _find_other_answer(question, text, lines)
    if field and other and other.answer == field.answer:
        return field
    answers = [one for one in (field, other) if one]
    return max(answers, key=lambda one: one.score, default=None)


def _find_other_answer(question: Question, text: str, lines: Sequence[Line]) -> FieldAnswer | None:
    """Returns the value of a label that the question names, or the answer of a passage."""
    labelled = _best_labelled(question, lines)
    passage = find_passage_answer(question, text)
    if labelled and labelled.score >= max(_MIN_SCORE, passage.score if passage else 0.0):
        return labelled
    return _locate((passage.start, passage.end, passage.score), text, lines) if passage else None


def _locate(found: tuple[int, int, float] | None, text: str, lines: Sequence[Line]) -> FieldAnswer | None:
    """Returns the answer with its line."""
    if found is None:
        return None
    answer = text[found[0] : found[1]]
    first = re.split(r"[\n\t]", answer)[0]
    line = next((line for line in lines if first in line.text), None)
    line = line or max((one for one in lines if one.text in first), key=lambda one: len(one.text), default=None)
    return FieldAnswer(" ".join(answer.split()), found[2] * (line.score if line else 1.0), line)


def _best_labelled(question: Question, lines: Sequence[Line]) -> FieldAnswer | None:
    """Returns the value of the label that fits best, with a lower score if another value fits as well."""
    found = sorted(_find_labelled(question, lines), key=lambda one: -one.score)
    if not found:
        return None
    is_ambiguous = any(one.score == found[0].score and one.answer != found[0].answer for one in found)
    return replace(found[0], score=found[0].score * _AMBIGUOUS) if is_ambiguous else found[0]


def _find_labelled(question: Question, lines: Sequence[Line]) -> Iterator[FieldAnswer]:
    """Yields each matching label with each possible value."""
    for line in lines:
        pairs = list(_split_pairs(line.text))
        for label, value in pairs:
            if value and (fit := _match_label(question, label)):
                yield from _field_answers(question, value, line, fit * _SAME_LINE)
        label_text = pairs[-1][0] if pairs and not pairs[-1][1] else line.text
        if fit := _match_label(question, label_text):
            for other, factor in _find_values(line, lines):
                yield from _field_answers(question, other.text, other, fit * factor)


def _match_label(question: Question, label: str) -> float:
    """Score from 0 to 1: how much of the question a label covers, and how little else."""
    tokens = content_tokens(label, is_question=True)
    shared = tokens & question.focus
    if not shared or len(tokens) > _LABEL_WORDS:
        return 0.0
    words, asked = (" ".join(_WORDS.findall(text.lower())) for text in (label, question.text))
    if question.kind is AnswerKind.CODE and not shared & content_tokens(" ".join({*words.split()} & {*asked.split()})):
        return 0.0  # a number belongs to the noun that is asked for, not to a verb such as "leave"
    exact = 1.0 if f" {words} " in f" {asked} " else _INEXACT
    return exact * 2 * len(shared) / (len(question.focus) + len(tokens))


def _field_answers(question: Question, text: str, line: Line, fit: float) -> Iterator[FieldAnswer]:
    if (found := _extract_value(question, text)) is not None:
        value, similarity = found
        yield FieldAnswer(value.strip(" .,;"), round(fit * similarity * line.score, 4), line)


def _extract_value(question: Question, text: str) -> tuple[str, float] | None:
    """Returns the part of a value that is of the requested kind, and how well it fits; None without one."""
    spans = find_spans(question, text)
    match question.kind:
        case AnswerKind.YES_NO | AnswerKind.WHY:
            return None
        case AnswerKind.CODE:
            code = _CODE.search(text)
            found = (code[0], 1.0) if code else None
        case AnswerKind.ANY:
            found = (text, _FREE_FIT) if len(text) <= _LONGEST_VALUE else None
        case AnswerKind.WHO | AnswerKind.WHERE if not spans:
            is_name = text[:1].isupper() and not re.search(r"\d", text) and len(text) <= _LONGEST_VALUE
            found = (text, _NAME_FIT) if is_name else None
        case AnswerKind.MONEY if not spans:
            integer = _INTEGER.search(text)
            found = (integer[0], _INTEGER_FIT) if integer else None
        case _:
            found = (text[slice(*spans[0])], 1.0 if len(spans) == 1 else _AMBIGUOUS) if spans else None
    return found


def _split_pairs(text: str) -> Iterator[tuple[str, str]]:
    """Splits label and value on one line at a colon, or where the figures begin."""
    colons = list(_PAIR.finditer(text))
    starts = [match.start() for match in colons] + [len(text)]
    for index, match in enumerate(colons, 1):
        yield match[1], text[match.end() : starts[index]].strip()
    if not colons and (bare := _PREFIX.fullmatch(text)):
        yield bare[1], bare[2]


def _find_values(label: Line, lines: Sequence[Line]) -> Iterator[tuple[Line, float]]:
    """Returns the lines to the right in the same row, and the next line below."""
    row = next((row for row in group_rows(lines) if label in row), [label])
    right = takewhile(lambda other: not _is_label(other), row[row.index(label) + 1 :])
    yield from ((other, _RIGHT) for other in right)
    below = [
        other
        for other in lines
        if 0 <= other.box[1] - label.box[3] + line_height(label) / 2 <= _MAX_LINE_GAP * line_height(label)
        and min(other.box[2], label.box[2]) > max(other.box[0], label.box[0])
        and other is not label
        and not _is_label(other)
    ]
    yield from ((other, _BELOW) for other in sorted(below, key=lambda other: other.box[1])[:1])


def _is_label(line: Line) -> bool:
    return line.text.endswith((":", "："))

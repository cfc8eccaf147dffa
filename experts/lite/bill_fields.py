"""Finds fields of bills and lists by their labels in several languages: total, tax, dates, number, items."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experts.lite.entities import find_entities
from experts.lite.labelled_fields import find_labelled_value
from experts.lite.opening_hours import find_hours
from experts.lite.quantities import parse_number
from experts.lite.question_types import (
    AnswerKind,
    Question,
    compile_pattern,
    content_tokens,
    iter_tokens,
    join_patterns,
    load_questions,
)

Found = tuple[int, int, float]
"""Start, end and score of an answer."""

_FLAGS = re.IGNORECASE


@dataclass(frozen=True)
class _Field:
    """A field of a bill: how questions ask for it and how bills label it."""

    asked: re.Pattern[str]
    labels: tuple[re.Pattern[str], ...]
    """The clearest first."""
    is_date: bool = False
    is_code: bool = False


def _read_field(data: Mapping[str, Any]) -> _Field:
    labels = tuple(re.compile(join_patterns(alternatives), _FLAGS) for alternatives in data["labels"])
    value = data["value"]
    return _Field(re.compile(join_patterns(data["asked"]), _FLAGS), labels, value == "date", value == "code")


_FIELDS = tuple(map(_read_field, load_questions()["fields"].values()))
"""The fields in the order in which questions are compared with them; the total is the last."""
_TOTAL = _FIELDS[-1]
_PART_LABEL = compile_pattern("part_label")
_CLOSING = compile_pattern("closing")
_SENDER_ASKED, _COMPANY_ASKED = compile_pattern("sender_asked"), compile_pattern("company_asked")
_RECIPIENT_ASKED, _RECIPIENT = compile_pattern("recipient_asked"), compile_pattern("recipient_label")
_SENDER = compile_pattern("sender_label")
_BILL, _AMOUNT, _MOST = compile_pattern("bill"), compile_pattern("amount"), compile_pattern("most")
_WHOLE_COST = compile_pattern("whole_cost")
"""Questions about all that something costs, even if a part of it is paid."""
_LIGHT = compile_pattern("light_word")
_CODE = re.compile(r"(?<!\w)(?:[A-Z]{1,5}[-/ ]?)?\d[\w/-]*", _FLAGS)
_LABEL_SCORE, _WEAK_LABEL_SCORE, _ITEM_SCORE, _GUESS_SCORE, _SENDER_SCORE, _LETTERHEAD_SCORE = (
    0.95,
    0.85,
    0.8,
    0.25,
    0.7,
    0.5,
)
_DOUBTFUL = 0.6
"""Factor for a field whose question has words that its row does not have, or whose label occurs with other values."""
_LONGEST_LABEL, _LONGEST_ROW = 60, 300
_AMOUNT_KINDS = frozenset({AnswerKind.MONEY, AnswerKind.ANY, AnswerKind.MEASURE})
"""Kinds of questions that an amount answers."""
_GENERIC = content_tokens(" ".join(load_questions()["generic"]))
"""Words that name no item of a bill."""


@dataclass(frozen=True)
class _Row:
    text: str
    start: int


def find_bill_field(question: Question, text: str) -> Found | None:
    """Returns the field of a bill, letter or list that a question asks for; None without one."""
    if _RECIPIENT_ASKED.search(question.text):
        return _find_recipient(text)
    if _SENDER_ASKED.search(question.text):
        return _find_sender(question, text)
    if labelled := find_hours(question, text) or find_labelled_value(question, text):
        return labelled
    rows = list(_rows(text))
    field = next((field for field in _FIELDS if field.asked.search(question.text)), None)
    is_amount = field is not None and not (field.is_date or field.is_code)
    if field is None or (is_amount and question.kind not in _AMOUNT_KINDS):
        return _find_item(question, rows)
    light = {token for token, start, end in iter_tokens(question.text) if _LIGHT.fullmatch(question.text[start:end])}
    specific = question.focus - _GENERIC - light - content_tokens(" ".join(_question_labels(field)))
    if not (field.is_date or field.is_code) and specific and (item := _find_item(question, rows)):
        return item
    found = _find_labelled(question, field, rows)
    return _check_words(field, found, specific, rows) if found else None


def _check_words(field: _Field, found: Found, specific: frozenset[str], rows: Sequence[_Row]) -> Found | None:
    """Returns a field that explains the other words of a question, else a doubtful one."""
    if field is _TOTAL:
        unexplained = specific.difference(*(content_tokens(row.text) for row in rows))
        return (*found[:2], found[2] * _DOUBTFUL) if unexplained else found
    row = next(row for row in rows if row.start + len(row.text) >= found[1])
    is_doubtful = (field.is_date or field.is_code) and not specific <= content_tokens(row.text)
    return (*found[:2], found[2] * _DOUBTFUL) if is_doubtful else found


def find_extreme(question: Question, text: str) -> Found | None:
    """Returns the row of a list with the lowest or highest amount."""
    priced = []
    for row in _rows(text):
        amounts = list(_AMOUNT.finditer(row.text))
        if amounts and row.text[: amounts[-1].start()].strip() and not _is_sum(row.text):
            priced.append((parse_number(_digits(amounts[-1][0])), row))
    if len(priced) < 2:  # noqa: PLR2004  # one is no extreme
        return None
    choose = max if _MOST.search(question.text) else min
    row = choose(priced, key=lambda pair: pair[0])[1]
    return row.start, row.start + len(row.text), _ITEM_SCORE


def _rows(text: str) -> Iterator[_Row]:
    start = 0
    for line in text.splitlines(keepends=True):
        row = line.strip()
        if row and len(row) <= _LONGEST_ROW:
            yield _Row(row, start + len(line) - len(line.lstrip()))
        start += len(line)


def _question_labels(field: _Field) -> Iterator[str]:
    return (pattern.pattern for pattern in field.labels)


def _is_sum(row: str) -> bool:
    return any(label.search(row) for label in _TOTAL.labels) or _PART_LABEL.search(row) is not None


def _find_labelled(question: Question, field: _Field, rows: Sequence[_Row]) -> Found | None:
    """Returns the value of the clearest label; of several labels of totals, that which the question names."""
    found = []
    for rank, label in enumerate(field.labels):
        score = _LABEL_SCORE if rank == 0 or len(field.labels) - rank > 1 else _WEAK_LABEL_SCORE
        values = [(*value, score) for value in _values_of_label(field, label, rows)]
        if values and field is not _TOTAL:
            return values[0]
        if values:
            found.append((label, _largest(values, rows)))
    if not found:
        return None
    named = [value for label, value in found if label.search(question.text)]
    values = named or [value for _, value in found]
    start, end, score = (
        max(values, key=lambda one: _number(one, rows)) if _WHOLE_COST.search(question.text) else values[0]
    )
    is_clear = bool(named) or len({_text(value, rows) for _, value in found}) == 1
    return start, end, score * (1.0 if is_clear else _DOUBTFUL)


def _values_of_label(field: _Field, label: re.Pattern[str], rows: Sequence[_Row]) -> Iterator[tuple[int, int]]:
    for index, row in enumerate(rows):
        match = label.search(row.text)
        if match is None or match.start() > _LONGEST_LABEL or (field is _TOTAL and _PART_LABEL.search(row.text)):
            continue
        below = rows[index + 1] if index + 1 < len(rows) else None
        if value := _find_value(field, row, match.end(), below):
            yield value


def _number(value: Found, rows: Sequence[_Row]) -> float:
    return float(parse_number(_digits(_text(value, rows))))


def _largest(values: Sequence[Found], rows: Sequence[_Row]) -> Found:
    """Returns the last of some totals; a doubtful one if it is not the largest."""
    amounts = [parse_number(_digits(_text(value, rows))) for value in values]
    start, end, score = values[-1]
    return start, end, score * (1.0 if amounts[-1] == max(amounts) else _DOUBTFUL)


def _text(value: Found, rows: Sequence[_Row]) -> str:
    row = next(row for row in rows if row.start <= value[0] < row.start + len(row.text))
    return row.text[value[0] - row.start : value[1] - row.start]


def _find_value(field: _Field, row: _Row, after: int, below: _Row | None) -> tuple[int, int] | None:
    """Returns the value behind a label in its row, else in front of it, else alone in the row below."""
    values = list(_values(field, row.text))
    behind = [span for span in values if span[0] >= after]
    if behind:
        start, end = behind[-1] if field is _TOTAL else behind[0]
        return row.start + start, row.start + end
    if field.is_date and values:
        return row.start + values[0][0], row.start + values[0][1]
    if below:
        alone = list(_values(field, below.text))
        if len(alone) == 1 and not below.text[: alone[0][0]].strip(" \t:=") and not below.text[alone[0][1] :].strip():
            return below.start + alone[0][0], below.start + alone[0][1]
    return None


def _values(field: _Field, text: str) -> Iterator[tuple[int, int]]:
    if field.is_date:
        yield from ((one.start, one.end) for one in find_entities(text) if one.kind == "DATE")
    elif field.is_code:
        yield from (match.span() for match in _CODE.finditer(text))
    else:
        yield from (_trimmed(match) for match in _AMOUNT.finditer(text))


def _trimmed(match: re.Match[str]) -> tuple[int, int]:
    return match.start() + len(match[0]) - len(match[0].lstrip()), match.start() + len(match[0].rstrip(" .,"))


def _find_item(question: Question, rows: Sequence[_Row]) -> Found | None:
    """Returns the amount in the row of a list that the question names."""
    if question.kind not in {AnswerKind.MONEY, AnswerKind.ANY}:
        return None
    specific = question.focus - _GENERIC
    found: list[tuple[float, int, int, str]] = []
    for row in rows:
        amounts = list(_AMOUNT.finditer(row.text))
        is_sentence = len(amounts) > 1 and row.text.endswith((".", "!", "?", "。", "！", "？"))
        if not amounts or is_sentence or (len(row.text) > 2 * _LONGEST_LABEL):
            continue
        label = row.text[: amounts[-1].start()]
        shared = specific & content_tokens(label)
        if shared and label.count(" ") <= 8:  # noqa: PLR2004  # longer rows are sentences
            start, end = _trimmed(amounts[-1])
            found.append((len(shared) / len(specific), row.start + start, row.start + end, row.text[start:end]))
    best = max(found, key=lambda one: one[0], default=None)
    if best is None or best[0] < 0.5 or (question.kind is AnswerKind.ANY and not _PRICED.search(question.text)):  # noqa: PLR2004
        return None
    is_unique = all(one[0] < best[0] or one[3] == best[3] for one in found)
    return best[1], best[2], round(_ITEM_SCORE * best[0] * (1.0 if is_unique else _DOUBTFUL), 4)


_PRICED = re.compile(r"\b(?:price|cost|how much|fee|amount)\b", _FLAGS)


def _find_recipient(text: str) -> Found | None:
    """Returns the name behind a label such as "Bill to" or "Dear"; else below it, in the same column."""
    rows = [list(re.finditer(r"[^\t]+", row.text)) for row in _rows(text)]
    starts = [row.start for row in _rows(text)]
    for index, cells in enumerate(rows):
        for column, cell in enumerate(cells):
            label = _RECIPIENT.match(cell[0].strip())
            if label is None:
                continue
            name = re.match(r"[^,\n]{2,60}", cell[0].strip()[label.end() :])
            if name:
                start = starts[index] + cell.start() + len(cell[0]) - len(cell[0].lstrip()) + label.end()
                return start, start + len(name[0].rstrip(" .:")), _LABEL_SCORE
            if index + 1 < len(rows) and column < len(rows[index + 1]):
                below = rows[index + 1][column]
                start = starts[index + 1] + below.start()
                return start, start + len(below[0].rstrip(" ,")), _LABEL_SCORE
    return None


def _find_sender(question: Question, text: str) -> Found | None:
    """Returns the name below the closing of a letter; else the head of a bill."""
    rows = list(_rows(text))
    if label := next((match for row in rows if (match := _SENDER.match(row.text))), None):
        row = next(row for row in rows if row.text == label.string)
        return row.start + label.end(), row.start + len(row.text), _LABEL_SCORE
    for index, row in enumerate(rows):
        if (closing := _CLOSING.search(row.text)) and index + 1 < len(rows) and len(row.text) < _LONGEST_LABEL:
            name = rows[index + 1]
            if closing.start() < _LONGEST_LABEL // 2 and not _COMPANY_ASKED.search(question.text):
                return name.start, name.start + len(name.text.split("\t")[0].rstrip(" ,")), _SENDER_SCORE
    is_headed = (
        bool(rows) and (_BILL.search(text) or _COMPANY_ASKED.search(question.text)) and "." not in rows[0].text[-1:]
    )
    if not is_headed:
        return None
    head = rows[0].text.split("\t")[0]
    return rows[0].start, rows[0].start + len(head), _LETTERHEAD_SCORE


def _digits(written: str) -> str:
    return re.sub(r"[^\d.,' ]", "", written).strip(" .,'")

"""Finds values of forms, tables and lists by what their labels mean: in one language or across six.

A page has entries: a label with a value in its row, behind a colon or below the heading of a column. Labels and
questions are compared by the meanings in labels.json, else by their words. The other words of a question must not
point elsewhere: at another entry, at a name that the page lacks, or at a noun next to the one that is asked for.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise, takewhile

from experts.lite.answer_spans import Span, find_spans
from experts.lite.entities import find_entities
from experts.lite.label_meanings import CLOCK, CONTEXTS, MEANINGS, Meaning, said_spans
from experts.lite.question_types import AnswerKind, Question, compile_pattern, iter_tokens

Found = tuple[int, int, float]
"""Start, end and score of an answer."""

_FLAGS = re.IGNORECASE
_CJK = re.compile(r"[\u3400-\u9fff\uac00-\ud7af]")
_CELL = re.compile(r"\S+(?: \S+)*")
_PAIR = re.compile(r"([^\W\d_][^:：]{0,40}?)\s*(?::(?!\d)|：)\s*(?=\S)")
_CODE_BEHIND = re.compile(
    r"(?P<label>[^\W\d_][^\d:：]{1,40}?)[\s#.:：]*(?P<value>(?=[^\s]*\d)[A-Z0-9][\w/-]*(?: \d[\w/-]*)*)", _FLAGS
)
_LONGEST_LABEL, _LONGEST_VALUE, _MOST_EXTRA_WORDS = 60, 90, 3
_PART = re.compile(r"(?:[^,\s]|(?<!,)\s|,(?!\s))+")
"""What commas separate in a cell, such as the time and the platform in "08:24, platform 4"."""
_TABLE_CELLS, _MOST_CODE_WORDS = 3, 4
_SCORES = (0.95, 0.85)
"""Of labels that have one meaning, and of those that mean several things."""
_WORDS_SCORE = 0.8
_DOUBTFUL, _AMBIGUOUS = 0.55, 0.55
_SHORTEST_PREFIX, _SHARED, _SHORTEST_PART = 5, 0.7, 4
_AMOUNT = compile_pattern("amount")
_LIGHT = compile_pattern("light_word")
_LINK = compile_pattern("link")
_DAY = compile_pattern("key_word")
_NAMED_ROLE = re.compile(
    r"^\W*who(?:'s| is| are| was| were)\s+(?!(?:on|in|at|for|with|of|to|\w+ing)\b)|^\W*(?!who\b)", _FLAGS
)
"""Questions that name what somebody is, such as "Who is the driver?", rather than what somebody does."""
_PLAIN_NUMBER = re.compile(r"[1-9]\d{0,2}(?:[.,' ]\d{3})+|[1-9]\d{0,4}")
_INTEGER = re.compile(r"\d+(?:[.,]\d{3})*(?![\d.,]|\s*%)")
_KINDS: Mapping[str, frozenset[AnswerKind]] = {
    "amount": frozenset({AnswerKind.MONEY, AnswerKind.MEASURE, AnswerKind.ANY}),
    "date": frozenset({AnswerKind.DATE, AnswerKind.ANY}),
    "time": frozenset({AnswerKind.TIME, AnswerKind.DATE, AnswerKind.ANY}),
    "code": frozenset({AnswerKind.CODE, AnswerKind.WHERE, AnswerKind.ANY}),
    "name": frozenset({AnswerKind.WHO, AnswerKind.WHERE, AnswerKind.ANY}),
    "place": frozenset({AnswerKind.WHERE, AnswerKind.ADDRESS, AnswerKind.CODE, AnswerKind.ANY}),
    "duration": frozenset({AnswerKind.DURATION, AnswerKind.MONEY, AnswerKind.MEASURE, AnswerKind.ANY}),
    "measure": frozenset({AnswerKind.MEASURE, AnswerKind.ANY}),
    "count": frozenset({AnswerKind.COUNT, AnswerKind.DURATION, AnswerKind.MONEY, AnswerKind.MEASURE, AnswerKind.ANY}),
}
"""Kinds of questions that a kind of value answers."""
_VALUE_OF_KIND = {
    AnswerKind.MONEY: "amount", AnswerKind.DATE: "date", AnswerKind.TIME: "time", AnswerKind.WHO: "name",
    AnswerKind.WHERE: "place", AnswerKind.COUNT: "count", AnswerKind.CODE: "code", AnswerKind.ANY: "text",
}  # fmt: skip
"""What a value must be where only the words of its label fit a question."""


@dataclass(frozen=True)
class Entry:
    """A value with its labels.

    Args:
        labels: of its row or its column, and the words in front of it.
        value: text of the cell.
        start: of the value in the text of the page.
        row: other text of its row and the heading of its column.
        block: heading of its part of the page.
    """

    labels: str
    value: str
    start: int
    row: str
    block: str

    @cached_property
    def units(self) -> frozenset[str]:
        return frozenset(_units(f"{self.labels} {self.row} {self.block}"))


@dataclass(frozen=True)
class _Page:
    entries: Sequence[Entry]
    text: str

    @cached_property
    def labels(self) -> frozenset[str]:
        """What the labels of all entries name."""
        return frozenset(unit for entry in self.entries for unit in _units(entry.labels))

    @cached_property
    def units(self) -> frozenset[str]:
        return frozenset(_units(self.text))


@dataclass(frozen=True)
class _Match:
    """An entry that may answer, with what of the question it explains.

    Args:
        entry: with a value of the kind that is asked for.
        span: of the value in the text.
        rank: of the label, 0 for the clearest.
        extra: words of the label that the question does not have.
        spans: parts of the question that the label means.
    """

    entry: Entry
    span: tuple[int, int]
    rank: int
    extra: int
    spans: tuple[Span, ...]


def find_labelled_value(question: Question, text: str) -> Found | None:
    """Returns the value whose label means what a question asks for; None without one.

    Args:
        question: about a page.
        text: of the page in reading order, with tabs between cells.
    """
    entries = list(read_entries(text))
    page = _Page(entries, text)
    found: list[Found] = []
    said: tuple[Span, ...] = ()
    for meaning, spans in _meant(question):
        if matches := list(_matches_of_meaning(question, meaning, spans, entries)):
            found.append(_choose(question, matches, page, _SCORES))
            said = spans
            break
    if matches := list(_matches_of_words(question, said, entries)):
        found.append(_choose(question, matches, page, (_WORDS_SCORE,)))
    best = max(found, key=lambda one: one[2], default=None)
    return _with_time(best, text) if best and question.kind is AnswerKind.DATE else best


def _with_time(found: Found, text: str) -> Found:
    """Returns a day with the time in the next cell, or a time with the day in the cell before."""
    first = text.rfind("\n", 0, found[0]) + 1
    cells = [(cell.start() + first, cell.end() + first) for cell in _CELL.finditer(text[first:].partition("\n")[0])]
    index = next((index for index, cell in enumerate(cells) if cell == found[:2]), None)
    if index is None:
        return found
    for day, time in pairwise(cells[max(0, index - 1) : index + 2]):
        if _is_day(text[slice(*day)]) and CLOCK.fullmatch(text[slice(*time)]):
            return day[0], time[1], found[2]
    return found


def _meant(question: Question) -> Iterator[tuple[Meaning, tuple[Span, ...]]]:
    """Yields the meanings that a question asks for, without those of a part of what another one means."""
    found = [
        (meaning, match)
        for meaning in MEANINGS
        if question.kind in _KINDS[meaning.value] and (match := meaning.asked.search(question.text))
    ]
    for meaning, match in found:
        start, end = match.span()
        if not any(one.start() <= start and end <= one.end() and one.span() != (start, end) for _, one in found):
            yield meaning, said_spans(match)


def read_entries(text: str) -> Iterator[Entry]:
    """Yields the entries of a page whose cells are separated by tabs or several spaces."""
    start, block = 0, ""
    headings: tuple[str, ...] = ()
    is_new_block = True
    for line in text.splitlines(keepends=True):
        cells = list(_CELL.finditer(line))
        if not cells:
            is_new_block = True
        else:
            words = [cell[0] for cell in cells]
            if is_new_block or (len(cells) == 1 and _is_heading(words[0])):
                block = words[0][:_LONGEST_LABEL]
            if len(cells) >= _TABLE_CELLS and not any(character.isdigit() for character in line):
                headings = tuple(words)
            else:
                yield from _entries_of_row(
                    cells, start, block, headings if len(headings) - len(cells) in {0, -1} else ()
                )
            is_new_block = False
        start += len(line)


def _is_heading(text: str) -> bool:
    return len(text) < _LONGEST_LABEL and not re.search(r"[\d:：.!?。]", text)


def _entries_of_row(cells: Sequence[re.Match[str]], start: int, block: str, headings: Sequence[str]) -> Iterator[Entry]:
    words = [cell[0] for cell in cells]
    offset = len(headings) - len(cells)
    for index, cell in enumerate(cells):
        others = " ".join([*words[:index], *words[index + 1 :]])
        yield from _entries_in_cell(cell[0], start + cell.start(), others, block)
        heading = headings[index + offset] if headings and index + offset >= 0 else ""
        if heading and index:
            yield Entry(heading, cell[0], start + cell.start(), words[0], block)
        elif heading:
            yield Entry(heading, cell[0], start + cell.start(), others, block)
        if index and len(words[0]) <= _LONGEST_LABEL:
            yield Entry(words[0], cell[0], start + cell.start(), heading, block)


def _entries_in_cell(cell: str, start: int, others: str, block: str) -> Iterator[Entry]:
    """Yields labels with values in one cell: behind a colon, else a code behind words."""
    colons = list(_PAIR.finditer(cell))
    ends = [*(colon.start() for colon in colons[1:]), len(cell)][: len(colons)]
    for colon, end in zip(colons, ends, strict=True):
        yield Entry(colon[1], cell[colon.end() : end].strip(), start + colon.end(), others, block)
    parts = _PART.finditer(cell) if others else re.finditer(r".+", cell)
    for part in [] if colons else parts:
        if code := _CODE_BEHIND.fullmatch(part[0].rstrip()):
            yield Entry(code["label"], code["value"], start + part.start() + code.start("value"), others, block)


def _matches_of_meaning(
    question: Question, meaning: Meaning, spans: tuple[Span, ...], entries: Sequence[Entry]
) -> Iterator[_Match]:
    for entry in entries:
        for rank, pattern in enumerate(meaning.labels):
            label = pattern.search(entry.labels)
            if label is None:
                continue
            others = _units(f"{entry.labels[: label.start()]} {entry.labels[label.end() :]}")
            is_whole = label[0].strip() == entry.labels.strip(" .:") or (meaning.value == "time" and label.start() == 0)
            if len(others) > _MOST_EXTRA_WORDS or not (
                is_whole or len(label[0]) >= _SHORTEST_PART or _CJK.match(label[0])
            ):
                continue
            if value := _find_value(question, meaning.value, entry):
                yield _Match(entry, value, rank, len(others.keys() - _units(question.text).keys()), spans)
                break


def _matches_of_words(question: Question, said: Sequence[Span], entries: Sequence[Entry]) -> Iterator[_Match]:
    """Yields entries all of whose label is in the question, or whose row has all that the question names."""
    kind = _VALUE_OF_KIND.get(question.kind, "span")
    asked = {
        unit: (start, end)
        for unit, (start, end) in _units(question.text).items()
        if not any(first < end and start < last for first, last in said)
    }
    for entry in entries:
        label = entry.labels.strip()
        place = question.text.find(label) if _CJK.search(label) else -1
        units = _units(label)
        spans = [span for unit, span in asked.items() if _has(units, unit)]
        is_covered = bool(units) and all(_has(asked, unit) for unit in units)
        if place >= 0:
            spans.append((place, place + len(label)))
        elif not spans or not (is_covered or all(_has(entry.units, unit) for unit in asked)):
            continue
        if value := _find_value(question, kind, entry):
            yield _Match(entry, value, 0, len(units.keys() - asked.keys()), tuple(spans))


def _units(text: str) -> dict[str, Span]:
    """Returns what a text names, with its place: words that mean a context such as "adult" by it, others by stems."""
    units = {}
    for index, context in enumerate(CONTEXTS):
        if (match := context.search(text)) and not _LIGHT.fullmatch(match[0]):
            units[f"#{index}"] = match.span()
    contexts = list(units.values())
    for token, start, end in iter_tokens(text, is_question=True):
        is_light = _LIGHT.fullmatch(text[start:end]) is not None
        if not is_light and not any(first < end and start < last for first, last in contexts):
            units.setdefault(token, (start, end))
    return units


def _has(units: Collection[str], unit: str) -> bool:
    """Whether a unit is among others, or a long word begins like one of them, as in nachzahlen and Nachzahlung."""
    return unit in units or any(_is_akin(unit, one) for one in units)


def _is_akin(first: str, second: str) -> bool:
    shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False)))
    return shared >= max(_SHORTEST_PREFIX, _SHARED * min(len(first), len(second)))


def _choose(question: Question, matches: Sequence[_Match], page: "_Page", scores: Sequence[float]) -> Found:
    """Returns the match that explains most of the question; a doubtful one if it has a rival or explains too little."""
    ranked = sorted(((_rank(question, match), match) for match in matches), key=lambda pair: pair[0])
    order, best = ranked[0]
    answer = page.text[slice(*best.span)]
    rivals = [match.span for other, match in ranked if other == order and page.text[slice(*match.span)] != answer]
    is_ambiguous = any(start >= best.span[1] or end <= best.span[0] for start, end in rivals)
    score = scores[min(best.rank, len(scores) - 1)]
    score *= _AMBIGUOUS if is_ambiguous else 1.0
    score *= _DOUBTFUL if _points_elsewhere(question, best, page) or _is_other_column(question, best, scores) else 1.0
    return (*best.span, round(score, 4))


def _is_day(cell: str) -> bool:
    return bool(_DAY.fullmatch(cell) or any(one.kind == "DATE" and one.text == cell for one in find_entities(cell)))


def _is_other_column(question: Question, match: _Match, scores: Sequence[float]) -> bool:
    """Whether a cell of a table is taken for a name only because the question has words of its row or heading."""
    is_role = question.kind is not AnswerKind.WHO or _NAMED_ROLE.match(question.text) is not None
    return not is_role and scores == (_WORDS_SCORE,) and bool(match.entry.row)


def _rank(question: Question, match: _Match) -> tuple[float, ...]:
    near = _units(f"{match.entry.labels} {match.entry.row}")
    rest = _rest(question, match)
    explained = sum(2.0 if _has(near, unit) else 1.0 if _has(match.entry.units, unit) else 0.0 for unit in rest)
    return (-explained, match.rank, match.extra)


def _rest(question: Question, match: _Match) -> dict[str, Span]:
    """Returns what a question names besides the meaning of the label."""
    return {
        unit: (start, end)
        for unit, (start, end) in _units(question.text).items()
        if not any(first < end and start < last for first, last in match.spans)
    }


def _points_elsewhere(question: Question, match: _Match, page: "_Page") -> bool:
    """Whether other words of a question name what the entry is not about."""
    for unit, span in _rest(question, match).items():
        if _has(match.entry.units, unit):
            continue
        if _has(page.labels, unit):
            return True
        is_specific = _is_name(question.text, span[0]) or _is_beside(question.text, span, match.spans)
        if is_specific and not _has(page.units, unit):
            return True
    return False


def _is_name(text: str, start: int) -> bool:
    return text[start].isupper() and bool(text[:start].strip("¿¡\"' "))


def _is_beside(text: str, word: Span, spans: Sequence[Span]) -> bool:
    """Whether a word belongs to what is asked for, as in "parking deposit" and "deposit for the garage"."""
    return any(
        (word[1] <= start and (not text[word[1] : start].strip("的의 ") or _LINK.fullmatch(text[word[1] : start])))
        or (word[0] >= end and _LINK.fullmatch(text[end : word[0]]) is not None)
        for start, end in spans
    )


def _find_value(question: Question, kind: str, entry: Entry) -> Span | None:
    """Returns the part of an entry that is of a kind."""
    found = _VALUES[kind](question, entry.value[:_LONGEST_VALUE]) if entry.value else None
    return (entry.start + found[0], entry.start + found[1]) if found else None


def _whole(text: str) -> Span | None:
    return (0, len(text.rstrip(" .,;"))) if text.strip() and len(text) < _LONGEST_VALUE else None


def _amount(_question: Question, text: str) -> Span | None:
    match = _AMOUNT.search(text)
    if match is None and _PLAIN_NUMBER.fullmatch(text.strip()):
        match = _PLAIN_NUMBER.search(text)
    if match is None:
        return None
    return match.start() + len(match[0]) - len(match[0].lstrip()), match.start() + len(match[0].rstrip(" .,"))


def _date(_question: Question, text: str) -> Span | None:
    dates = [one for one in find_entities(text) if one.kind == "DATE"]
    has_day = re.search(r"\b\d{1,2}(?:st|nd|rd|th|er|\.)(?!\w)|每月|매월|\d{1,2}[日号일]", text) is not None
    if len(dates) == 1 and "," in text:
        return dates[0].start, dates[0].end
    return _whole(text) if dates or has_day else None


def _time(question: Question, text: str) -> Span | None:
    spans = find_spans(replace(question, kind=AnswerKind.TIME), text)
    has_date = any(one.kind == "DATE" for one in find_entities(text))
    if len(spans) == 1 and "," in text and not (has_date and question.kind is AnswerKind.DATE):
        return spans[0]
    return _whole(text) if CLOCK.search(text) else None


def _code(question: Question, text: str) -> Span | None:
    if spans := find_spans(replace(question, kind=AnswerKind.CODE), text):
        return spans[0]
    if any(one.kind in {"DATE", "TIME"} for one in find_entities(text)) or _AMOUNT.fullmatch(text.strip()):
        return None
    is_code = re.search(r"\d", text) or text.isupper() or len(text.split()) == 1
    return _whole(text) if is_code and len(text.split()) <= _MOST_CODE_WORDS else None


def _name(_question: Question, text: str) -> Span | None:
    is_name = (text[:1].isupper() or _CJK.match(text)) and not re.search(r"\d", text)
    return _whole(text.split(",", maxsplit=1)[0]) if is_name else None


def _place(_question: Question, text: str) -> Span | None:
    """Returns a text without amounts; of a list such as "3 May, 9:00, Hall B" what is neither a date nor a time."""
    entities = [one for one in find_entities(text) if one.kind in {"DATE", "TIME"}]
    if _AMOUNT.search(text):
        return None
    if not entities:
        return _whole(text)
    parts = [part.span() for part in re.finditer(r"[^,\s][^,]*", text)]
    free = [(start, end) for start, end in parts if not any(one.start < end and start < one.end for one in entities)]
    return free[0] if len(free) == 1 else None


def _duration(question: Question, text: str) -> Span | None:
    is_date = any(one.kind in {"DATE", "TIME"} for one in find_entities(text))
    has_number = re.search(r"\d|[一二两三四五六七八九十]", text) or find_spans(
        replace(question, kind=AnswerKind.DURATION), text
    )
    return _whole(text) if has_number and not is_date and not _AMOUNT.search(text) else None


def _count(_question: Question, text: str) -> Span | None:
    match = _INTEGER.match(text.strip())
    return None if match is None or _AMOUNT.search(text) or CLOCK.search(text) else _whole(text)


def _text(_question: Question, text: str) -> Span | None:
    return _whole(text)


def _span(question: Question, text: str) -> Span | None:
    spans = find_spans(question, text)
    return spans[0] if len(spans) == 1 else None


def _measure(_question: Question, text: str) -> Span | None:
    return _whole(text) if re.match(r"\d[\d.,]*\s?[^\W\d_]", text.strip()) else None


_VALUES = {
    "amount": _amount, "date": _date, "time": _time, "code": _code, "name": _name, "place": _place,
    "duration": _duration, "measure": _measure, "count": _count, "text": _text, "span": _span,
}  # fmt: skip

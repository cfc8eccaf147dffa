"""Finds the opening hours of a weekday in lists such as "Mon - Thu 8:00 - 18:00", in six languages."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from experts.lite.label_meanings import CLOCK, DAYS, SHORT_DAYS, load_labels, whole_words
from experts.lite.question_types import AnswerKind, Question, compile_pattern, content_tokens

Found = tuple[int, int, float]
"""Start, end and score of an answer."""

_ASKED, _CLOSING, _OPENING, _CLOSED = (
    whole_words(load_labels()["hours"][name]) for name in ("asked", "closing", "opening", "closed")
)
_TO = r"\s*(?:-|–|—|~|to|till|until|and|through|bis|und|à|au|et|a|y|al|至|到|부터|에서)\s*"
_SPAN = re.compile(_TO, re.IGNORECASE)
_BARE_RANGE = re.compile(
    rf"(?<![\d.,])(?P<first>\d{{1,2}}(?:[:.]\d\d)?){_TO}(?P<last>\d{{1,2}}(?:[:.]\d\d)?)(?![\d.,])", re.IGNORECASE
)
_NEXT_PART = re.compile(r"[;,，；]\s*|\s(?:and|und|et|y)\s")
_WORD, _LIGHT = re.compile(r"[^\W\d_]+"), compile_pattern("light_word")
_WEEK, _LONGEST_ROW, _DAY_LENGTH = 7, 200, 15
_SCORE, _DOUBTFUL = 0.9, 0.45
_KINDS = frozenset({AnswerKind.TIME, AnswerKind.DATE, AnswerKind.ANY, AnswerKind.YES_NO, AnswerKind.DURATION})


@dataclass(frozen=True)
class _Hours:
    """Hours of some weekdays; what else their row names, such as a department, is in `words`."""

    days: frozenset[int]
    words: frozenset[str]
    clocks: tuple[tuple[int, int], ...]
    row: tuple[int, int]


def find_hours(question: Question, text: str) -> Found | None:
    """Returns when something is open on the weekdays that a question names; None without hours of these days."""
    asked = read_days(question.text, DAYS)
    if question.kind not in _KINDS or not asked or not _ASKED.search(question.text):
        return None
    hours = [one for one in _read_hours(text) if asked <= one.days]
    if not hours:
        return None
    ranked = sorted(hours, key=lambda one: (len(one.words - question.focus), -len(one.words & question.focus)))
    best = ranked[0]
    rivals = [one for one in ranked[1:] if not (one.words - question.focus) and one.row != best.row]
    is_sure = not (best.words - question.focus) and not rivals
    start, end = _part(question, best)
    return start, end, _SCORE if is_sure else _DOUBTFUL


def _part(question: Question, hours: _Hours) -> tuple[int, int]:
    if question.kind is AnswerKind.YES_NO:
        return hours.row
    if _CLOSING.search(question.text):
        return hours.clocks[-1]
    if _OPENING.search(question.text):
        return hours.clocks[0]
    return hours.clocks[0][0], hours.clocks[-1][1]


def _read_hours(text: str) -> Iterator[_Hours]:
    start = 0
    for line in text.splitlines(keepends=True):
        row = line.rstrip()
        bounds = list(_split_at_days(row[:_LONGEST_ROW]))
        for first, last in bounds:
            part = line[first:last]
            days = read_days(part, SHORT_DAYS)
            if days and len(part) < _LONGEST_ROW and (clocks := _read_clocks(part)):
                spans = tuple((start + first + begin, start + first + end) for begin, end in clocks)
                yield _Hours(days, _other_words(part, clocks), spans, (start + first, start + last))
        start += len(line)


def _split_at_days(row: str) -> Iterator[tuple[int, int]]:
    """Yields the parts of a row such as "Mon, Tue 8-12, Wed 9-11": each begins with days and has times."""
    start = 0
    for cut in _NEXT_PART.finditer(row):
        if _read_clocks(row[start : cut.start()]) and read_days(row[cut.end() :][:_DAY_LENGTH], SHORT_DAYS):
            yield start, cut.start()
            start = cut.end()
    yield start, len(row)


def _read_clocks(part: str) -> list[tuple[int, int]]:
    """Returns the times of a part of a row; those of a bare range such as "9-17"; the word for closed without times."""
    clocks = [match.span() for match in CLOCK.finditer(part)]
    for bare in _BARE_RANGE.finditer(part):
        ends = [bare.span(name) for name in ("first", "last")]
        clocks += [(start, end) for start, end in ends if not any(first <= start < last for first, last in clocks)]
    clocks.sort()
    closed = _CLOSED.search(part)
    return clocks or ([closed.span()] if closed else [])


def _other_words(part: str, clocks: list[tuple[int, int]]) -> frozenset[str]:
    plain = part
    for start, end in clocks:
        plain = plain[:start] + " " * (end - start) + plain[end:]
    for pattern, _, _ in SHORT_DAYS:
        plain = pattern.sub(" ", plain)
    words = _WORD.finditer(_ASKED.sub(" ", plain))
    return content_tokens(" ".join(word[0] for word in words if not _LIGHT.fullmatch(word[0])), is_question=True)


def read_days(text: str, patterns: tuple[tuple[re.Pattern[str], int, int], ...]) -> frozenset[int]:
    """Returns the weekdays that a text names, 0 for Monday; those in between, too, of a range."""
    found = sorted(
        (match.start(), match.end(), first, last)
        for pattern, first, last in patterns
        for match in pattern.finditer(text)
    )
    days: set[int] = set()
    for index, (_, end, first, last) in enumerate(found):
        days.update(range(first, last + 1))
        following = found[index + 1] if index + 1 < len(found) else None
        if (
            following
            and _SPAN.fullmatch(text, end, following[0])
            and not re.fullmatch(r"\s*(?:and|und|et|y)\s*", text[end : following[0]])
        ):
            days.update((first + step) % _WEEK for step in range((following[2] - first) % _WEEK + 1))
    return frozenset(days)

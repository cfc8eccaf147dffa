"""Answers from the layout of a page: a label that matches the question, and the value after, next to or below it."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import takewhile

from experts.host.media import Line
from experts.lite.question_answering import classify_question, find_answer, find_spans
from experts.lite.reading_order import group_rows, line_height
from experts.lite.text_processing import stem, stem_words

_PHRASES = {
    "phone": "phone number|telephone number|telephone|tel",
    "total": "amount due|balance due|total due|grand total|total amount|amount payable|amount to pay|to pay|pay",
    "number": "number|no|nr|num|#",
    "due": "payable by|pay by|payment due|payment is due|due by",
    "customer": "bill to|billed to|sold to|invoice to|addressed to|ship to",
    "sender": "from|seller|vendor|supplier|issued by|sent by|signed|wrote|written by|signature",
    "tax": "sales tax|vat|gst|mwst",
    "date": "dated|date of issue|issue date",
}
"""Synonyms of questions and forms."""
_UNLABELLED_KINDS = frozenset({"EMAIL", "URL", "PHONE", "DATE", "ADDRESS"})
_IMPLIED_LABELS = {"DATE": "date", "MONEY": "total", "EMAIL": "email", "PHONE": "phone", "ADDRESS": "address"}
_GENERIC_STEMS = frozenset(
    map(stem, ("invoice", "document", "bill", "receipt", "letter", "page", "form", "paper", "file", "order"))
)
_PAIR = re.compile(r"([^\W\d_][^:：]{0,40}?)\s*(?::(?!\d)|：)\s*")
_PREFIX = re.compile(r"(\D{2,40}?)\s*[#.]?\s*((?=[$€£¥+(]?\d|[A-Z]{1,5}[-/]?\d).+)")
_CODE = re.compile(r"[A-Z0-9][\w/-]*\d[\w/-]*", re.IGNORECASE)
_DECIMAL = re.compile(r"\d[\d.,' ]*[.,]\d{2}(?![\d%])")
_INTEGER = re.compile(r"\d+(?:[.,]\d{3})*(?![\d.,]|\s*%)")
_CLOSING = re.compile(r"\b(?:sincerely|faithfully|truly|regards|wishes)\b", re.IGNORECASE)
_NAME_KINDS = frozenset({"NAME", "PER", "ORG", "LOC"})
_LABEL_WORDS = 4
_SAME_LINE, _RIGHT, _BELOW = 1.0, 0.95, 0.85
_DECIMAL_FIT, _INTEGER_FIT, _WRONG_KIND = 0.9, 0.6, 0.3
_UNLABELLED, _LETTERHEAD, _MIN_SCORE, _MIN_PROSE_SCORE = 0.6, 0.4, 0.45, 0.3
_MAX_LINE_GAP = 2.5


@dataclass(frozen=True)
class FieldAnswer:
    """An answer with the line that contains it."""

    answer: str
    score: float
    line: Line | None


@dataclass(frozen=True)
class Question:
    """A parsed question: words to find on labels, words that labels may also have, and the kind of value."""

    needed: frozenset[str]
    optional: frozenset[str]
    kinds: frozenset[str]

    @classmethod
    def parse(cls, text: str) -> "Question":
        tokens, kinds = _tokenize(text), classify_question(text)
        implied = frozenset(stem(_IMPLIED_LABELS[kind]) for kind in kinds if kind in _IMPLIED_LABELS)
        generic = tokens & _GENERIC_STEMS if tokens - _GENERIC_STEMS else frozenset[str]()
        return cls(tokens - generic, generic | (implied - tokens), kinds)

    def match_label(self, label: str) -> float:
        """Score from 0 to 1: how much of the question the label covers, and how little else."""
        label_tokens = _tokenize(label)
        shared = label_tokens & self.needed
        if not shared or len(label_tokens) > _LABEL_WORDS:
            return 0.0
        extra = label_tokens & self.optional
        return 2 * len(shared | extra) / (len(self.needed | extra) + len(label_tokens))

    def extract_value(self, text: str) -> tuple[str, float]:
        """Returns the part of the text that is of the requested kind, and how well it matches."""
        spans = find_spans(self.kinds - {"NAME"}, text)
        if spans:
            return text[slice(*spans[0])], 1.0
        for pattern, fit in self._value_patterns():
            if match := pattern.search(text):
                return match[0], fit
        return text, 1.0 if self.kinds <= _NAME_KINDS and stem("number") not in self.needed else _WRONG_KIND

    def _value_patterns(self) -> Iterator[tuple[re.Pattern[str], float]]:
        if "MONEY" in self.kinds:
            yield from ((_DECIMAL, _DECIMAL_FIT), (_INTEGER, _INTEGER_FIT))
        elif stem("number") in self.needed:
            yield _CODE, 1.0


def find_field_answer(question: str, text: str, lines: Sequence[Line]) -> FieldAnswer | None:
    """Returns the best answer of one page, or None."""
    parsed = Question.parse(question)
    best = max(_find_labelled(parsed, lines), key=lambda found: found.score, default=None)
    if best and best.score >= _MIN_SCORE:
        return best
    return _find_unlabelled(parsed, lines) or _find_sender(parsed, lines) or _answer_from_prose(question, text, lines)


def _find_labelled(question: Question, lines: Sequence[Line]) -> Iterator[FieldAnswer]:
    """Yields each matching label with each possible value."""
    for line in lines:
        pairs = list(_split_pairs(line.text))
        for label, value in pairs:
            if value and (fit := question.match_label(label)):
                yield _make_field_answer(question, value, line, fit * _SAME_LINE)
        label_text = pairs[-1][0] if pairs and not pairs[-1][1] else line.text
        if fit := question.match_label(label_text):
            for other, factor in _find_values(line, lines):
                yield _make_field_answer(question, other.text, other, fit * factor)


def _make_field_answer(question: Question, text: str, line: Line, fit: float) -> FieldAnswer:
    value, similarity = question.extract_value(text)
    return FieldAnswer(value.strip(" .,;"), round(fit * similarity * line.score, 4), line)


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


def _find_unlabelled(question: Question, lines: Sequence[Line]) -> FieldAnswer | None:
    """Returns the first address or date without a label, for a question that names nothing else."""
    if not question.kinds & _UNLABELLED_KINDS or question.needed - frozenset(
        map(stem, _IMPLIED_LABELS.values())
    ) - _tokenize("number"):
        return None
    for line in lines:
        if spans := find_spans(question.kinds & _UNLABELLED_KINDS, line.text):
            return FieldAnswer(line.text[slice(*spans[0])], round(_UNLABELLED * line.score, 4), line)
    return None


def _find_sender(question: Question, lines: Sequence[Line]) -> FieldAnswer | None:
    """Returns the sender: below the closing of a letter, or at the top of the page."""
    if question.needed != _tokenize("sender") or not lines:
        return None
    ordered = [line for row in group_rows(lines) for line in row]
    closing = next((index for index, line in enumerate(ordered) if _CLOSING.search(line.text)), -1)
    line = ordered[min(closing + 1, len(ordered) - 1)]
    return FieldAnswer(line.text, round((_UNLABELLED if closing >= 0 else _LETTERHEAD) * line.score, 4), line)


def _answer_from_prose(question: str, text: str, lines: Sequence[Line]) -> FieldAnswer | None:
    """Answers from the sentences of a page, such as a letter."""
    answer = find_answer(question, text)
    if not answer or answer.score < _MIN_PROSE_SCORE:
        return None
    first = answer.text.split("\n")[0]
    line = next((line for line in lines if first in line.text or line.text in first), None)
    return FieldAnswer(" ".join(answer.text.split()), answer.score, line)


def _tokenize(text: str) -> frozenset[str]:
    """Returns the content words, with synonyms replaced by one word."""
    plain = text.lower()
    for name, pattern in _synonym_patterns().items():
        plain = pattern.sub(f" {name} ", plain)
    return frozenset(word for word in stem_words(plain) if not word.isdigit())


@cache
def _synonym_patterns() -> dict[str, re.Pattern[str]]:
    return {
        name: re.compile("|".join(rf"(?<!\w){re.escape(phrase)}(?:\.|(?!\w))" for phrase in phrases.split("|")))
        for name, phrases in _PHRASES.items()
    }

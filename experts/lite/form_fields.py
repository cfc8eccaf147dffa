"""Answers from the layout of a page: a label that matches the question, and the value after, next to or below it."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import takewhile

from experts.host.pdf import Line
from experts.lite.question_answering import find, typed, wanted
from experts.lite.reading_order import height, rows
from experts.lite.sentences import stem, stems

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
_ANYWHERE = frozenset({"EMAIL", "URL", "PHONE", "DATE", "ADDRESS"})
_IMPLIED = {"DATE": "date", "MONEY": "total", "EMAIL": "email", "PHONE": "phone", "ADDRESS": "address"}
_GENERIC = frozenset(
    map(stem, ("invoice", "document", "bill", "receipt", "letter", "page", "form", "paper", "file", "order"))
)
_PAIR = re.compile(r"([^\W\d_][^:：]{0,40}?)\s*(?::(?!\d)|：)\s*")
_PREFIX = re.compile(r"(\D{2,40}?)\s*[#.]?\s*((?=[$€£¥+(]?\d|[A-Z]{1,5}[-/]?\d).+)")
_CODE = re.compile(r"[A-Z0-9][\w/-]*\d[\w/-]*", re.IGNORECASE)
_DECIMAL = re.compile(r"\d[\d.,' ]*[.,]\d{2}(?![\d%])")
_INTEGER = re.compile(r"\d+(?:[.,]\d{3})*(?![\d.,]|\s*%)")
_CLOSING = re.compile(r"\b(?:sincerely|faithfully|truly|regards|wishes)\b", re.IGNORECASE)
_WORDS = frozenset({"NAME", "PER", "ORG", "LOC"})
_LABEL_WORDS = 4
_SAME, _RIGHT, _BELOW = 1.0, 0.95, 0.85
_DECIMAL_FIT, _INTEGER_FIT, _WRONG_KIND = 0.9, 0.6, 0.3
_UNLABELLED, _LETTERHEAD, _LEAST, _LEAST_PROSE = 0.6, 0.4, 0.45, 0.3
_REACH = 2.5


@dataclass(frozen=True)
class Reading:
    """An answer with its line."""

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
    def of(cls, text: str) -> "Question":
        asked, kinds = _tokens(text), wanted(text)
        implied = frozenset(stem(_IMPLIED[kind]) for kind in kinds if kind in _IMPLIED)
        generic = asked & _GENERIC if asked - _GENERIC else frozenset[str]()
        return cls(asked - generic, generic | (implied - asked), kinds)

    def fits(self, label: str) -> float:
        """Score from 0 to 1: how much of the question the label covers, and how little else."""
        said = _tokens(label)
        shared = said & self.needed
        if not shared or len(said) > _LABEL_WORDS:
            return 0.0
        extra = said & self.optional
        return 2 * len(shared | extra) / (len(self.needed | extra) + len(said))

    def value(self, text: str) -> tuple[str, float]:
        """Returns the part of the text that is of the requested kind, and how well it matches."""
        spans = typed(self.kinds - {"NAME"}, text)
        if spans:
            return text[slice(*spans[0])], 1.0
        for pattern, fit in self._patterns():
            if match := pattern.search(text):
                return match[0], fit
        return text, 1.0 if self.kinds <= _WORDS and stem("number") not in self.needed else _WRONG_KIND

    def _patterns(self) -> Iterator[tuple[re.Pattern[str], float]]:
        if "MONEY" in self.kinds:
            yield from ((_DECIMAL, _DECIMAL_FIT), (_INTEGER, _INTEGER_FIT))
        elif stem("number") in self.needed:
            yield _CODE, 1.0


def answer(question: str, text: str, lines: Sequence[Line]) -> Reading | None:
    """Returns the best answer of one page, or None."""
    asked = Question.of(question)
    best = max(_readings(asked, lines), key=lambda reading: reading.score, default=None)
    if best and best.score >= _LEAST:
        return best
    return _unlabelled(asked, lines) or _signature(asked, lines) or _prose(question, text, lines)


def _readings(asked: Question, lines: Sequence[Line]) -> Iterator[Reading]:
    """Yields each matching label with each possible value."""
    for line in lines:
        pairs = list(_pairs(line.text))
        for label, said in pairs:
            if said and (fit := asked.fits(label)):
                yield _reading(asked, said, line, fit * _SAME)
        alone = pairs[-1][0] if pairs and not pairs[-1][1] else line.text
        if fit := asked.fits(alone):
            for other, place in _around(line, lines):
                yield _reading(asked, other.text, other, fit * place)


def _reading(asked: Question, text: str, line: Line, fit: float) -> Reading:
    value, likeness = asked.value(text)
    return Reading(value.strip(" .,;"), round(fit * likeness * line.score, 4), line)


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    """Splits label and value on one line at a colon, or where the figures begin."""
    colons = list(_PAIR.finditer(text))
    starts = [match.start() for match in colons] + [len(text)]
    for place, match in enumerate(colons, 1):
        yield match[1], text[match.end() : starts[place]].strip()
    if not colons and (bare := _PREFIX.fullmatch(text)):
        yield bare[1], bare[2]


def _around(label: Line, lines: Sequence[Line]) -> Iterator[tuple[Line, float]]:
    """Returns the lines to the right in the same row, and the next line below."""
    row = next((row for row in rows(lines) if label in row), [label])
    right = takewhile(lambda other: not _is_label(other), row[row.index(label) + 1 :])
    yield from ((other, _RIGHT) for other in right)
    below = [
        other
        for other in lines
        if 0 <= other.box[1] - label.box[3] + height(label) / 2 <= _REACH * height(label)
        and min(other.box[2], label.box[2]) > max(other.box[0], label.box[0])
        and other is not label
        and not _is_label(other)
    ]
    yield from ((other, _BELOW) for other in sorted(below, key=lambda other: other.box[1])[:1])


def _is_label(line: Line) -> bool:
    return line.text.endswith((":", "："))


def _unlabelled(asked: Question, lines: Sequence[Line]) -> Reading | None:
    """Returns the first address or date without a label, for a question that names nothing else."""
    if not asked.kinds & _ANYWHERE or asked.needed - frozenset(map(stem, _IMPLIED.values())) - _tokens("number"):
        return None
    for line in lines:
        if spans := typed(asked.kinds & _ANYWHERE, line.text):
            return Reading(line.text[slice(*spans[0])], round(_UNLABELLED * line.score, 4), line)
    return None


def _signature(asked: Question, lines: Sequence[Line]) -> Reading | None:
    """Returns the sender: below the closing of a letter, or at the top of the page."""
    if asked.needed != _tokens("sender") or not lines:
        return None
    ordered = [line for row in rows(lines) for line in row]
    closing = next((place for place, line in enumerate(ordered) if _CLOSING.search(line.text)), -1)
    line = ordered[min(closing + 1, len(ordered) - 1)]
    return Reading(line.text, round((_UNLABELLED if closing >= 0 else _LETTERHEAD) * line.score, 4), line)


def _prose(question: str, text: str, lines: Sequence[Line]) -> Reading | None:
    """Answers from the sentences of a page, such as a letter."""
    found = find(question, text)
    if not found or found.score < _LEAST_PROSE:
        return None
    first = found.text.split("\n")[0]
    line = next((line for line in lines if first in line.text or line.text in first), None)
    return Reading(" ".join(found.text.split()), found.score, line)


def _tokens(text: str) -> frozenset[str]:
    """Returns the content words, with synonyms replaced by one word."""
    plain = text.lower()
    for name, pattern in _patterns().items():
        plain = pattern.sub(f" {name} ", plain)
    return frozenset(word for word in stems(plain) if not word.isdigit())


@cache
def _patterns() -> dict[str, re.Pattern[str]]:
    return {
        name: re.compile("|".join(rf"(?<!\w){re.escape(phrase)}(?:\.|(?!\w))" for phrase in phrases.split("|")))
        for name, phrases in _PHRASES.items()
    }

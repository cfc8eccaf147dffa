"""Calculation by rules: totals of bills added up or compared, lengths and dates of texts compared, days, arithmetic.

A question that is not understood, or whose amounts or dates are not found, is an error that says so: never a guess.
"""

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal, DivisionByZero, InvalidOperation
from typing import Any

from experts.host.handler import Handler, Inputs, Outputs, Parameters, single
from experts.lite.quantities import (
    Amount,
    find_amounts,
    find_dates,
    find_due_date,
    find_issue_date,
    find_total,
    parse_number,
)
from experts.lite.text_processing import STOPWORDS, load_vocabulary, require_text, split_words, stem
from experts.lite.text_statistics import count_words, number_of
from services.common.errors import InvalidRequest

ABILITIES = (
    "adding up or comparing the totals of bills, comparing the lengths or dates of texts, counting days, weeks, months"
    " or years between dates, and arithmetic such as 12 * 3.5 or 15% of 240"
)

_UNIT = re.compile(r"\b(?P<unit>day|week|month|year)s?\b")
_UNIT_COUNT = re.compile(
    r"\b(?P<count>\d+|an?|one|two|three|four|five|six|seven|ten)\s+(?P<unit>day|week|month|year)s?\b"
)
_COUNT_WORDS = {"a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "ten": 10}
_WORKING_DAYS = re.compile(r"\b(?:working|business|week)\s?days?\b")
_TODAY = re.compile(r"\b(?:today|now|left|remain\w*|ago|from\s+now|until|till|since|old)\b")
_WEEKDAY = re.compile(
    r"\b(?:which|what)\s+(?:day\s+of\s+the\s+week|weekday|day)\b|\bon\s+(?:which|what)\s+(?:week)?day\b"
)
_DUE = re.compile(r"\b(?:due|deadline|pay(?:able|ment)?|paid|expire[sd]?|expir\w+|valid|runs?\s+out|ends?)\b")
_ISSUED = re.compile(
    r"\b(?:(?:invoice|bill|receipt)\s+date|issued?|dated|date\s+of|(?:after|from|since)\s+(?:the\s+)?(?:invoice|bill))\b"
)
_SUM = re.compile(
    r"\badd(?:ed|ing)?\b|\bsums?\b|\btotals?\b|\baltogether\b|\btogether\b|\bin\s+(?:all|total|sum)\b|\bcombined\b|\boverall\b|\bplus\b"
)
_AVERAGE = re.compile(r"\baverage\b|\bon\s+average\b|\bmean\b")
_DIFFERENCE = re.compile(
    r"\bdifferen\w+\b|\bby\s+how\s+m\w+\b|\bhow\s+m(?:uch|any)\s+(?:\w+\s+)?(?:more|less|fewer|cheaper|dearer|higher|lower|longer|shorter)\b|\bsubtract\w*\b|\bminus\b"
)
_LENGTH = re.compile(r"\b(?:long(?:er|est)?|short(?:er|est)?|words?)\b")
_DATE = re.compile(
    r"\b(?:earl(?:y|ier|iest)|lat(?:er|est)|soon(?:er|est)|old(?:er|est)|new(?:er|est)|recent|first|last)\b"
)
_PRICE = re.compile(r"\b(?:expensive|cheap\w*|dear\w*|cost\w*|prices?|amounts?|totals?|money)\b")
_MONEY = re.compile(
    r"\b(?:expensive|cheap\w*|dear\w*|cost\w*|prices?|amounts?|totals?|money|how\s+much|bills?|invoices?|receipts?|pay|owe)\b"
)
_PART = re.compile(
    r"\b(?:vat|tax\w*|net|sub-?totals?|tips?|discounts?|deposits?|shipping|delivery|postage|labou?r|per|hourly|daily|monthly)\b"
)
"""Parts of a bill, of which no total is meant."""
_NEUTRAL = frozenset(map(stem, load_vocabulary()["comparison_words"]))
"""Stems of words that say nothing of what is compared beyond the whole texts, their totals and their dates."""
_SMALLEST = re.compile(
    r"\b(?:cheap\w*|less|least|low\w*|small\w*|short\w*|few\w*|earl\w*|soon\w*|old\w*|first|minimum)\b"
)
_LARGEST = re.compile(
    r"\b(?:expensive|dear\w*|costl\w+|more|most|high\w*|bigg\w+|larg\w+|great\w*|long\w*|lat\w+|new\w*|recent|last|maximum|costs?)\b"
)
_COMPARATIVE = (
    r"(?:cheap|dear|costli|low|small|short|few|earl|soon|old|high|bigg|larg|great|long|lat|new)(?:i?er|e?r|i?est|e?st)\b"
    r"|(?:more|most|less|least)\b"
)
_PERCENT_OF = re.compile(r"(?P<share>\d[\d.,]*)\s*(?:%|per\s?cent)\s+(?:of|from|on)\s+(?P<rest>.+)", re.DOTALL)
_OPERATORS = (
    (r"\b(?:divided\s+by|over)\b|÷", "/"),
    (r"\b(?:times|multiplied\s+by)\b|×|(?<=\d)\s*x\s*(?=\d)", "*"),
    (r"\bplus\b", "+"),
    (r"\bminus\b|−", "-"),
)
_EXPRESSION = re.compile(r"(?:[-(\s]*\d[\d.,]*[)\s]*[-+*/])+[-(\s]*\d[\d.,]*\)*")
_MAX_EXPRESSION = 200
_BINARY: Mapping[type[ast.operator], Callable[[Decimal, Decimal], Decimal]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


@dataclass(frozen=True)
class Result:
    """A result and the values it comes from, in the order of the texts."""

    operation: str
    quantity: str
    values: Sequence[str]
    result: str
    text: str

    def outputs(self) -> Outputs:
        details = {"operation": self.operation, "quantity": self.quantity, "values": list(self.values)}
        return {"text": self.text, "details": {**details, "result": self.result}}


def calculation(_model_id: str, _device: str) -> Handler:
    """Handler without a model to load."""
    return single(_calculate)


def _calculate(inputs: Inputs, _parameters: Parameters) -> Outputs:
    question = require_text(inputs["question"], "question")
    return calculate(question, inputs.get("text") or [], date.today()).outputs()  # noqa: DTZ011  # the local date, as a user expects


def calculate(question: str, texts: Sequence[str], today: date) -> Result:
    """Returns the result of a question about amounts, lengths or dates.

    Args:
        question: what to calculate.
        texts: that state the amounts or dates; none if the question states them.
        today: the date that "until" and "ago" count from.

    Raises:
        InvalidRequest: the question is not understood, or a value is not found.
    """
    words = " ".join(question.lower().split())
    for solve in (_dates, _arithmetic, _several):
        if result := solve(words, texts, today):
            return result
    raise _not_understood("the question names no calculation that is known")


def _not_understood(
    reason: str, remedy: str = f"this model supports: {ABILITIES}", port: str = "question"
) -> InvalidRequest:
    return InvalidRequest(f"cannot calculate this: {reason}", remedy=remedy, port=port)


# ---------------------------------------------------------------- dates


def _dates(words: str, texts: Sequence[str], today: date) -> Result | None:
    """A number of days between two dates, the weekday of a date, or a date so many days away."""
    stated = _stated_dates(words, today)
    if (shift := _UNIT_COUNT.search(words)) and len(stated) <= 1 and re.search(r"\b(?:date|day|when)\b", words):
        return _shifted(words, shift, stated[0] if stated else today)
    if len(stated) == 1 and _WEEKDAY.search(words) and not re.search(r"\bhow\s+many\b", words):
        return Result(
            "weekday", "date", [_written(stated[0])], f"{stated[0]:%A}", f"{_written(stated[0])} is a {stated[0]:%A}"
        )
    unit = _UNIT.search(words)
    if not unit or not re.search(r"\bhow\s+(?:many|long|old)\b|\bnumber\s+of\b|\bcount\b", words):
        return None
    if _WORKING_DAYS.search(words):
        raise _not_understood("working days depend on holidays, which are not known")
    if len(stated) > 2:  # noqa: PLR2004  # from one to the other
        raise _not_understood("it names more than two dates")
    if len(stated) == 1 and _TODAY.search(words):
        stated = sorted([today, stated[0]]) if stated[0] != today else [today, today]
    if not stated and len(texts) == 1:
        stated = _dates_of_bill(words, texts[0], today)
    if len(stated) != 2:  # noqa: PLR2004  # as above
        return None
    return _between(stated[0], stated[1], unit["unit"])


def _stated_dates(words: str, today: date) -> list[date]:
    """The dates a question names; a date without a year is in the year of the others, else in this year.

    Raises:
        InvalidRequest: there is no such date.
    """
    found = find_dates(words)
    year = next((stated.year for stated in found if stated.year), today.year)
    try:
        dates = [stated.in_year(year) for stated in found]
    except ValueError:
        raise _not_understood("it names a date that does not exist", remedy="correct the date") from None
    if (
        len(dates) == 1
        and not found[0].year
        and re.search(r"\b(?:until|till|left|remain\w*)\b", words)
        and dates[0] < today
    ):
        dates = [found[0].in_year(today.year + 1)]
    if re.search(r"\btoday\b", words):
        dates.append(today)
    if re.search(r"\bchristmas\b", words):
        christmas = date(today.year, 12, 25)
        dates.append(christmas if christmas >= today else christmas.replace(year=today.year + 1))
    return dates


def _dates_of_bill(words: str, text: str, today: date) -> list[date]:
    """From the date of a bill, or from today, to its due date.

    Raises:
        InvalidRequest: the text does not state them.
    """
    if not _DUE.search(words):
        return []
    due = find_due_date(text)
    if due is None:
        raise _not_understood(
            "no due date was found in the text", remedy="state the dates in the question", port="text"
        )
    if not _ISSUED.search(words):
        return [today, due]
    issued = find_issue_date(text)
    if issued is None:
        raise _not_understood(
            "no date of issue was found in the text", remedy="state the dates in the question", port="text"
        )
    return [issued, due]


def _shifted(words: str, shift: re.Match[str], start: date) -> Result:
    count = _COUNT_WORDS.get(shift["count"]) or int(shift["count"])
    sign = -1 if re.search(r"\b(?:before|ago|earlier)\b", words) else 1
    try:
        moved = _move(start, sign * count, shift["unit"])
    except (ValueError, OverflowError):
        raise _not_understood("the result is no date", remedy="use a smaller number") from None
    direction = "before" if sign < 0 else "after"
    text = f"{_written(moved)} ({moved:%A}): {number_of(count, shift['unit'])} {direction} {_written(start)}"
    return Result("shift", "date", [_written(start)], _written(moved), text)


def _move(start: date, count: int, unit: str) -> date:
    if unit in {"day", "week"}:
        return start + timedelta(days=count * (7 if unit == "week" else 1))
    months = start.month - 1 + count * (12 if unit == "year" else 1)
    first = date(start.year + months // 12, months % 12 + 1, 1)
    last_day = (date(first.year + first.month // 12, first.month % 12 + 1, 1) - timedelta(days=1)).day
    return first.replace(day=min(start.day, last_day))


def _between(start: date, end: date, unit: str) -> Result:
    first, last = sorted((start, end))
    days = (last - first).days
    length = _length(first, last, days, unit)
    past = ", which is in the past" if end < start else ""
    in_days = "" if unit == "day" else f" ({number_of(days, 'day')})"
    text = f"{length}{in_days} from {_written(start)} to {_written(end)}{past}"
    return Result("difference", "date", [_written(start), _written(end)], length, text)


def _length(first: date, last: date, days: int, unit: str) -> str:
    """Whole units and the days that remain: "6 weeks", "1 month and 11 days"."""
    if unit == "day":
        return number_of(days, "day")
    count, rest = divmod(days, 7)
    if unit != "week":
        count = next(count for count in range(days // 28, -1, -1) if _move(first, count, unit) <= last)
        rest = (last - _move(first, count, unit)).days
    return number_of(count, unit) + (f" and {number_of(rest, 'day')}" if rest else "")


def _written(day: date) -> str:
    return f"{day.day} {day:%B %Y}"


# ---------------------------------------------------------------- arithmetic


def _arithmetic(words: str, texts: Sequence[str], _today: date) -> Result | None:
    """The value of an expression, or a percentage of an amount."""
    if share := _PERCENT_OF.search(words):
        amounts = [amount for amount, _ in find_amounts(share["rest"])]
        if not amounts and len(texts) == 1 and re.search(r"\b(?:total|bill|invoice|it|amount|sum)\b", share["rest"]):
            amounts = _totals(texts)
        if len(amounts) != 1:
            raise _not_understood("the amount to take the percentage of is not clear")
        part = Amount(amounts[0].value * parse_number(share["share"].rstrip(".,")) / 100, amounts[0].currency)
        written = f"{share['share'].rstrip('.,')}% of {amounts[0]}"
        return Result("percentage", "number", [str(amounts[0])], str(part), f"{part} is {written}")
    for pattern, sign in _OPERATORS:
        words = re.sub(pattern, sign, words)
    found = _EXPRESSION.search(words)
    if not found or find_dates(words):
        return None
    value = _evaluate(found[0].strip())
    return Result("arithmetic", "number", [], _plain(value), f"{_plain(value)} ({' '.join(found[0].split())})")


def _evaluate(expression: str) -> Decimal:
    if len(expression) > _MAX_EXPRESSION:
        raise _not_understood(f"the expression is longer than {_MAX_EXPRESSION} characters", remedy="shorten it")
    exact = re.sub(r"\d[\d.,]*", lambda number: str(parse_number(number[0].rstrip(".,"))), expression)
    try:
        return _value(ast.parse(exact.strip(), mode="eval").body, exact.strip())
    except (DivisionByZero, InvalidOperation):
        raise _not_understood("it divides by zero", remedy="correct the expression") from None
    except (SyntaxError, RecursionError):
        raise _not_understood("the expression is incomplete", remedy="correct its brackets and signs") from None


def _value(node: ast.expr, source: str) -> Decimal:
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        return _BINARY[type(node.op)](_value(node.left, source), _value(node.right, source))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand, source)
    if isinstance(node, ast.Constant):
        return Decimal(ast.get_source_segment(source, node) or "0")
    raise SyntaxError(source)


def _plain(value: Decimal) -> str:
    rounded = round(value, 6).normalize()
    return f"{rounded:,f}"


# ---------------------------------------------------------------- several texts


def _several(words: str, texts: Sequence[str], _today: date) -> Result | None:
    """A sum, an average, a difference or a comparison of one value of each text."""
    if not texts or (len(texts) == 1 and not find_amounts(words)):
        return _sum_of_items(words, texts)
    if _LENGTH.search(words) and not _PRICE.search(words):
        _require_only(words, "the number of words of the texts")
        return _compared(words, [count_words(text) for text in texts], _words_kind())
    if _DATE.search(words) and not _PRICE.search(words):
        if any(len({(one.day, one.month, one.year) for one in find_dates(text)}) != 1 for text in texts):
            _require_only(words, "the dates of the texts")
        return _compared(words, _labelled_dates(words, texts), _date_kind("due date" if _DUE.search(words) else "date"))
    _require_totals(words, texts)
    totals = _totals(texts)
    currencies = {total.currency for total in totals if total.currency}
    if len(currencies) > 1:
        raise _not_understood(f"the amounts are in different currencies: {', '.join(map(str, totals))}", port="text")
    currency = next(iter(currencies), "")
    values = [total.value for total in totals]
    written = [str(Amount(value, currency)) for value in values]
    if _AVERAGE.search(words):
        return _aggregate("average", Amount(sum(values, Decimal()) / len(values), currency), written)
    if _SUM.search(words) and not _compares(words):
        return _aggregate("sum", Amount(sum(values, Decimal()), currency), written)
    return _compared(words, values, _money_kind(currency))


def _require_only(words: str, compared: str) -> None:
    """Raises InvalidRequest if a question names something else than what is compared."""
    if unknown := _unknown_words(words):
        raise _not_understood(f"it asks about “{unknown[0]}”, and only {compared} can be compared")


def _require_totals(words: str, texts: Sequence[str]) -> None:
    """Raises InvalidRequest if a question is not about the totals of bills, but about their parts or other sizes."""
    if not (_MONEY.search(words) or _SUM.search(words) or _AVERAGE.search(words)):
        raise _not_understood("it does not say which amounts are meant")
    rows = [row.lower() for text in texts for row in text.splitlines() if find_amounts(row)]
    part = _PART.search(words)
    named = part[0] if part else next((word for word in _unknown_words(words) if any(word in row for row in rows)), "")
    if named:
        raise _not_understood(f"it asks about “{named}”, and only the totals of bills can be compared or added up")


def _unknown_words(words: str) -> list[str]:
    return [word for word in split_words(words) if word not in STOPWORDS and stem(word) not in _NEUTRAL]


def _sum_of_items(words: str, texts: Sequence[str]) -> Result | None:
    """The sum of the amounts that the question, or a single text without a total, lists."""
    if not (_SUM.search(words) or _AVERAGE.search(words)):
        return None
    text = texts[0] if texts else words
    if texts and find_total(text):
        raise _not_understood("the text states a total already", remedy="ask what the total is")
    amounts = [amount for amount, _ in find_amounts(text) if amount.is_money or not texts]
    currencies = {amount.currency for amount in amounts if amount.currency}
    if len(amounts) < 2 or len(currencies) > 1:  # noqa: PLR2004  # one is no sum
        raise _not_understood("it needs at least two amounts in one currency", port="text" if texts else "question")
    currency, values = next(iter(currencies), ""), [amount.value for amount in amounts]
    average = bool(_AVERAGE.search(words))
    total = sum(values, Decimal()) / (len(values) if average else 1)
    written = [str(Amount(value, currency)) for value in values]
    result = str(Amount(total, currency))
    name = "average" if average else "sum"
    return Result(name, "amount", written, result, f"{result} is the {name} of {', '.join(written)}")


def _compares(words: str) -> bool:
    return bool(_DIFFERENCE.search(words) or re.search(rf"\b(?:which|what|who)\b.*\b(?:{_COMPARATIVE})", words))


def _totals(texts: Sequence[str]) -> list[Amount]:
    found = [find_total(text) for text in texts]
    missing = [f"text {index}" for index, total in enumerate(found, 1) if total is None]
    if missing:
        raise _not_understood(
            f"no clear total was found in {', '.join(missing)}", remedy="state the amounts in the question", port="text"
        )
    return [total for total in found if total]


def _labelled_dates(words: str, texts: Sequence[str]) -> list[date]:
    find = find_due_date if _DUE.search(words) else find_issue_date
    found = [find(text) for text in texts]
    missing = [f"text {index}" for index, day in enumerate(found, 1) if day is None]
    if missing:
        raise _not_understood(
            f"no date was found in {', '.join(missing)}", remedy="state the dates in the question", port="text"
        )
    return [day for day in found if day]


def _aggregate(operation: str, amount: Amount, written: Sequence[str]) -> Result:
    values = ", ".join(f"text {index}: {value}" for index, value in enumerate(written, 1))
    return Result(operation, "amount", written, str(amount), f"{amount} is the {operation} ({values})")


@dataclass(frozen=True)
class _Kind:
    """How values of one kind are compared and written."""

    name: str
    largest: str
    smallest: str
    write: Callable[[Any], str]
    difference: Callable[[Any, Any], str]
    """Writes what lies between the smaller and the larger of two values."""


def _words_kind() -> _Kind:
    def write(count: int) -> str:
        return number_of(count, "word")

    return _Kind("words", "is the longest", "is the shortest", write, lambda low, high: write(high - low))


def _money_kind(currency: str) -> _Kind:
    def write(value: Decimal) -> str:
        return str(Amount(value, currency))

    largest, smallest = "has the largest amount", "has the smallest amount"
    return _Kind("amount", largest, smallest, write, lambda low, high: write(high - low))


def _date_kind(kind: str) -> _Kind:
    largest, smallest = f"has the latest {kind}", f"has the earliest {kind}"
    return _Kind("date", largest, smallest, _written, lambda low, high: number_of((high - low).days, "day"))


def _compared(words: str, values: Sequence[Any], kind: _Kind) -> Result:
    """Which value is the largest or the smallest, and by how much if there are two."""
    smallest, largest = _SMALLEST.search(words), _LARGEST.search(words)
    if smallest and largest and largest[0] in {"more", "most", "cost", "costs"}:
        largest = None
    if not (smallest or largest or _DIFFERENCE.search(words)):
        raise _not_understood("it does not say how to compare")
    wanted = min(values) if smallest and not largest else max(values)
    written = [kind.write(value) for value in values]
    difference = kind.difference(min(values), max(values))
    best = [f"text {index}" for index, value in enumerate(values, 1) if value == wanted]
    if len(best) == len(values):
        return Result("comparison", kind.name, written, "equal", f"they are equal: {written[0]} each")
    others = [f"text {index} has {written[index - 1]}" for index, value in enumerate(values, 1) if value != wanted]
    what = kind.smallest if smallest and not largest else kind.largest
    text = f"{' and '.join(best)} {what}, {kind.write(wanted)}; {', '.join(others)}; the difference is {difference}"
    return Result("comparison", kind.name, written, " and ".join(best), text)

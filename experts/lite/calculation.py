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
from experts.lite.stated_values import find_amount, find_event, mentions, named_words
from experts.lite.text_processing import (
    STOPWORDS,
    load_vocabulary,
    require_text,
    split_sentences,
    split_words,
    stem,
)
from experts.lite.text_statistics import count_words, number_of
from services.common.errors import InvalidRequest

ABILITIES = (
    "adding up or comparing the totals or other amounts of bills, comparing the lengths or dates of texts, counting"
    " days, weeks, months or years between dates, and arithmetic such as 12 * 3.5 or 15% of 240"
)

_UNIT = re.compile(r"\b(?P<unit>day|night|week|month|year)s?\b")
_COUNT_WORDS = {"a": 1, "an": 1} | {
    word: count
    for counts, words in (
        (range(1, 16), "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen"),
        (range(20, 100, 10), "twenty thirty forty fifty sixty seventy eighty ninety"),
    )
    for count, word in zip(counts, words.split(), strict=True)
}
_UNIT_COUNT = re.compile(rf"\b(?P<count>\d+|{'|'.join(_COUNT_WORDS)})\s+(?P<unit>day|week|month|year)s?\b")
_SHIFTED_FROM = re.compile(r"\s+(?P<way>after|before|from|since|later\s+than)\s+(?P<event>[^?!,;]+)")
_EVENTS = re.compile(
    r"\b(?:between|from)\s+(?P<first>[^?!,;]{1,80}?)\s+(?:and|to|until|till)\s+(?P<second>[^?!,;]{1,80})"
)
_RISE = re.compile(
    r"\bby\s+how\s+much\b|\bhow\s+much\s+(?:more|less)\b|\bhow\s+(?:much|big|large)\s+(?:is|was|will\s+be)\s+the\s+(?:increase|rise|reduction)\b|\bdifference\s+between\b"
    r"|\bhow\s+much\b.{0,40}\b(?:go(?:es)?\s+up|rise|increase|change|drop|fall|go(?:es)?\s+down)\b"
)
_FROM_TO = re.compile(r"\bfrom\s+(?P<old>\S.{0,20}?)\s+to\s+(?P<new>\S.{0,20})")
_OLD = re.compile(
    r"\b(?:was|were|had\s+been|so\s+far|until\s+now|up\s+to\s+now|previous\w*|old|former\w*|last|current\w*|currently|at\s+present|at\s+the\s+moment|this\s+year)\b"
)
_NEW = re.compile(
    r"\b(?:will|new|next|coming|from\s+\d{1,2}\s+\w+|from\s+(?:january|february|march|april|may|june|july|august|september|october|november|december)|in\s+future|future|from\s+now\s+on|as\s+of|increase[sd]?\s+to|rises?\s+to|reduced?\s+to|we\s+offer)\b"
)
_SECOND_QUESTION = re.compile(r"\band\s+(?:what|which|when|who|where|how)\b")
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
    for solve in (_dates, _arithmetic, _rise, _several):
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
    shift = _UNIT_COUNT.search(words)
    if (
        shift
        and len(stated) <= 1
        and re.search(r"\b(?:date|day|when)\b", words[: shift.start()] + words[shift.end() :])
    ):
        return _shifted(words, shift, stated[0] if stated else _start_of_shift(words, shift, texts, today))
    if len(stated) == 1 and _WEEKDAY.search(words) and not re.search(r"\bhow\s+many\b", words):
        return Result(
            "weekday", "date", [_written(stated[0])], f"{stated[0]:%A}", f"{_written(stated[0])} is a {stated[0]:%A}"
        )
    unit_name = unit["unit"] if (unit := _UNIT.search(words)) else "year" if re.search(r"\bhow\s+old\b", words) else ""
    if not unit_name or not re.search(
        r"\bhow\s+(?:many|long|old)\b|\bnumber\s+of\b|\bcount\b|\b(?:days|weeks|months|years)\s+(?:between|from)\b",
        words,
    ):
        return None
    if _WORKING_DAYS.search(words):
        raise _not_understood("working days depend on holidays, which are not known")
    if len(stated) > 2:  # noqa: PLR2004  # from one to the other
        raise _not_understood("it names more than two dates")
    if len(stated) == 1 and _TODAY.search(words):
        stated = sorted([today, stated[0]]) if stated[0] != today else [today, today]
    if not stated and len(texts) == 1:
        stated = _dates_of_events(words, texts[0]) or _dates_of_bill(words, texts[0], today)
    if len(stated) != 2:  # noqa: PLR2004  # as above
        return None
    return _between(stated[0], stated[1], unit_name)


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


def _start_of_shift(words: str, shift: re.Match[str], texts: Sequence[str], today: date) -> date:
    """The date that "thirty days after the invoice date" counts from.

    Raises:
        InvalidRequest: no text states it.
    """
    named = _SHIFTED_FROM.match(words, shift.end())
    if named is None or re.match(r"(?:today|now)\b", named["event"]):
        return today
    start = find_event(texts[0], named["event"]) if len(texts) == 1 else None
    if start is None:
        raise _not_understood(f"no date of “{named['event']}” was found", remedy="state the date in the question")
    return start


def _dates_of_events(words: str, text: str) -> list[date]:
    """The dates of "between the order and the delivery"; none if a text does not state both."""
    events = _EVENTS.search(words)
    if not events:
        return []
    days = [day for name in ("first", "second") if (day := find_event(text, events[name]))]
    return days if len(set(days)) == 2 else []  # noqa: PLR2004  # from one to the other


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
    in_days = "" if unit in {"day", "night"} else f" ({number_of(days, 'day')})"
    text = f"{length}{in_days} from {_written(start)} to {_written(end)}{past}"
    return Result("difference", "date", [_written(start), _written(end)], length, text)


def _length(first: date, last: date, days: int, unit: str) -> str:
    """Whole units and the days that remain: "6 weeks", "1 month and 11 days"."""
    if unit in {"day", "night"}:
        return number_of(days, unit)
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
    named = "" if _SECOND_QUESTION.search(words) else " ".join(named_words(texts, _unknown_words(words)))
    totals = _named_amounts(named, texts)
    if not totals:
        named = "amount"
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
    return _compared(words, values, _money_kind(currency, named))


def _named_amounts(named: str, texts: Sequence[str]) -> list[Amount]:
    """The amounts that all texts state for what a question names, such as the deposit; none if they do not."""
    found = [find_amount(text, named) for text in texts] if named else []
    return [one.value for one in found if one] if all(found) else []


def _rise(words: str, texts: Sequence[str], _today: date) -> Result | None:
    """The difference of an old and a new amount, or of two that a question names.

    Raises:
        InvalidRequest: a text does not state clearly which amounts are meant.
    """
    if len(texts) != 1 or not _RISE.search(words):
        return None
    text, asked = texts[0], _unknown_words(words)
    named = _named_pair(words, text)
    pair = named or _amounts_from_to(text, asked) or _old_and_new(text, asked)
    if pair is None:
        raise _not_understood("it is not clear which two amounts are meant", remedy="state the amounts", port="text")
    old, new = pair
    if old.currency != new.currency:
        raise _not_understood(f"the amounts are in different currencies: {old}, {new}", port="text")
    difference = Amount(abs(new.value - old.value), old.currency)
    way = "more" if new.value > old.value else "less"
    written = (
        f"{difference} is the difference between {old} and {new}"
        if named
        else f"{difference} {way}: from {old} to {new}"
    )
    return Result("difference", "amount", [str(old), str(new)], str(difference), written)


def _named_pair(words: str, text: str) -> tuple[Amount, Amount] | None:
    """The amounts of "between the single and the double room"."""
    named = _EVENTS.search(words)
    found = [find_amount(text, named[name]) for name in ("first", "second")] if named else []
    return (found[0].value, found[1].value) if found and found[0] and found[1] else None


def _amounts_from_to(text: str, asked: Sequence[str]) -> tuple[Amount, Amount] | None:
    pairs = set[tuple[Amount, Amount]]()
    for sentence in split_sentences(text):
        if asked and not mentions(sentence.text, asked):
            continue
        for match in _FROM_TO.finditer(sentence.text):
            old, new = (
                [amount for amount, _ in find_amounts(match[name]) if amount.is_money] for name in ("old", "new")
            )
            if old and new:
                pairs.add((old[0], new[0]))
    return pairs.pop() if len(pairs) == 1 else None


def _old_and_new(text: str, asked: Sequence[str]) -> tuple[Amount, Amount] | None:
    """The only amount that a text calls old, and the only one it calls new; one sentence names what is asked about."""
    old, new = set[Amount](), set[Amount]()
    is_named = not asked
    for sentence in split_sentences(text):
        amounts = {amount for amount, _ in find_amounts(sentence.text) if amount.is_money}
        is_old, is_new = _OLD.search(sentence.text.lower()), _NEW.search(sentence.text.lower())
        if bool(is_old) != bool(is_new):
            (old if is_old else new).update(amounts)
            is_named = is_named or bool(amounts and mentions(sentence.text, asked))
    return (old.pop(), new.pop()) if is_named and len(old) == len(new) == 1 else None


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


def _money_kind(currency: str, named: str) -> _Kind:
    def write(value: Decimal) -> str:
        return str(Amount(value, currency))

    largest, smallest = f"has the largest {named}", f"has the smallest {named}"
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

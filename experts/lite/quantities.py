"""Amounts of money and dates that texts state, with the labels of bills: total, invoice date, due date."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal, InvalidOperation

_NUMBER = r"\d{1,3}(?:[.,'’ ]\d{3})+(?:[.,]\d{1,2})?(?!\d)|\d+(?:[.,]\d+)?"
_SCALES = {"thousand": 1_000, "k": 1_000, "million": 1_000_000, "m": 1_000_000, "billion": 1_000_000_000}
_CURRENCIES = {
    "£": ("£", "gbp", "pounds?"),
    "€": ("€", "eur", "euros?"),
    "$": ("us$", "$", "usd", "dollars?"),
    "CHF": ("chf", "francs?", "fr."),
    "₩": ("₩", "krw", "원"),
    "¥": ("¥", "￥", "jpy", "cny", "rmb", "yen", "元", "円"),
    "₹": ("₹", "inr", "rupees?"),
}
_CURRENCY = "|".join(
    (re.escape(name) if name in {"us$", "$", "fr."} else name) for names in _CURRENCIES.values() for name in names
)
_AMOUNT = re.compile(
    rf"(?<![\w.,%/:-])(?:(?P<before>{_CURRENCY})\s?)?(?P<number>{_NUMBER})"
    rf"(?:\s?(?P<scale>{'|'.join(_SCALES)})\b)?(?:\s?(?P<after>{_CURRENCY})(?![^\W\d]))?(?![\w%/:]|[.,-]\d|\s?(?:%|per\s?cent))",
    re.IGNORECASE,
)
_TOTAL_LABELS = (
    (
        r"\b(?:(?:amount|balance|total|sum)\s+(?:due|payable|to\s+(?:be\s+)?(?:paid|pay))|(?:to|please)\s+pay|payable|amount\s+owed)\b"
        r"|zu\s+zahlen|zahlbetrag|\bnet\s+à\s+payer|à\s+payer|total\s+a\s+pagar|应付|청구\s*금액"
    ),
    (
        r"\b(?:grand\s+total|total\s+amount|invoice\s+total|total\s+(?:incl|ttc)|montant\s+total|importe\s+total)\b"
        r"|gesamtbetrag|rechnungsbetrag|endbetrag|gesamtsumme|총액|합계|总计|总额|合计"
    ),
    r"\btotal\b|\bsumme\b|\bsum\b",
    r"\b(?:price|cost|costs|fee|amount|rent|preis|betrag|prix|montant|precio|importe)\b|금액|金额|价格",
)
"""Labels of the amount that is to be paid, the clearest first."""
_PART_LABEL = re.compile(
    r"\bsub-?\s?total|zwischensumme|sous-total|\bnet(?:to)?\b(?!\s+à)|\b(?:vat|tax|mwst|ust|tva|iva|discount|change|cash|deposit|rabatt)\b"
    r"|\bpaid\b|total\s+(?:ht|net)",
    re.IGNORECASE,
)
_TOTALS = tuple(re.compile(label, re.IGNORECASE) for label in _TOTAL_LABELS)

_MONTHS = {
    name: number
    for number, names in enumerate(
        (
            "jan january januar janvier enero",
            "feb february februar février fevrier febrero",
            "mar march märz mars marzo",
            "apr april avril abril",
            "may mai mayo",
            "jun june juni juin junio",
            "jul july juli juillet julio",
            "aug august août aout agosto",
            "sep sept september septembre septiembre",
            "oct october oktober octobre octubre okt",
            "nov november novembre noviembre",
            "dec december dezember décembre decembre diciembre dez",
        ),
        1,
    )
    for name in names.split()
}
_MONTH = "|".join(sorted(_MONTHS, key=len, reverse=True))
_DATES = (
    re.compile(r"(?<!\d)(?P<year>\d{4})\s?[-年년]\s?(?P<month>\d{1,2})\s?[-月월]\s?(?P<day>\d{1,2})(?!\d)"),
    re.compile(r"(?<![\d.,/-])(?P<first>\d{1,2})(?P<sign>[./-])(?P<second>\d{1,2})(?P=sign)(?P<year>\d{4})(?!\d)"),
    re.compile(
        rf"(?<!\d)(?P<day>\d{{1,2}})(?:st|nd|rd|th|er|\.)?\s+(?:of\s+|de\s+)?(?P<name>{_MONTH})\b\.?(?:,?\s+(?:de\s+)?(?P<year>\d{{4}})\b)?",
        re.IGNORECASE,
    ),
    re.compile(
        rf"\b(?P<name>{_MONTH})\.?\s+(?P<day>\d{{1,2}})(?:st|nd|rd|th)?\b(?:,?\s+(?P<year>\d{{4}})\b)?", re.IGNORECASE
    ),
)
_DUE_LABEL = re.compile(
    r"\b(?:due|pay(?:able)?\s+(?:by|until|before)|deadline|valid\s+until|expires?|expir(?:y|ation)|fällig|(?:zahlbar|gültig)\s+bis|échéance|valable\s+jusqu|vencimiento)\b|납부\s*기한|到期",
    re.IGNORECASE,
)
_ISSUE_LABEL = re.compile(
    r"\b(?:invoice\s+date|date\s+of\s+(?:issue|invoice)|issued|dated|date|datum|rechnungsdatum|fecha)\b|날짜|日期",
    re.IGNORECASE,
)
_YEARS = (1000, 9999)


@dataclass(frozen=True)
class Amount:
    """An amount of money, or a plain number."""

    value: Decimal
    currency: str = ""
    """Symbol or code; empty if the text states none."""

    @property
    def is_money(self) -> bool:
        """Whether it is written as a price: with a currency, or with two decimals."""
        return bool(self.currency) or self.value.as_tuple().exponent == -2  # noqa: PLR2004  # two decimals

    def __str__(self) -> str:
        places = 2 if self.is_money or self.value != self.value.to_integral_value() else 0
        number = f"{round(self.value, places):,.{places}f}"
        return f"{number} {self.currency}" if self.currency.isalpha() else f"{self.currency}{number}"


@dataclass(frozen=True)
class StatedDate:
    """A date as a text states it."""

    day: int
    month: int
    year: int | None
    """None if the text names none."""
    start: int
    end: int

    def in_year(self, year: int) -> date:
        """Returns the date, in the given year if the text names none."""
        return date(self.year or year, self.month, self.day)


def find_amounts(text: str) -> list[tuple[Amount, re.Match[str]]]:
    """Returns amounts and plain numbers in text order; no percentages, dates, times or numbers inside of codes."""
    return [(_amount(match), match) for match in _AMOUNT.finditer(_without_dates(text))]


def find_total(text: str) -> Amount | None:
    """Returns the amount that a bill asks for; None if the text does not state one clearly.

    That is the amount next to or below the clearest label of a total, else the only amount with a currency.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    for label in _TOTALS:
        found = [amount for index in range(len(lines)) if (amount := _labelled_amount(label, lines, index))]
        if found:
            return found[-1]
    stated = {amount for amount, _ in find_amounts(text) if amount.currency}
    return stated.pop() if len(stated) == 1 else None


def find_dates(text: str) -> list[StatedDate]:
    """Returns dates in text order; none for a form such as 3/4/2024, whose day and month cannot be told apart."""
    covered = bytearray(len(text))
    found: list[StatedDate] = []
    for pattern in _DATES:
        for match in pattern.finditer(text):
            stated = _stated_date(match)
            if stated and not any(covered[stated.start : stated.end]):
                covered[stated.start : stated.end] = b"\1" * (stated.end - stated.start)
                found.append(stated)
    return sorted(found, key=lambda stated: stated.start)


def find_due_date(text: str) -> date | None:
    """Returns the date next to a label such as "payment due"; None without one."""
    return next(_labelled_dates(_DUE_LABEL, text), None)


def find_issue_date(text: str) -> date | None:
    """Returns the date next to a label such as "invoice date"; else the first date, if none is labelled as due."""
    labelled = next(_labelled_dates(_ISSUE_LABEL, _without_due_lines(text)), None)
    first = next((stated for stated in find_dates(_without_due_lines(text)) if stated.year), None)
    return labelled or (first.in_year(0) if first else None)


def _amount(match: re.Match[str]) -> Amount:
    value = parse_number(match["number"]) * _SCALES.get((match["scale"] or "").lower(), 1)
    written = (match["before"] or match["after"] or "").lower()
    symbol = next(
        (
            symbol
            for symbol, names in _CURRENCIES.items()
            if any(written == name or re.fullmatch(name, written) for name in names if name != "$")
            or (written == "$" and symbol == "$")
        ),
        "",
    )
    return Amount(value, symbol)


def parse_number(written: str) -> Decimal:
    """Reads a number with a point or a comma before its decimals, and with separators of thousands."""
    bare = re.sub(r"['’ ]", "", written)
    signs = re.findall(r"[.,]", bare)
    if signs and (len(set(signs)) > 1 or (len(signs) == 1 and len(bare) - bare.index(signs[0]) - 1 != 3)):  # noqa: PLR2004  # else it separates thousands
        whole, _, decimals = bare.rpartition(signs[-1])
        bare = f"{re.sub(r'[.,]', '', whole)}.{decimals}"
    else:
        bare = re.sub(r"[.,]", "", bare)
    try:
        return Decimal(bare)
    except InvalidOperation:  # digits of other scripts
        return Decimal(0)


def _labelled_amount(label: re.Pattern[str], lines: list[str], index: int) -> Amount | None:
    """Returns the amount after a label on the same line, else the one that stands alone on the next line."""
    match = label.search(lines[index])
    if not match or _PART_LABEL.search(lines[index]):
        return None
    rest, below = lines[index][match.end() :], lines[index + 1] if index + 1 < len(lines) else ""
    if after := [amount for amount, found in find_amounts(rest) if amount.is_money or _is_all(found[0], rest)]:
        return after[-1]
    return next((amount for amount, found in find_amounts(below) if _is_all(found[0], below)), None)


def _is_all(found: str, text: str) -> bool:
    """Whether a text consists of what was found in it, apart from punctuation."""
    return found.strip() == text.strip(" \t:=.-")


def _without_dates(text: str) -> str:
    """Returns the text with dates blanked out."""
    characters = list(text)
    for stated in find_dates(text):
        characters[stated.start : stated.end] = "#" * (stated.end - stated.start)
    return "".join(characters)


def _stated_date(match: re.Match[str]) -> StatedDate | None:
    groups = match.groupdict()
    year = int(groups["year"]) if groups["year"] else None
    if "first" in groups:
        first, second = int(groups["first"]), int(groups["second"])
        if groups["sign"] != "." and first != second and max(first, second) <= 12:  # noqa: PLR2004  # either may be the month
            return None
        day, month = (second, first) if groups["sign"] != "." and second > 12 else (first, second)  # noqa: PLR2004  # as above
    else:
        day, month = int(groups["day"]), int(groups.get("month") or _MONTHS[groups["name"].lower()])
    stated = StatedDate(day, month, year, match.start(), match.end())
    try:
        stated.in_year(2000)
    except ValueError:
        return None
    return stated if year is None or _YEARS[0] <= year <= _YEARS[1] else None


def _labelled_dates(label: re.Pattern[str], text: str) -> Iterator[date]:
    """Yields dates with a year after a label on the same line, or alone on the next line."""
    lines = [line for line in text.splitlines() if line.strip()]
    for index, line in enumerate(lines):
        if not (match := label.search(line)):
            continue
        below = lines[index + 1].strip() if index + 1 < len(lines) else ""
        for part in (line[match.end() :], line, below if len(find_dates(below)) == 1 else ""):
            if stated := next((stated for stated in find_dates(part) if stated.year), None):
                yield stated.in_year(0)
                break


def _without_due_lines(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not _DUE_LABEL.search(line))

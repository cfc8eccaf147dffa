"""Finds the spans of a text that are of the kind a question asks for."""

import re
from collections.abc import Iterator, Sequence

from experts.lite.entities import Entity, find_entities
from experts.lite.question_types import AnswerKind, Question, join_patterns, load_questions
from experts.lite.text_processing import split_words, stem

Span = tuple[int, int]

_ENTITIES: dict[AnswerKind, tuple[str, ...]] = {
    AnswerKind.EMAIL: ("EMAIL",),
    AnswerKind.PHONE: ("PHONE",),
    AnswerKind.URL: ("URL",),
    AnswerKind.PERCENT: ("PERCENT",),
    AnswerKind.TIME: ("TIME",),
    AnswerKind.DATE: ("DATE", "TIME"),
    AnswerKind.MONEY: ("MONEY",),
    AnswerKind.ADDRESS: ("ADDRESS",),
    AnswerKind.WHO: ("PER", "ORG"),
    AnswerKind.WHERE: ("LOC", "ADDRESS"),
}
_PATTERNS = load_questions()["patterns"]
_NUMBER_WORD = join_patterns(_PATTERNS["number_word"])
_DIGITS = r"\d+(?:[.,' ]\d{3})*(?:[.,]\d+)?"
_NUMBER = rf"(?:{_DIGITS}|(?:{_NUMBER_WORD})(?:[ -](?:hundred|thousand|million|billion|dozen))*|a dozen)"
_TIME_UNIT, _UNIT = join_patterns(_PATTERNS["time_unit"]), join_patterns(_PATTERNS["unit"])
_CJK_TIME_UNIT = r"(?:시간|분|일|주일?|개월|달|년|个?小时|分钟|天|周|个?月|年)(?:간|동안)?"
_CJK_UNIT = r"(?:公斤|千克|克|公里|米|厘米|升|毫升|度|岁|킬로그램|킬로미터|미터|리터|살|세)"
_DURATIONS = re.compile(rf"(?<![\w.,])(?:{_NUMBER}[ -]?(?:{_TIME_UNIT})\b|\d+\s?{_CJK_TIME_UNIT})", re.IGNORECASE)
_ASKED_UNIT = re.compile(r"\bhow many (year|month|week|day|hour|minute|second)s\b", re.IGNORECASE)
_ONE = re.compile(r"(?:an?|one)\s", re.IGNORECASE)
_RATE_BEFORE = re.compile(
    r"(?:\d|[€$£]|\b(?:hours?|minutes?|days?|euros?|pounds?|dollars?|times|once|twice))\s*$", re.IGNORECASE
)
"""What a unit such as "a week" makes a rate."""
_MEASURES = re.compile(rf"(?<![\w.,])(?:{_NUMBER}[ -]?(?:{_UNIT})(?!\w)|\d+(?:\.\d+)?\s?{_CJK_UNIT})", re.IGNORECASE)
_COUNTS = re.compile(rf"(?<![\w.,:/-])(?:{_NUMBER})(?![\w:/-]|[.,]\d)", re.IGNORECASE)
_CJK_COUNTS = re.compile(
    r"(?:\d+|[一二两三四五六七八九十百]+)(?=\s?(?:个|人|名|位|只|条|本|台|次|명|개|마리|대|권|번))"
)
_PLAIN_AMOUNT = re.compile(r"(?<![\w.,])\d[\d.,' ]*[.,]\d{2}(?![\d%])")
_NAME = re.compile(
    r"(?<![\w.])[A-ZÀ-ÖØ-Þ][\w'’-]*\w(?:[ ]+(?:of[ ]+|the[ ]+|de[ ]+|von[ ]+)?[A-ZÀ-ÖØ-Þ][\w'’-]*\w){0,4}"
)
_TITLES = re.compile(r"(?:Mrs?|Ms|Dr|Prof|Sir|Herr|Frau|Mme|M|Sra?)\.?")
_RECURRING = re.compile(
    r"\b(?:(?:every|each|first|second|third|fourth|last)\s+){0,3}(?:mon|tues|wednes|thurs|fri|satur|sun)days?\b"
    r"|\b\d{1,2}(?:st|nd|rd|th)\b",
    re.IGNORECASE,
)
"""Days without a date: "every second Wednesday", "the 5th"."""
_CALENDAR_NAME = re.compile(
    r"(?:(?:mon|tues|wednes|thurs|fri|satur|sun)days?|january|february|march|april|may|june|july|august|september|october"
    r"|november|december)",
    re.IGNORECASE,
)
_NO_NAME = re.compile(
    rf"\b(?i:{join_patterns(_PATTERNS['place_noun'])})$|^(?:In|On|At|By|From|Until|Since|Before|After)\b"
)
"""Capitalized words that are no person's or company's name: places, and beginnings of sentences such as "In March"."""
_LONGEST_INITIALS = 3
"""Letters up to which capitals alone may be a name; longer ones are headings."""
_CJK_NAME = re.compile(r"(?<=联系人)[\u4e00-\u9fff]{2,4}|[가-힣]{2,4}(?=\s?(?:씨|님|선생님|과장|대리|부장|드림|올림))")
_PLACE = re.compile(
    rf"\b(?:{join_patterns(_PATTERNS['place_preposition'])})\s+"
    rf"(?!(?:the )?(?:{join_patterns(_PATTERNS['no_place'])})\b)"
    r"(?:the |a |our |your |my |der |dem |den |la |le |el )?[\w'’-]+"
    r"(?:(?: of(?: the)?| de| du| del| van| von)? [A-ZÀ-ÖØ-Þ\d][\w'’-]*"
    rf"| (?:{join_patterns(_PATTERNS['place_noun'])}))*"
)
_CJK_PLACE = re.compile(
    r"(?<=[在到])[\u4e00-\u9fff\d]{2,10}?(?=[举召集开见进提取领，。]|$)|[가-힣\d]+(?: [가-힣\d]+)?(?=에서)"
)
_UNITS = tuple(
    (re.compile(asked, re.IGNORECASE), re.compile(units, re.IGNORECASE))
    for asked, units in load_questions()["measures"].items()
)
"""Units in which what a question asks for is measured."""
_HOURS = re.compile(
    r"\b(?:from|between|von|de|entre|zwischen)\s+(?:[01]?\d|2[0-4])(?:[:.]\d\d)?\s+(?:to|till|until|and|bis|à|a|y|et|und)"
    r"\s+(?:[01]?\d|2[0-4])(?:[:.]\d\d)?\b(?![.,]\d|\s*(?:%|[€£$]))"
)
_MONTHS = re.compile(
    r"\b(?:early |late |mid-)?(?:January|February|March|April|June|July|August|September|October|November|December"
    r"|Januar|Februar|März|Juni|Juli|Oktober|Dezember|janvier|février|avril|juin|juillet|août|septembre|octobre|novembre"
    r"|décembre|enero|febrero|marzo|abril|junio|julio|agosto|septiembre|octubre|noviembre|diciembre)\b|(?<=in )May\b"
)
_PLACE_JOINT = re.compile(r" +(?:(?:at|in|on) +)?")
_ROOM = re.compile(r"\b(?:room|hall|building)\b", re.IGNORECASE)
_CODE = (
    r"\d+(?:\.\d+)+|[A-Z0-9][\w/-]*\d[\w/-]*(?:\.\d+)*|\d[\d -]*\d|\d|[A-Z]\b"
    r"|(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)\b"
)
_NAMED_NUMBER = re.compile(r"\b([a-z]{3,}) (?:number|no|code|id)\b", re.IGNORECASE)
"""A number whose noun a question names: "serial number"."""
_FIRST_DAY = re.compile(r"(?<![\w.,:/-])\d{1,2}(?:st|nd|rd|th)?\s*(?:to|and|until|till|-|–)\s*\Z")
"""The first day of several in a month: "3 to 5 February"."""
_DATE_WITH_TIME = re.compile(r"\s*(?:,|at|um|à|a las|from|von|de|ab)?\s*")
_RANGE = re.compile(r"\s*(?:to|and|until|till|bis|à|a|hasta|-|–|—|至|到|부터|까지|~)\s*")
_MOVED = re.compile(r"\b(?:mov|chang|postpon|reschedul|shift|push)\w*\b.{0,40}\bfrom\s+$", re.IGNORECASE)
"""What precedes two dates that are no range: "moved from Saturday to Sunday"."""
_LIST = re.compile(r"\s*(?:,|and|&|,\s*and|und|et|y|e)\s*")
_ASKS_FOR_ALL = re.compile(r"\b(?:has|have|had|are there|were there|in total|altogether|in all)\b", re.IGNORECASE)
_OF_NUMBER = re.compile(rf"\s+of\s+(?:its|the|their|his|her|our|these|those)\s+(?:{_NUMBER}\s+)?", re.IGNORECASE)


def find_spans(question: Question, text: str) -> list[Span]:
    """Returns the spans of the question's kind in text order, without those that only repeat its words."""
    words = set(split_words(question.text))
    return [span for span in _of_kind(question, text) if not set(split_words(text[slice(*span)])) <= words]


def find_code(question: Question, text: str) -> list[Span]:
    """Returns codes and numbers that stand right behind a word of the question, such as "platform 6"."""
    spans = []
    for word in _nouns(question.text):
        pattern = re.compile(
            rf"\b{re.escape(word)}\b\.?\s*(?:(?:number|no|nr|nummer|num|n[°º]|id|code)\b\.?|#)?\s*(?:is|ist|est|es|:)?\s*(?P<code>{_CODE})",
            re.IGNORECASE,
        )
        spans += [match.span("code") for match in pattern.finditer(text)]
    return sorted(spans)


def _nouns(question: str) -> Iterator[str]:
    """Yields the words that a code may stand behind, from the end of the question's noun phrase."""
    skipped = {"number", "what", "which", "the", "code", "is", "no", "do", "have", "from", "into", "for", "my", "our"}
    named = _NAMED_NUMBER.search(question)
    if named and named[1].lower() not in skipped:
        yield named[1].lower()
        return
    yield from (word for word in split_words(question) if word not in skipped and len(word) > 2)  # noqa: PLR2004  # shorter words are no nouns


def _of_kind(question: Question, text: str) -> list[Span]:
    if question.kind is AnswerKind.DURATION:
        return _durations(question, text)
    if question.kind is AnswerKind.MEASURE:
        return _measures(question, text)
    if question.kind is AnswerKind.COUNT:
        return _counts(question, text)
    entities = find_entities(text)
    if question.kind is AnswerKind.CODE:
        return find_code(question, text) or (_find_room(entities, text) if _ROOM.search(question.text) else [])
    spans = [(one.start, one.end) for one in entities if one.kind in _ENTITIES.get(question.kind, ())]
    match question.kind:
        case AnswerKind.DATE:
            spans = _with_times(entities, text)
        case AnswerKind.TIME:
            spans = _join(spans, _RANGE, text) or _matches(_HOURS, text)
        case AnswerKind.MONEY:
            spans += [span for span in _matches(_PLAIN_AMOUNT, text) if not _overlaps(span, spans)]
        case AnswerKind.WHO:
            taken = [(one.start, one.end) for one in entities]
            spans += [span for span in _names(text) if not _overlaps(span, taken)]
            spans = _join([*spans, *_matches(_CJK_NAME, text)], _LIST, text)
        case AnswerKind.WHERE:
            spans = _join([*spans, *_places(entities, text)], _PLACE_JOINT, text)
    return sorted(span for span in set(spans) if not _TITLES.fullmatch(text[slice(*span)]))


def _find_room(entities: Sequence[Entity], text: str) -> list[Span]:
    return list(_places(entities, text))


def _durations(question: Question, text: str) -> list[Span]:
    """Returns durations in the unit that the question names, without those that belong to a rate: "4 hours a week"."""
    unit = _ASKED_UNIT.search(question.text)
    return [
        match.span()
        for match in _DURATIONS.finditer(text)
        if (unit is None or unit[1].lower() in match[0].lower())
        and not (_ONE.match(match[0]) and _RATE_BEFORE.search(text[: match.start()]))
    ]


def _measures(question: Question, text: str) -> list[Span]:
    """Returns quantities in the units that the question is about; of any unit if it names none."""
    spans = [*_matches(_MEASURES, text), *_matches(_DURATIONS, text)]
    units = next((units for asked, units in _UNITS if asked.search(question.text)), None)
    return [span for span in spans if units is None or units.search(text[slice(*span)])]


def _matches(pattern: re.Pattern[str], text: str) -> list[Span]:
    return [match.span() for match in pattern.finditer(text)]


def _overlaps(span: Span, others: Sequence[Span]) -> bool:
    return any(span[0] < end and start < span[1] for start, end in others)


def _names(text: str) -> Iterator[Span]:
    """Yields capitalized words that are no beginning of a sentence alone."""
    for match in _NAME.finditer(text):
        if (
            _TITLES.fullmatch(match[0])
            or _NO_NAME.search(match[0])
            or _CALENDAR_NAME.fullmatch(match[0])
            or (match[0].isupper() and len(match[0]) > _LONGEST_INITIALS)
        ):
            continue
        is_first = not text[: match.start()].strip() or text[: match.start()].rstrip()[-1] in ".!?:\n"
        if " " in match[0] or not is_first:
            yield match.span()


def _counts(question: Question, text: str) -> list[Span]:
    """Returns the numbers that count what the question asks about: "twelve people", "two of its five arches"."""
    noun = re.search(r"\b(?:how many|wie viele|combien d[e'’]|cu[aá]nt[oa]s)\s*([\w-]+)", question.text, re.IGNORECASE)
    if noun is None:
        return _matches(_CJK_COUNTS, text)
    counted = stem(noun[1].lower())
    found: list[Span] = []
    wholes: list[Span] = []
    for match in _COUNTS.finditer(text):
        following = text[match.end() : match.end() + 60]
        partitive = _OF_NUMBER.match(following)
        rest = following[partitive.end() :] if partitive else following
        words = split_words(re.split(r"[.,;:!?\n]", rest, maxsplit=1)[0])[:3]
        if counted in map(stem, words[: words.index("of")] if "of" in words else words):
            if partitive is None:
                found.append((match.start(), _noun_end(text, match.end(), counted)))
            elif not _ASKS_FOR_ALL.search(question.text):
                found.append(match.span())
                wholes.append((match.end(), match.end() + partitive.end()))
    return [span for span in found if not _overlaps(span, wholes)]


def _noun_end(text: str, end: int, counted: str) -> int:
    """Returns the end of the counted noun behind a number."""
    words = re.finditer(r"[^\W\d_][\w'’-]*", text[end : end + 60])
    return next((end + word.end() for word in words if stem(word[0].lower()) == counted), end)


def _with_times(entities: Sequence[Entity], text: str) -> list[Span]:
    """Returns dates, joined with the time behind them; times alone if there are no dates."""
    days = [(one.start, one.end) for one in entities if one.kind == "DATE"]
    recurring = [span for span in _matches(_RECURRING, text) if not any(a <= span[0] and span[1] <= b for a, b in days)]
    days = sorted([*(span for span in days if not _overlaps(span, recurring)), *recurring])
    dates = days if any(_MOVED.search(text[:start]) for start, _ in days) else _join(days, _RANGE, text)
    times = _join([(one.start, one.end) for one in entities if one.kind == "TIME"], _RANGE, text)
    if not times:
        times = _matches(_HOURS, text)
    if not dates:
        dates = _matches(_MONTHS, text)
    dates = [(first.start() if (first := _FIRST_DAY.search(text, 0, start)) else start, end) for start, end in dates]
    joined = [
        next(
            ((start, last) for first, last in times if first >= end and _DATE_WITH_TIME.fullmatch(text, end, first)),
            (start, end),
        )
        for start, end in dates
    ]
    return joined or times


def _places(entities: Sequence[Entity], text: str) -> Iterator[Span]:
    taken = [(one.start, one.end) for one in entities if one.kind != "ORG"]
    for pattern in (_PLACE, _CJK_PLACE):
        yield from (match.span() for match in pattern.finditer(text) if not _overlaps(match.span(), taken))


def _join(spans: list[Span], between: re.Pattern[str], text: str) -> list[Span]:
    """Joins spans such as "from 1961 to 1972" or a list of names."""
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and between.fullmatch(text, joined[-1][1], start):
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((start, end))
    return joined

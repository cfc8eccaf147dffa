"""Rule-based recognition of names, dates, amounts and addresses; reliable for fixed formats, heuristic for names."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from experts.host.handler import Handler, Inputs, Outputs, Parameters, single
from experts.lite.text_processing import STOPWORDS, load_vocabulary, require_text

_MONTH = (
    r"(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sep(?:t(?:ember)?)?|Oct(?:ober)?|"
    r"Nov(?:ember)?|Dec(?:ember)?|Januar|Februar|März|Mai|Juni|Juli|Oktober|Dezember|janvier|février|mars|avril|juin|"
    r"juillet|août|septembre|octobre|novembre|décembre)\.?"
)
_MONTHS_ELSEWHERE = (
    "januar|februar|märz|mai|juni|juli|oktober|dezember|janvier|février|mars|avril|juin|juillet|août|septembre|octobre|"
    "novembre|décembre|enero|febrero|marzo|abril|mayo|junio|julio|agosto|septiembre|octubre|noviembre|diciembre"
)
_WEEKDAY = r"(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day"
_DAY = r"(?:3[01]|[12]\d|0?[1-9])(?!\d)(?:st|nd|rd|th|\.)?"
_DAYS = rf"(?:{_DAY}(?:\s?[-–]\s?|\s+(?:and|to|until|or)\s+))?{_DAY}"
_HOUR = "one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve"
_YEAR = r"(?:1[0-9]|20)\d\d"
_NUMBER = r"\d+(?:[.,]\d+)*"
_SCALE = r"(?:[^\S\n\t]?(?:thousand|million|billion|trillion|bn|[kKmM](?![\w])))?"
_WORD = r"[A-ZÀ-ÖØ-Þ][\w'’-]*\w"
_NAME = rf"\b{_WORD}(?:[ ]+(?:(?:de|da|di|del|la|le|van|von|der|den|bin|al|y|[A-Z]\.)[ ]+){{0,3}}{_WORD}){{1,3}}"
_PLAIN_NAME = rf"{_WORD}(?:[ ]+{_WORD}){{1,2}}"
_TITLE = r"(?:Mrs?|Ms|Dr|Prof|Sir|Lady|Lord|President|Professor|Captain|Judge|Herr|Frau|Mme)"
_CURRENCY = "USD|EUR|GBP|CHF|JPY|INR|CAD|AUD|CNY|SEK|NOK|DKK|PLN"
_CURRENCY_WORDS = "dollars?|euros?|pounds?|francs?|yen|rupees?|cents?"
_NUMBER_WORDS = (
    "one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen|seventeen|eighteen|"
    "nineteen|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety|hundred|thousand|million|billion|and|a|half"
)
_TOWN_SUFFIX = (
    rf"(?:,\s*{_WORD}(?: (?![A-Z]+\d){_WORD}){{0,3}})?(?:,?[ ]*[A-Z]{{1,2}}\d[A-Z\d]? ?\d[A-Z]{{2}}\b)?"
    r"(?:,?[ ]*[A-Z]{2}\b)?(?:,?[ ]*\d{5}(?:-\d{4})?\b)?"
)
_GERMAN_STREET = r"(?:straße|strasse|str\.|weg|platz|allee|gasse)"
_ROMANCE_STREET = r"(?:rue|avenue|boulevard|place|quai|via|calle)"
_STREET = (
    r"(?:Street|St\.|St|Avenue|Ave\.?|Road|Rd\.?|Lane|Ln\.?|Drive|Dr\.?|Boulevard|Blvd\.?|Square|Sq\.?|Court|Ct\.?|"
    r"Place|Pl\.?|Terrace|Way|Highway|Parkway|Row|Close|Crescent)\b"
)
_COMPANY = (
    r"(?:Inc|Ltd|LLC|LLP|PLC|plc|Corp|Co|GmbH|AG|KG|SE|SA|S\.A|SAS|SARL|BV|B\.V|NV|AB|Oy|SpA|Pty|Corporation|Company|"
    r"Limited|Group|Holdings|Bank|Foundation|Institute|University|College|Academy|Association|Society|Agency|Ministry|"
    r"Department|Council|Committee|Commission|Museum|Hospital|Airlines|Airways|Motors|Technologies|Laboratories|Labs|"
    r"Systems|Industries|Tools|Supplies|Foods|Florists|Rentals|Solutions|Insurance|Logistics|Freight|Consulting|Hosting|Software|"
    r"Electronics|Builders|Plumbing|Roofing|Catering|Partners|Press|Times|Post|Union|Party|Court|Church|Club)(?![\w])\.?"
)
_OFFICE = r"(?:University|Ministry|Bank|Institute|Department|Museum|Bureau|Church|House|Court|Academy) of"


@dataclass(frozen=True)
class Entity:
    """A span of a text that is an entity."""

    kind: str
    text: str
    score: float
    """Precision of the rule, not confidence in this match."""
    start: int
    end: int


def _rule(kind: str, score: float, pattern: str, flags: int = 0) -> tuple[str, float, re.Pattern[str]]:
    return kind, score, re.compile(pattern, flags)


_ANY = re.IGNORECASE
_RULES = (
    # Of overlapping matches the first rule wins; the entity is the group "entity", or the whole match.
    _rule("EMAIL", 0.99, r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+"),
    _rule("URL", 0.99, r"(?:https?://|www\.)[^\s<>\"')]+[^\s<>\"').,;:!?]"),
    _rule("DATE", 0.98, r"\b\d{4}-\d{2}-\d{2}\b"),
    _rule("DATE", 0.9, r"\b(?:0?[1-9]|[12]\d|3[01])([./-])(?:0?[1-9]|[12]\d|3[01])\1(?:\d{4}|\d{2})\b"),
    _rule("DATE", 0.98, rf"\b(?:{_WEEKDAY},?\s+)?{_DAYS}\s+(?:of\s+)?{_MONTH}(?:,?\s+{_YEAR}\b|\b)"),
    _rule("DATE", 0.98, rf"\b(?:{_WEEKDAY},?\s+)?{_MONTH}\s+{_DAY}(?:,?\s+{_YEAR})?(?!\d)"),
    _rule("DATE", 0.95, rf"\b{_MONTH}\s+{_YEAR}\b"),
    _rule(
        "DATE", 0.98, rf"\b\d{{1,2}}(?:er)?\.?\s+(?:de\s+)?(?:{_MONTHS_ELSEWHERE})\b(?:\s+(?:del?\s+)?{_YEAR}\b)?", _ANY
    ),
    _rule("DATE", 0.98, r"(?:\d{4}\s?[年년]\s?)?\d{1,2}\s?[月월]\s?\d{1,2}\s?[日日일号]"),
    _rule("DATE", 0.85, rf"\b(?:(?:next|last|this)\s+)?{_WEEKDAY}\b", _ANY),
    _rule("MONEY", 0.97, rf"(?:(?:US|A|C|HK)?\$|[€£¥₹]|\b(?:{_CURRENCY})\b)[^\S\n\t]?{_NUMBER}{_SCALE}"),
    _rule("MONEY", 0.95, rf"\b{_NUMBER}{_SCALE}[^\S\n\t]?(?:[€£¥₹$]|(?:{_CURRENCY}|{_CURRENCY_WORDS})\b)", _ANY),
    _rule("MONEY", 0.9, rf"\b(?:(?:{_NUMBER_WORDS})[ -])+(?:{_CURRENCY_WORDS})\b", _ANY),
    _rule("MONEY", 0.9, r"\d[\d,.]*\s?(?:원|元|块)"),
    _rule("PERCENT", 0.97, rf"\b{_NUMBER}\s?(?:%|per\s?cent\b|percent\b)"),
    _rule("TIME", 0.9, r"(?<![\d.,:])\d{1,2}(?:[:.]\d\d)?\s?(?:[ap]\.m\.|[ap]m\b)"),
    _rule("TIME", 0.9, r"(?<![\d.,:])(?:[01]?\d|2[0-3]):[0-5]\d(?::[0-5]\d)?(?![\d:])"),
    _rule(
        "TIME",
        0.9,
        rf"\b(?:half\s+past|quarter\s+(?:past|to)|(?:five|ten|twenty)\s+past)\s+(?:{_HOUR}|\d{{1,2}})\b",
        _ANY,
    ),
    _rule("TIME", 0.9, rf"\b(?:{_HOUR}|\d{{1,2}})\s+o['’]?clock\b", _ANY),
    _rule("TIME", 0.9, r"(?:오전|오후|上午|下午|晚上|早上|中午)\s?\d{1,2}\s?[시点](?:\s?(?:\d{1,2}\s?[분分]|반|半))?"),
    _rule("TIME", 0.8, r"(?<![\d月월])\d{1,2}\s?(?:点|시(?![간]))(?:\s?(?:\d{1,2}\s?[분分]|반|半))?"),
    _rule("TIME", 0.85, r"\b\d{1,2}(?:[:.]\d\d)?\s+Uhr\b|\b\d{1,2}\s?h\s?[0-5]\d\b"),
    _rule("TIME", 0.8, r"\b(?:noon|midday|midnight)\b", _ANY),
    _rule("PHONE", 0.9, r"(?<![\w+])\+\d{1,3}(?:[ ./-]?\(?\d{1,5}\)?){2,5}(?!\w)"),
    _rule("PHONE", 0.8, r"(?<![\w.,/-])(?<!\d )\(?0\d{1,5}\)?(?:[ ./-]\d{2,8}){1,4}(?![\w/-]|[ .,]\d)"),
    _rule("PHONE", 0.85, r"(?<![\w.,/-])\(?\d{3}\)?[ .-]\d{3}[ .-]\d{4}(?![\w/-]|,\d)"),
    _rule("ADDRESS", 0.85, rf"\b\d{{1,5}}[A-Za-z]?,?[ ]+(?:{_WORD}[ ]+){{1,4}}{_STREET}{_TOWN_SUFFIX}"),
    _rule("ADDRESS", 0.85, rf"\b[A-ZÄÖÜ][\wäöüß.-]*{_GERMAN_STREET}[ ]+\d{{1,4}}[a-z]?(?:,\s*\d{{4,5}}\s+{_WORD})?"),
    _rule("ADDRESS", 0.85, rf"\b\d{{1,4}}(?:[ ]?bis)?,?[ ]+{_ROMANCE_STREET}[ ]+[\w'’ -]{{0,40}}[A-Z]\w+"),
    _rule("PER", 0.9, rf"\b{_TITLE}\.?[ ]+(?:[A-Z]\.[ ]*){{0,4}}(?P<entity>{_WORD}(?:[ ]+{_WORD})?)"),
    _rule("ORG", 0.85, rf"\b(?:{_WORD}|[A-Z&])(?:[ ]+(?:{_WORD}|&|and)){{0,6}}(?:,[ ]*|[ ]+){_COMPANY}"),
    _rule("ORG", 0.8, rf"\b(?:{_WORD}[ ]+)?{_OFFICE}(?:[ ]+(?:the[ ]+)?{_WORD}){{1,5}}"),
    _rule("DATE", 0.7, rf"(?<![\w.,/-])(?<!No\.\s)(?<!Nr\.\s)(?<!umber\s){_YEAR}(?![\w,/-]|\.\d)"),
)
_FULL_NAME = re.compile(_NAME)
_NAMES = re.compile(rf"\b(?:{_PLAIN_NAME},[ ]+)*{_PLAIN_NAME}(?:,?[ ]+and|,)[ ]+{_PLAIN_NAME}")
"""A list of full names: where one of them is known for a person's, all are."""
_INITIALS = re.compile(rf"\b(?:[A-Z]\.[ ]?){{1,3}}{_WORD}")
_SINGLE_WORD = re.compile(rf"\b{_WORD}")
_ACRONYM = re.compile(r"(?<![\w-])[A-Z]{3,6}(?![\w-])")
_PLACE_AFTER = re.compile(rf"\b(?:in|near|at|from|to)[ ]+(?P<entity>{_WORD}(?:[ ]+{_WORD})?)")
_PLACES = re.compile(
    r"\b(?:"
    + "|".join(re.escape(place) for place in sorted(load_vocabulary()["places"], key=len, reverse=True))
    + r")(?!\w)"
)
_ROLE = "|".join(load_vocabulary()["people_labels"])
_ANY_NAME = rf"{_WORD}(?:[ ]+{_WORD}){{0,2}}"
_PEOPLE_LABEL = re.compile(
    rf"(?:^|(?<=[.;] ))[ \t]*(?:[-*•]\s*)?(?i:(?:[a-z]+[ ])?(?:{_ROLE})s?(?:[ ]by|[ ]of|[ ]name)?):"
    rf"[ \t]*(?:{_TITLE}\.?[ ])?"
    rf"(?P<names>{_ANY_NAME}(?:(?:,[ ]+|,?[ ]+and[ ]+){_ANY_NAME}){{0,40}})(?=[ \t]*(?:$|[.,;(\n–-]))",
    re.MULTILINE,
)
"""A label such as "Present" with the names that follow it."""
_NAME_PART = re.compile(_ANY_NAME)
_PERSON_CONTEXT = re.compile(
    r"[a-z,(][ ]+$|\b(?:[Dd]ear|[Hh]i|[Hh]ello)[ ]+$|(?:regards|sincerely|wishes|faithfully|thanks),?\s*\n+$"
)
"""What a name follows in the middle of a sentence, in a greeting, or in a closing."""
_LOWER_WORD = re.compile(r"\b[a-zß-öø-ÿ][\w'’-]*")
_LEAST_NAME_WORDS, _MOST_NAME_WORDS = 2, 4
_CONTEXT = 40
"""Characters before a name that are looked at."""
_SENTENCE_BEFORE = re.compile(r"(?:^|[\n.!?])[ \t]*(?:[-*•][ ]*)?$")
_NO_PERSON = frozenset(word.lower() for word in load_vocabulary()["not_people"]) | STOPWORDS
_ROLES = frozenset(load_vocabulary()["people_labels"])
_ELSEWHERE = frozenset(load_vocabulary()["other_stopwords"]) - STOPWORDS
_GIVEN_NAMES = frozenset(load_vocabulary()["given_names"])
_NOT_ORGANISATIONS = frozenset(load_vocabulary()["not_organisations"])
_NOT_PLACES = frozenset(load_vocabulary()["not_places"])
_LABEL = "|".join(load_vocabulary()["labels"])
_NOT_NAME = re.compile(
    rf"\S{{100,}}|\s{{20,}}|\b(?:Bill|Billed|Ship|Sold|Deliver|Pay)[ ]to\b"
    rf"|\b(?:{_LABEL})(?:[ ](?:{_LABEL}|date|number|no|to|due|by|of)){{0,4}}(?=[ ]?(?:[:#\t\n$€£]|\d|$))",
)


def token_classification(_model_id: str, _device: str) -> Handler:
    """Handler without a model to load."""
    return single(_classify)


def find_entities(text: str) -> list[Entity]:
    """Returns entities in text order, without overlaps."""
    covered = bytearray(len(text))
    entities = []
    for entity in _candidates(text):
        if not any(covered[entity.start : entity.end]):
            covered[entity.start : entity.end] = b"\1" * (entity.end - entity.start)
            entities.append(entity)
    return sorted(entities, key=lambda entity: entity.start)


def _classify(inputs: Inputs, _parameters: Parameters) -> Outputs:
    entities = find_entities(require_text(inputs["text"], "text"))
    return {
        "entities": [
            {
                "entity": entity.kind,
                "text": entity.text,
                "score": entity.score,
                "start": entity.start,
                "end": entity.end,
            }
            for entity in entities
        ],
        "text": "\n".join(f"{entity.kind}: {' '.join(entity.text.split())}" for entity in entities)
        or "No names, dates, amounts or addresses found.",
    }


def _candidates(text: str) -> Iterator[Entity]:
    """Yields entities by rule, most reliable first; they may overlap.

    Form labels are masked, because they look like names and are adjacent to them. Very long tokens and runs of
    whitespace are masked, because matching the patterns on them would take too long.
    """
    text = _NOT_NAME.sub(lambda match: "\0" * len(match[0]), text)
    for kind, score, pattern in _RULES:
        yield from (_entity(kind, score, match) for match in pattern.finditer(text))
    yield from (
        _entity("PER", 0.75, match) for match in _FULL_NAME.finditer(text) if match[0].split()[0] in _GIVEN_NAMES
    )
    yield from (_entity("PER", 0.75, match) for match in _INITIALS.finditer(text))
    for labelled in _PEOPLE_LABEL.finditer(text):
        parts = _NAME_PART.finditer(text, *labelled.span("names"))
        yield from (_entity("PER", 0.8, part) for part in parts if _may_be_person(part[0].split()))
    for listed in _NAMES.finditer(text):
        names = list(re.compile(_PLAIN_NAME).finditer(text, listed.start(), listed.end()))
        if any(name[0].split()[0] in _GIVEN_NAMES for name in names):
            yield from (_entity("PER", 0.7, name) for name in names)
    yield from (_entity("LOC", 0.9, match) for match in _PLACES.finditer(text))
    yield from _unlisted_people(text)
    yield from (_entity("ORG", 0.5, match) for match in _ACRONYM.finditer(text) if match[0] not in _NOT_ORGANISATIONS)
    yield from (_entity("PER", 0.5, match) for match in _SINGLE_WORD.finditer(text) if match[0] in _GIVEN_NAMES)
    yield from (
        _entity("LOC", 0.4, match) for match in _PLACE_AFTER.finditer(text) if match["entity"] not in _NOT_PLACES
    )


def _unlisted_people(text: str) -> Iterator[Entity]:
    """Yields full names of people whose given names are in no list, by their capitals and by what surrounds them."""
    ordinary = Counter(_LOWER_WORD.findall(text))
    if sum(ordinary[word] for word in _ELSEWHERE) > sum(ordinary[word] for word in STOPWORDS):
        return  # in German every noun has a capital
    for match in _FULL_NAME.finditer(text):
        words = list(_SINGLE_WORD.finditer(text, *match.span()))
        while words and (words[0][0].lower() in _NO_PERSON or words[0][0].lower() in _ROLES):
            words.pop(0)
        if not _LEAST_NAME_WORDS <= len(words) <= _MOST_NAME_WORDS:
            continue
        names = [word[0] for word in words]
        if not _may_be_person(names) or any(name.lower() in ordinary for name in names):
            continue
        start = words[0].start()
        before = text[max(0, start - _CONTEXT) : start]
        is_subject = _SENTENCE_BEFORE.search(before) and _LOWER_WORD.match(text, match.end() + 1)
        if is_subject or _PERSON_CONTEXT.search(before):
            yield Entity("PER", text[start : match.end()], 0.5, start, match.end())


def _may_be_person(names: Sequence[str]) -> bool:
    """Whether no word is known to be something else, or an abbreviation in capitals."""
    return not any(name.lower() in _NO_PERSON or (name.isupper() and len(name) > 1) for name in names)


def _entity(kind: str, score: float, match: re.Match[str]) -> Entity:
    group = "entity" if "entity" in match.re.groupindex else 0
    return Entity(kind, match[group], score, match.start(group), match.end(group))

"""Words of a question that narrow it down, such as "still", "per hour" or "second": evidence must have them, too.

Words that are common to a question and a passage say nothing about these: "How much do I still have to pay?" is not
answered by the total of a bill of which a part is paid.
"""

import re

from experts.lite.question_types import FIXED_FORMAT_KINDS, AnswerKind, Question

_CLAUSE_BREAK = re.compile(r"[,;]\s|[，；]|\s(?:and|but|while|und|aber|et|mais|y|pero)\s")
_FOREIGN_UNITS = (
    "persona|hora|día|noche|semana|mes|año|person|stunde|tag|nacht|woche|monat|jahr"
    "|personne|heure|jour|nuit|semaine|mois|an"
)
_UNITS = "person|child|adult|hour|day|night|week|month|year|minute|piece|unit|item|kilo|litre|kilometre|mile"
_NUMBERS = {"two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "eight": "8", "ten": "10"}


def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


_PAIRS = (
    (
        _compile(r"\b(?:still|left|remain\w*|outstanding|noch|reste\w*|queda\w*|falta\w*|zurück)\b"),
        _compile(
            r"\b(?:still|left|remain\w*|outstanding|balance|due|open|noch|offen|rest\w*|guthaben|saldo|solde|à payer"
            r"|zu zahlen|zahlbetrag|queda\w*|pendiente)\b"
        ),
    ),
    (
        _compile(r"\b(?:already|so far|bereits|schon|déjà|ya)\b"),
        _compile(
            r"\b(?:already|so far|paid|deposit|bereits|schon|bezahlt|gezahlt|anzahlung|déjà|payé|acompte|ya|pagado)\b"
        ),
    ),
    (
        _compile(r"\b(?:without|excluding|except|not counting|apart from|ohne|außer|sans|hors|sauf|sin)\b"),
        _compile(r"\b(?:without|excluding|excl|except|net\w*|sub-?total|ohne|sans|hors|ht|sauf|sin|base)\b"),
    ),
    (
        _compile(
            r"\b(?:in (?:total|all|sum)|altogether|together|both|combined|insgesamt|zusammen|en tout|au total"
            r"|en total)\b"
        ),
        _compile(
            r"\b(?:total\w*|sum|altogether|together|both|combined|overall|due|insgesamt|zusammen|gesamt\w*|\w*summe|\w*betrag"
            r"|tout|importe|montant|pay)\b"
        ),
    ),
    (
        _compile(
            r"\b(?:old|original(?:ly)?|previous(?:ly)?|former(?:ly)?|used to|(?:year|month|week|day|time|one) before)\b"
            r"(?! (?:is|are|was|were)\b)"
        ),
        _compile(
            r"\b(?:old|original(?:ly)?|previous(?:ly)?|former(?:ly)?|used to|before|instead of|moved|postponed)\b"
        ),
    ),
    (
        _compile(
            r"\b(?:do|does|will|can)\b.*\bagain\b|\bre-?open\w*|\bresum(?:e|es|ed|ing)\b"
            r"|\b(?:öffne\w*|macht) .*\bwieder\b|\brouvr\w*|\breab\w*"
        ),
        _compile(
            r"\b(?:again|back|re-?open\w*|resum\w*|restart\w*|until|till|wieder\w*|bis|de nouveau|rouv\w*|jusqu\w*"
            r"|de nuevo|reab\w*|hasta)\b"
        ),
    ),
    (
        _compile(
            r"\bwhat (?:happens|will happen|would happen|if)\b|\bwas (?:passiert|geschieht)\b"
            r"|\bque se passe\b|\bqué pasa\b"
        ),
        _compile(
            r"\b(?:if|unless|will|must|otherwise|late|fees?|fines?|charge[ds]?|penalt\w+|interest|wenn|falls|sonst|gebühr\w*"
            r"|si|sinon|frais|pénalité\w*|cargos?|recargos?|multas?)\b"
        ),
    ),
)
"""What questions ask for, and the words of a clause that states it."""

_RATE = _compile(rf"\b(?:per|each|every|one|a single)\s+(?P<unit>{_UNITS})\b|\ban?\s+(?P<last>{_UNITS})\W*$")
_FOREIGN_RATE = _compile(
    rf"\b(?:por|cada|al|una?|pro|je|eine?|im|am|in der|par|chaque|une?)\s+(?P<unit>{_FOREIGN_UNITS})\b"
)
_EACH = _compile(r"\b(?:each|apiece|a piece|one|a single)\b(?!\s+of\b)")
_QUANTITY = re.compile(r"^\W*(?:[2-9]|\d{2,})\s*(?:x|×|pcs?)\W", re.IGNORECASE)
_RANKED = _compile(
    r"(?<!at the )\b(?:first|second|third|fourth|fifth|last|next|final"
    r"|(?:old|young|new|bigg|small|long|short|high|low|lat|earli|fast|heavi|near|larg|great|light|busi)est|most|least|best|worst)\b"
    r"(?! (?:day|date|name|time|of all|floor)\b)"
)
"""Ranks in a list or in time, which no engine counts."""
_COMPARED = _compile(
    r"\bhow (?:much|many) (?:\w+ )?(?P<word>more|less|fewer)\b|\b(?P<than>more|less|fewer|\w+er) than\b"
)
_NEGATED = _compile(r"\b(?:not|no|never|except|nobody|nothing)\b|n't\b")
_TIMES = _compile(rf"(?<!these )(?<!those )(?<!the )\b(?P<number>{'|'.join(_NUMBERS)}|[2-9]|[1-9]\d)\s+[a-z]{{3,}}")
_NUMBER_ONLY = re.compile(r"[\d.,:%€£$\s]+")
_PERSON = re.compile(
    r"^\W*[Ww]ho(?:'s| is| was) (?:(?:Mrs?|Ms|Dr)\.? )?[A-ZÀ-ÖØ-Þ][\w'’-]+(?: [A-ZÀ-ÖØ-Þ][\w'’-]+)*\W*$"
)
"""Questions about a person whose name is known, which another name does not answer."""


def lacks_qualifier(question: Question, passage: str, start: int, end: int) -> bool:
    """Whether a question has a word that narrows it down, and the clause around an answer has none to match.

    Args:
        question: the whole question.
        passage: the sentence or row that contains the answer.
        start: of the answer in the passage.
        end: of the answer in the passage.
    """
    if question.kind in FIXED_FORMAT_KINDS or question.kind in {AnswerKind.EXTREME, AnswerKind.PAGE}:
        return False
    asked, clause = question.text, _clause(passage, start, end)
    return (
        _PERSON.match(asked) is not None
        or (question.kind is AnswerKind.ANY and _NUMBER_ONLY.fullmatch(passage[start:end]) is not None)
        or any(word.search(asked) and not evidence.search(clause) for word, evidence in _PAIRS)
        or _lacks_rate(asked, passage)
        or _lacks_rank(asked, clause)
        or _lacks_number(question, clause)
        or (_NEGATED.search(asked) is not None and (question.kind is AnswerKind.ANY or not _NEGATED.search(clause)))
    )


def _lacks_rate(asked: str, passage: str) -> bool:
    """Whether the price of one is asked for, and the passage has that of several or of another unit."""
    rate = _RATE.search(asked)
    unit = (rate["unit"] or rate["last"]) if rate else ""
    foreign = _FOREIGN_RATE.search(asked)
    if foreign and not any(match["unit"] == foreign["unit"] for match in _FOREIGN_RATE.finditer(passage)):
        return True
    label = passage.partition("\t")[0] if "\t" in passage else ""
    has_unit = re.search(rf"(?<!\d )\b{unit}(?:ly|s)?\b", label, re.IGNORECASE)
    if unit and not has_unit and not re.search(rf"\b(?:per|each|every|an?)\s+{unit}", passage, re.IGNORECASE):
        return True
    return _EACH.search(asked) is not None and _QUANTITY.match(passage) is not None


def _lacks_rank(asked: str, clause: str) -> bool:
    words = [match[0] for match in _RANKED.finditer(asked)]
    words += [match["word"] or match["than"] for match in _COMPARED.finditer(asked)]
    return any(not re.search(rf"\b{re.escape(word)}\b", clause, re.IGNORECASE) for word in words)


def _lacks_number(question: Question, clause: str) -> bool:
    """Whether an amount is asked for a number of things that the clause does not have."""
    if question.kind not in {AnswerKind.MONEY, AnswerKind.MEASURE}:
        return False
    numbers = [match["number"].lower() for match in _TIMES.finditer(question.text)]
    return any(not re.search(rf"\b(?:{one}|{_NUMBERS.get(one, one)})\b", clause, re.IGNORECASE) for one in numbers)


def _clause(passage: str, start: int, end: int) -> str:
    """The part of a passage around a span, up to the next commas or conjunctions."""
    breaks = list(_CLAUSE_BREAK.finditer(passage))
    first = max((match.end() for match in breaks if match.end() <= start), default=0)
    last = min((match.start() for match in breaks if match.start() >= end), default=len(passage))
    return passage[first:last]

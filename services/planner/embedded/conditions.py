"""Conditions: where a sentence makes what it asks for depend on something that is not known yet."""

import re
from dataclasses import dataclass

from services.planner.embedded.patterns import Lexicon

LONGEST_LEAD = 200
"""Characters before a condition that are looked at to classify it."""

_CONDITION = re.compile(
    r"\b(?:only\s+|but\s+only\s+)?(?:if|unless|in\s+case|in\s+the\s+event|depending\s+(?:up)?on|provided\s+that)\b"
    r"|\bonly\s+(?:when|in\s+case)\b|\bor\s+else\b|(?:^|(?<=[,;:.!?])|(?<=\band)|(?<=\bor))\s*\b(?:otherwise|else)\b"
)
_COURTESY = re.compile(
    r"if\s+(?:(?:you|u)(?:'re|\s+(?:can|could|may|would|will|want|like|wish|please|have|do\s+not|don't|are\s+able|need))\b"
    r"|i\s+(?:may|understand)\b|i'm\s+not\b"
    r"|(?:it(?:'s|\s+is)|that(?:'s|\s+is)|at\s+all)?\s*"
    r"(?:possible|needed|necessary|required|applicable|available|any|present|ok|okay|fine|alright|no\s+trouble"
    r"|not\s+(?:too\s+)?(?:much\s+)?(?:trouble|bother|a\s+problem))\b"
    r"|there(?:'s|\s+(?:is|are|was|were))\s+(?:any|some|anything|(?:(?:any|some)\s+)?(?:text|words|writing|speech))"
    r"(?=\s*(?:[^\w\s]|$|(?:in|on|at|there|to)\b)))"
    r"|in\s+case\s*(?:of\b|you\b|[^\w\s]|$)"
)
"""Words in the form of a condition that make nothing depend on anything."""

_KIND = re.compile(r"\b(?:great|nice|good|glad|happy|helpful|grateful|thankful|wonderful|appreciated?(?:\s+it)?)\s+$")
_TO_YOU = re.compile(r"if\s+(?:you|u)\b")
_REPORTS = (
    r"know|see|check|find\s+out|figure\s+out|say|ask(?:s|ing)?|wonder(?:ing)?|determine|detect|test|verify|judge|assess"
    r"|decide|predict|guess|identify|evaluate|sure|certain|curious|(?:tell|show|inform|answer)\s+(?:me|us)|understand|learn"
)
_REPORTING = re.compile(
    rf"\b(?:{_REPORTS}|find)(?:\s+(?:me|us|please|also|then|too|whether\s+or|in\s+\w+\s+words?))*[\s,:]+$"
    r"|\b(?:check|test|verify)\s+(?:[^\s,;:]+\s+){1,4}$"
)
"""How words end after which "if" means "whether"."""

_REPORTED_BEFORE = re.compile(rf"\b(?:{_REPORTS})\b")
_NO_CONDITION = re.compile(r"\b(?:happens?|occurs?|to\s+do|as|even|what|just)\s+$")
_CONJOINED = re.compile(r"(?:^|;|\b(?:and|but|then|also|or|plus|next|finally|afterwards|please|now))[\s,:–—-]*$")
_AFTER_COMMA = re.compile(r"[,:–—]\s*$")
_FOLLOWS = re.compile(r",\s*(?!(?:and|then\s+also|but|or)\b)\w|\bthen\b")


@dataclass(frozen=True, slots=True)
class Condition:
    """Start of a condition, and the side of what depends on it."""

    start: int
    leads: bool
    """Whether what depends on it follows it; otherwise it precedes it."""


def condition(masked: str, start: int, end: int, lexicon: Lexicon) -> Condition | None:
    """The first condition of a sentence; "if you can" and "tell me if it is happy" are none."""
    words = masked[start:end]
    for found in _CONDITION.finditer(words):
        at = found.end() - len(found.group().lstrip())
        before, after = words[max(0, at - LONGEST_LEAD) : at], words[at:]
        if not _is_courtesy(before, after) and not _is_report(before, found.group(), words[found.end() :], lexicon):
            return Condition(start + at, _leads(before, after))
    return None


def _is_courtesy(before: str, after: str) -> bool:
    kind = _KIND.search(before) and _TO_YOU.match(after)
    return bool(kind or _COURTESY.match(after) or _NO_CONDITION.search(before))


def _is_report(before: str, words: str, after: str, lexicon: Lexicon) -> bool:
    """Whether "if" asks rather than makes a condition: "tell me the language and if it is happy"."""
    if words != "if":
        return False
    if _REPORTING.search(before):
        return True
    own = re.split(r"\band\b|;", after, maxsplit=1)[0]
    consequence = _FOLLOWS.search(own) or lexicon.verb.search(own) or re.match(r"\s*(?:so|not)\b", own)
    joined = _CONJOINED.search(before) or _AFTER_COMMA.search(before)
    return bool(joined and _REPORTED_BEFORE.search(before)) and not consequence


def _leads(before: str, after: str) -> bool:
    if after.startswith(("otherwise", "else", "or else")):
        return True
    return bool(_CONJOINED.search(before) or (_AFTER_COMMA.search(before) and _FOLLOWS.search(after)))

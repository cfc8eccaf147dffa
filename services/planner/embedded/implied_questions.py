"""The question that words imply which call for no task: "wednesday opening hours", "I need the account number"."""

import re

from services.planner.embedded.clauses import PREPOSITION, sentences
from services.planner.embedded.patterns import CERTAIN, Lexicon
from services.planner.embedded.questions import COURTESY, NO_CONTENT
from services.planner.embedded.rules import RuleReading
from services.planner.embedded.wording import MARKED
from services.planner.task_spec import Modality

LONGEST = 300
"""Characters of a sentence that may imply a question."""

MOST_WORDS = 12
"""Words of a noun phrase that may be a question."""

_READABLE = frozenset((Modality.TEXT, Modality.IMAGE, Modality.AUDIO))
"""What a question can be answered from."""

_DETERMINER = (
    r"(?:the|this|that|these|those|an?|my|our|your|his|her|its|their|it|them|him|me|us|all|both|each|every\w*|some\w*)"
)
_ASKING_WORD = r"(?:what|who|whom|whose|where|when|why|which|how|whether)"
_FINITE = r"(?:is|are|was|were|am|has|have|had|will|would|did|does|do|can|could|should|must|may)(?:n't)?\b"
_NEED = re.compile(
    r"(?:(?:^|[\s,])(?:i|we)(?:'d|'ll|'m|'re)?\s+(?:\w+\s+){0,2}?|^)"
    r"(?:needs?(?:\s+to\s+(?:know|see|find(?:\s+out)?|have))?|wants?(?:\s+to\s+(?:know|see))?|like\s+to\s+know"
    r"|(?:looking|searching)\s+for|trying\s+to\s+find|can(?:'t|not)\s+find|after|forgot(?:ten)?|lost|(?:don't|can't)\s+(?:know|remember)|interested\s+in|care\s+about)"
    r"\s+(?=\w)"
)
"""Words before what is needed."""

_INQUIRY = re.compile(
    r"(?:(?:(?:tell|remind|give|show|find|get|hand)\s+(?:me|us)|let\s+me\s+know)\s+(?:(?:about|of)\s+)?"
    r"|(?:give|show|find|get|fetch|look\s+(?:up|for)|check|name|state|quote|(?:pull|dig|pick|point|read)\s+out|search(?:\s+for)?"
    r"|locate|grab)\s+(?!of\b))(?=\w)"
)
"""An order for something that a text may state."""

_ASKED = re.compile(rf"(?:(?<=\s)|^)(?:{PREPOSITION}\s+)?{_ASKING_WORD}(?:'?s|'?re)?\s+\w")
_FREE = re.compile(
    rf"(?:{PREPOSITION}\s+)?(?:(?:what|how|why|whether)\b|(?:\w+\s+){{1,3}}?{_FINITE}\s+(?:i|we|you|he|she|it|they|{_DETERMINER})\b)"
)
"""A question that is no relative clause by its form."""

_KNOWING = re.compile(
    r"\b(?:know|idea|sure|wonder(?:ing)?|see|tell|say|forg[oe]t(?:ten)?|remember|asks?|asking|asked|out|understand|check|unclear|curious|me|us)\s+$"
)
_POINTING = re.compile(r"(?:it|this|that|these|those|them|him|her|you|me|us|to|help|advice|assistance)\b")
_STATES = re.compile(
    r"(?:i|we|he|she|they|it|you|there|this|that|these|those|some(?:one|body)|every(?:one|body)|nobody)(?:'\w+)?\s"
    r"|(?:no|yes|same|again|to|into|as)\b"
)
"""How a sentence begins that states something, or refers to what was said before."""

_ORDERED = re.compile(rf"(?!{PREPOSITION}\b)[a-z]+\s+(?:{_DETERMINER}(?!\w)|to\b|{MARKED})")
"""A word before an object: an order, whatever the word means."""

_REQUESTED = re.compile(r"\b(?:can|could|would|will)\s+(?:you|u)\b")
_NOUN_TOO = re.compile(
    r"(?:book|call|change|check|copy|cut|design|draft|estimate|filter|fix|forecast|format|guess|highlight|index|judge|label|list"
    r"|look|match|measure|mix|move|name|order|paint|pay|pick|plan|play|plot|post|print|project|rank|rate|record|repair|reply"
    r"|reserve|review|run|scan|schedule|score|search|share|show|sort|spot|tag|turn|upload)\b"
)
"""Verbs of orders that begin noun phrases, too: "order number"."""

_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
_EDGES = " .,:;!?-–—\n"
_FINITE_FORM = re.compile(rf"\b{_FINITE}")


def implied_question(reading: RuleReading, lexicon: Lexicon) -> str:
    """The question that a message with readable files implies; empty if there is none.

    Args:
        reading: what rules found in the request, from which no task was planned.
        lexicon: the words that call for tasks.
    """
    there = [one for one in reading.resources if not one.made]
    certain = any(match.weight >= CERTAIN for clause in reading.clauses for match in clause.matches)
    if (
        certain
        or reading.is_final
        or reading.wording.payloads
        or not any(_READABLE.intersection(one.modalities) for one in there)
    ):
        return ""
    text, masked = reading.wording.text, reading.wording.masked
    for start, end in reversed(list(sentences(masked))):
        sentence = COURTESY.sub("", masked[start:end])
        if len(sentence) <= LONGEST and (found := _implied(sentence, lexicon)):
            words = text[start + found[0] : start + found[1]].strip(_EDGES)
            return f"{words[:1].upper()}{words[1:]}?"
    return ""


def _implied(sentence: str, lexicon: Lexicon) -> tuple[int, int] | None:
    """The span of the question that a sentence implies."""
    talk = lexicon.chat.match(sentence)
    polite = lexicon.polite.match(sentence, talk.end() if talk else 0)
    at = polite.end() if polite else 0
    core = sentence[at:]
    whole = sentence.strip(_EDGES)
    if lexicon.chat.fullmatch(whole) or lexicon.aside.fullmatch(core.strip(_EDGES)):
        return None
    is_requested = bool(_REQUESTED.search(sentence[:at]))
    names_thing = "?" in core and not is_requested and _NOUN_TOO.match(core)
    if (inquiry := _INQUIRY.match(core)) and not names_thing:
        return _object(sentence, at + inquiry.end())
    needs = list(_NEED.finditer(sentence))
    if needs and not is_requested:
        needed = _object(sentence, needs[-1].end())
        says_nothing = needed and NO_CONTENT.fullmatch(sentence[needed[0] :].strip(_EDGES))
        return (at, len(sentence)) if says_nothing else needed
    if is_requested or _orders(core, lexicon):
        return None
    states = any(_STATES.match(words) or lexicon.context.match(words) for words in (core, sentence.lstrip()))
    for asked in _ASKED.finditer(core):
        if not states or _FREE.match(core, asked.start()) or _KNOWING.search(core[: asked.start()]):
            has_content = not NO_CONTENT.fullmatch(core[asked.start() :].strip(_EDGES))
            return (at + asked.start() if has_content else at), len(sentence)
    is_phrase = "?" in sentence or _FINITE_FORM.match(core) or not (states or _FINITE_FORM.search(core))
    return (at, len(sentence)) if is_phrase and _has_content(core, lexicon) else None


def _object(sentence: str, at: int) -> tuple[int, int] | None:
    return None if _POINTING.match(sentence, at) else (at, len(sentence))


def _orders(core: str, lexicon: Lexicon) -> bool:
    """Whether words order something."""
    if _ORDERED.match(core):
        return True
    return bool(lexicon.verb.match(core)) and "?" not in core and not _NOUN_TOO.match(core)


def _has_content(words: str, lexicon: Lexicon) -> bool:
    found = _WORD.findall(words)
    content = [word for word in found if len(word) > 2 and word not in lexicon.common]  # noqa: PLR2004  # "is", "am"
    return bool(content) and len(found) <= MOST_WORDS

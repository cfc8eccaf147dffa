"""What a clause says in words that a task takes as it is: questions, instructions, prompts, names of classes."""

import re
from collections.abc import Sequence

from services.planner.embedded.clauses import Clause
from services.planner.embedded.languages import PATTERN as LANGUAGE
from services.planner.embedded.patterns import Lexicon
from services.planner.embedded.wording import MARKED, QUOTE_MARK, Payload, Wording

MOST_LABELS = 20

NOUN = re.compile(
    r"^(?:summar(?:y|ies)|translations?|transcripts?|transcriptions?|captions?|descriptions?|entities|names)\b"
)
"""Words for the result of a task, not for the task."""

RESULT = re.compile(
    rf"{NOUN.pattern}|^[a-z-]+ed\b"
    r"|^(?:[\w-]+ )?(?:classification|detection|segmentation|estimation|labels?|class|category)\b"
)
"""Words for what has come of a task."""

_PICTURE = r"(?:image|picture|photo|pic|version|one|copy)s?\b"

_SEVERAL = re.compile(
    rf"\b(?:these|those|the|all|both|each)(?:\s+of\s+(?:these|those|them|the))?\s+(?:two|three|four|five|six|\d+)"
    rf"(?:\s+{_PICTURE})?(?!\s+(?:colou?rs?|times|percent|degrees|pixels)\b)|\b(?:both|each|all)\s+of\s+(?:them|these|those)\b",
    re.IGNORECASE,
)
"""Several pictures together; each is changed for itself."""

_FIND = re.compile(
    r"\b(?:find|locate|detect|spot|where (?:is|are))\s+(?P<list>.+?)(?=\s+(?:in|on|of|within)\b|[.?!]|$)", re.IGNORECASE
)

_QUESTION_START = re.compile(
    r"\b(?:what|who|whom|whose|where|when|why|which|how|is|are|was|were|does|do|did|has|have|can|could|will)\b",
    re.IGNORECASE,
)
_MENTIONED = re.compile(r"\b(?:questions?|answers?)\b")
_ASKING = re.compile(
    r"\b(?:tell me|find out|i (?:want|need|would like) to know|know|ask|determine|check)\s+(?=\w)", re.IGNORECASE
)
_AFTER_MAP = re.compile(
    r"\s+(?:from|using|with|following|in)\s+(?:this|that|the)\s+(?:\w+\s+){0,3}maps?$", re.IGNORECASE
)
_POLITE = r"please|now|then|also|and|can you|could you|i want(?: you)? to|i(?:'d| would) like(?: you)? to|help me|to"
_MAKE = (
    r"generate|create|draw|make|paint|design|render|produce|illustrate|sketch|imagine|visuali[sz]e|compose|build|show"
    r"|give|i want|i need|get"
)
_MAKING = re.compile(
    rf"^\W*(?:(?:{_POLITE})\s+)*(?:{_MAKE})\s+(?:(?:me|us)\s+)?(?:(?:an?|the|some|one)\s+)?", re.IGNORECASE
)
_MADE = r"images?|pictures?|photos?|illustrations?|videos?|clips?|animations?|sounds?|noises?|visual representations?"
_THING_MADE = re.compile(
    rf"^(?:(?!of\b|showing\b|from\b)[\w'-]+\s+){{0,3}}?(?:{_MADE})"
    r"\s+(?:of|showing|with|about|depicting|representing|that (?:shows?|depicts?|represents?))\s+",
    re.IGNORECASE,
)
_LISTED = (
    r"[:\s]+(?:(?:either|categories|classes|labels|the|one of|following|these|an?|picture|photo|image|sound|recording"
    r"|of)[:\s]+)*"
)
_LABELS = tuple(
    re.compile(rf"\b(?:{lead})\b{_LISTED}(?P<list>[^.;:?!]{{2,300}})", re.IGNORECASE)
    for lead in (
        "about|as|into|among|between|either|classes|categories|labels|topics|options|of (?:an?|the)",
        "is it|is this|is that|are they|are these",
    )
)
"""Words before a choice of classes, the clearest first."""

_BETWEEN_LABELS = re.compile(r"\s*,\s*(?:or\s+|and\s+)?|\s+or\s+|\s+and\s+|\s*/\s*", re.IGNORECASE)
_ALTERNATIVES = re.compile(r"\bor\b|,|/", re.IGNORECASE)
_ARTICLE = re.compile(r"^(?:an?|the)\s+", re.IGNORECASE)
_DEFINITE = re.compile(
    r"^\W*(?:the|this|that|these|those|my|our|your|his|her|its|their|it|them|what|everything|all|each|both|attached|following|a|an|some|to|of)\b"
)
_LEFT_OUT = re.compile(rf"{MARKED}+|\b(?:please|for me|to me|thanks|thank you)\b|^[\s,:;.!?]+|[\s,:;.!?]+$")
_LANGUAGES = rf"(?:in)?to\s+(?:the\s+)?{LANGUAGE}|in\s+{LANGUAGE}"
_LANGUAGE_LAST = re.compile(
    rf"[,\s]+(?:{_LANGUAGES})(?:(?:\s*,\s*|\s+and\s+)(?:(?:in)?to\s+|in\s+)?{LANGUAGE})*$", re.IGNORECASE
)
_LANGUAGE_FIRST = re.compile(rf"^(?:{_LANGUAGES})(?![\w-])[\s,:]*", re.IGNORECASE)


def question(clause: Clause) -> str:
    """The question of a clause, in the user's words; empty if it only refers to the question of another clause."""
    asked = [payload.text for payload in clause.payloads if payload.asks]
    if asked:
        return asked[-1]
    words = clause.words
    if asking := _ASKING.search(words):
        words = words[asking.end() :]
    start = _QUESTION_START.search(words)
    if start and (words.endswith("?") or start.start() <= len(words) // 2):
        words = words[start.start() :]
    elif _MENTIONED.search(clause.masked):
        return ""
    return words[:1].upper() + words[1:]


def contents(clause: Clause, labels: Sequence[str] = (), *, asking: bool = True) -> list[Payload]:
    """What is quoted or pasted in a clause to be worked on: no names of classes, and questions only if asking."""
    return [payload for payload in clause.payloads if (asking or not payload.asks) and payload.text not in labels]


def prompt(clause: Clause) -> str:
    """What is to be made, as the clause describes it."""
    described = [payload.text for payload in clause.payloads]
    if described:
        return " ".join(described)
    words = _MAKING.sub("", clause.words, count=1)
    words = _THING_MADE.sub("", words, count=1) or words
    words = _AFTER_MAP.sub("", words) or words
    return words.strip(" .,:;")


def labels(clause: Clause, wording: Wording) -> list[str]:
    """The classes a clause offers to choose from; empty if it offers fewer than two."""
    text = wording.text[clause.start : clause.end]
    for found in (found for lead in _LABELS for found in lead.finditer(text)):
        listed = found["list"]
        if not _ALTERNATIVES.search(listed):
            continue
        names = [_label(name) for name in _BETWEEN_LABELS.split(listed)]
        names = [name for name in names if name]
        if len(names) > 1 and all(len(name.split()) <= 4 for name in names):  # noqa: PLR2004  # a class is a few words
            return list(dict.fromkeys(names))[:MOST_LABELS]
    return []


def instruction(clause: Clause) -> str:
    """What is to be done with a picture; "the sketch" is "it", not another thing to be done."""
    words = _SEVERAL.sub("it", clause.words)
    for match in clause.results:
        said = re.escape(clause.masked[match.start - clause.start : match.end - clause.start])
        words = re.sub(rf"\b\w+\s+{said}(?:\s+{_PICTURE})?(?!\w)", "it", words, flags=re.IGNORECASE)
    return words


def things(clause: Clause) -> list[str]:
    """What is to be found in a picture, by name."""
    found = _FIND.search(clause.words)
    names = [_label(name) for name in _BETWEEN_LABELS.split(found["list"])] if found else []
    return [name for name in names if name][:MOST_LABELS]


def _label(name: str) -> str:
    return _ARTICLE.sub("", name.strip(" \t\n\"'“”‘’()")).strip()


def literal(clause: Clause, lexicon: Lexicon, wording: Wording) -> str:
    """The words that a clause is about, without quotation marks: "translate good morning into German".

    Empty if it rather points at something: "translate the letter".
    """
    pieces, at = [], clause.start
    for match in clause.matches:
        pieces.append((at, match.start))
        at = match.end
    pieces.append((at, clause.end))
    after = [(start, end) for start, end in pieces[1:] if wording.masked[start:end].strip()]
    for start, end in after:
        masked = wording.masked[start:end]
        if QUOTE_MARK in masked or _DEFINITE.match(masked):
            return ""
        words = lexicon.aside.sub(lambda aside: " " * len(aside.group()), masked)
        words = "".join(
            original if kept != " " else " " for original, kept in zip(wording.text[start:end], words, strict=True)
        )
        words = _LANGUAGE_LAST.sub("", _LANGUAGE_FIRST.sub("", words.strip(" ,.:;!?")))
        if cleaned := _LEFT_OUT.sub("", words).strip(" ,.:;!?"):
            return cleaned
    return ""

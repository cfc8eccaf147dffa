"""Completes a short message that continues the question before it: "and until when?" becomes a question of its own."""

import re
from dataclasses import replace

from services.planner.embedded.corrections import replace_corrected, sent_files
from services.planner.request import Request

LONGEST = 60
"""Characters of a message that may need the question before it."""

LONGEST_QUESTION = 200
"""Characters of the question before it."""

_LEAD = re.compile(
    r"\W*(?:(?:and|but|ok(?:ay)?|so|no|oops|sorry|actually|i\s+mean(?:t)?|what\s+about|how\s+about|also|then)\b[\s,:]*)*",
    re.IGNORECASE,
)
_PREPOSITION = (
    r"(?:by|in|on|at|to|from|for|until|till|since|under|with|without|of|about|after|before|including|excluding|per)"
)
_ASKING = r"(?:what|which|who|whom|whose|where|when|why|how)"
_WORD = r"[^\W\d_][\w'’-]*"
_VERB = r"(?:is|are|was|were|does|do|did|has|have|had|can|could|would|will|should|must|may)\b"
_NO_VERB = rf"(?!{_VERB})"
_QUESTION_WORDS = re.compile(
    rf"((?:{_PREPOSITION}\s+)?{_ASKING}(?:\s+(?:much|many|long|often|far|old|late|early|big|heavy|day|date|time|place|page|room|year))?)\s*\?*",
    re.IGNORECASE,
)
"""A follow-up of nothing but the words that ask."""

_PHRASE = re.compile(rf"({_PREPOSITION}\s+(?:{_NO_VERB}\S+\s*){{1,5}}?)[\s.!?]*", re.IGNORECASE)
"""A follow-up that only narrows the question."""

_NOUN = re.compile(rf"((?:the|my|our|his|her|its|their|your)\s+(?:{_NO_VERB}\S+\s*){{1,5}}?)[\s.!?]*", re.IGNORECASE)
"""A follow-up that only names another thing."""

_COUNTED = re.compile(r"how\s+(?:much|many)\s+(?=[^\W\d_])", re.IGNORECASE)
"""Beginning of a question whose thing counted another thing replaces."""

_CORRECTS = re.compile(r"\b(?:no|sorry|actually|oops|i\s+mean(?:t)?)\b", re.IGNORECASE)
_OTHER_FILE = re.compile(r"the\s+other\s+(?:one|file|document|pdf|picture|image|recording|text)[\s.!?]*", re.IGNORECASE)
_NOT_BUT = re.compile(
    rf"not\s+(?:the\s+)?(?P<old>{_WORD}(?:\s+{_WORD})?)[\s,;–-]+(?:but\s+)?(?:the\s+)?(?P<new>{_WORD}(?:\s+{_WORD})?)[\s.!?]*",
    re.IGNORECASE,
)
"""A follow-up that replaces a word of the question: "no, not the flour, the milk"."""

_SAME_QUESTION = re.compile(
    r"\W*(?:(?:sorry|oops|ok(?:ay)?|no|oh|and|but|ah)\b[\s,.!]*)*"
    r"(?:(?:that|it|this)\s+(?:was|is)\s+the\s+wrong\s+(?:one|file|document|picture)[\s,.!;]*|wrong\s+(?:one|file|document|picture)[\s,.!;]*)?"
    r"(?:(?:and\s+)?(?:here(?:'s|\s+is|\s+comes)|this\s+is|i\s+meant?)\s+(?:the\s+(?:right|correct|other)\s+|this\s+)(?:one|file|document|picture)"
    r"|(?:what|how)\s+about\s+this(?:\s+(?:one|file))?|(?:and\s+)?(?:in|for|on|with)?\s*this\s+(?:one|file)|(?:the\s+)?same\s+(?:question\s+)?(?:for|with|about)\s+this(?:\s+(?:one|file))?)"
    r"[\s.!?]*",
    re.IGNORECASE,
)
"""A message that sends another file for the question before it."""

_PRONOUN = re.compile(
    rf"({_ASKING}\b.*?\b(?:is|are|was|were|does|do|did|will|can)\s+)(?:that|this|it|they|those)\b(.*)", re.IGNORECASE
)
"""A question about what the question before it was about."""

_QUESTION = re.compile(
    rf"(?P<asking>(?:{_PREPOSITION}\s+)?{_ASKING}(?:\s+{_NO_VERB}{_WORD})*)(?P<rest>\s+{_VERB}.+)",
    re.IGNORECASE | re.DOTALL,
)
_CONTRACTION = re.compile(rf"\b({_ASKING})['’]s\b", re.IGNORECASE)
_EDGES = " .?!"
_SUBJECT = re.compile(
    rf"\b(?:is|are|was|were|does|do|did|will|can)\s+((?:the|my|our|this|that|his|her|their)\s+(?:{_NO_VERB}{_WORD}\s*){{1,3}})",
    re.IGNORECASE,
)


def complete(request: Request) -> Request:
    """The request with its last message completed by the question before it, if it is incomplete."""
    text = request.text.strip()
    if not text or len(text) > LONGEST:
        return request
    question = _question_before(request)
    if question is None:
        return request
    if request.inputs:
        completed = question[0] if _SAME_QUESTION.fullmatch(text) else None
    else:
        completed = _corrected(text, question[0], request) or _completed(text, question)
    if completed is None:
        return request
    last = replace(request.conversation[-1], text=completed)
    return replace(request, conversation=(*request.conversation[:-1], last))


def _question_before(request: Request) -> re.Match[str] | None:
    """The last question of the user before the last message."""
    earlier = (turn.text.strip() for turn in reversed(request.conversation[:-1]) if turn.by_user)
    text = next(earlier, "")
    return _QUESTION.search(_CONTRACTION.sub(r"\1 is", text)) if len(text) <= LONGEST_QUESTION else None


def _corrected(text: str, question: str, request: Request) -> str | None:
    """The question before a message with the words that the message corrects."""
    lead = _LEAD.match(text)
    core = text[lead.end() :] if lead else text
    if lead is None or not _CORRECTS.search(lead[0]):
        return None
    if swap := _NOT_BUT.fullmatch(core):
        corrected = re.sub(rf"\b{re.escape(swap['old'])}\b", swap["new"], question, count=1, flags=re.IGNORECASE)
        return corrected if corrected != question else None
    if _OTHER_FILE.fullmatch(core):
        return replace_corrected(question, core, sent_files(request))
    return None


def _completed(text: str, question: re.Match[str]) -> str | None:
    lead = _LEAD.match(text)
    core = text[lead.end() :] if lead else text
    rest = question["rest"].rstrip(" .!?")
    if asking := _QUESTION_WORDS.fullmatch(core):
        return f"{_capitalized(asking[1])}{rest}?"
    if phrase := _PHRASE.fullmatch(core):
        return f"{_capitalized(question['asking'])}{rest} {phrase[1].strip(_EDGES)}?"
    if (noun := _NOUN.fullmatch(core)) and lead and lead.end():
        if counted := _COUNTED.match(question["asking"]):
            return f"{counted[0]}{_without_determiner(noun[1])}{rest}?"
        return f"What is {noun[1].strip(_EDGES)}?"
    if (about := _PRONOUN.fullmatch(core)) and (subject := _SUBJECT.search(question[0])):
        return f"{about[1]}{subject[1].strip()}{about[2]}"
    return None


def _without_determiner(noun: str) -> str:
    return noun.strip(_EDGES).partition(" ")[2]


def _capitalized(words: str) -> str:
    return words[:1].upper() + words[1:]

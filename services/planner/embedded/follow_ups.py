"""Completes a short message that continues the question before it: "and until when?" becomes a question of its own."""

import re
from dataclasses import replace

from services.planner.embedded.corrections import replace_corrected, replace_same_kind, sent_files
from services.planner.embedded.patterns import lexicon
from services.planner.request import Request

LONGEST = 60
"""Characters of a message that may need the question before it."""

LONGEST_QUESTION = 200
"""Characters of the question before it."""

_LEAD = re.compile(
    r"\W*(?:(?:and|but|ok(?:ay)?|so|no|oops|sorry|actually|i\s+mean(?:t)?|what\s+about|how\s+about|also|then|(?:the\s+)?same\s+(?:question\s+)?for)\b[\s,:]*)*",
    re.IGNORECASE,
)
_PREPOSITION = (
    r"(?:by|in|on|at|to|from|for|until|till|since|under|with|without|of|about|after|before|including|excluding|per)"
)
_ASKING = r"(?:what|which|who|whom|whose|where|when|why|how)"
_WORD = r"[^\W\d_][\w'’-]*"
_PRONOUN_WORD = r"(?:i|you|he|she|it|we|they|this|that|these|those|yes|sure|good|great)"
_VERB = r"(?:is|are|was|were|does|do|did|has|have|had|can|could|would|will|should|must|may)\b"
_NO_VERB = rf"(?!{_VERB})"
_QUESTION_WORDS = re.compile(
    rf"((?:{_PREPOSITION}\s+)?{_ASKING}(?:\s+(?:much|many|long|often|far|old|late|early|big|heavy|day|date|time|place|page|room|year))?)\s*\?*",
    re.IGNORECASE,
)
"""A follow-up of nothing but the words that ask."""

_PHRASE = re.compile(rf"({_PREPOSITION}\s+(?:{_NO_VERB}\S+\s*){{1,5}}?)[\s.!?]*", re.IGNORECASE)
"""A follow-up that only narrows the question."""

_NOUN = re.compile(
    r"(?:(?P<determiner>the|an?|my|our|his|her|its|their|your)\s+)?"
    rf"(?P<noun>(?!(?:{_PREPOSITION}|{_ASKING}|{_PRONOUN_WORD})\b){_NO_VERB}{_WORD}(?:\s+{_NO_VERB}{_WORD}){{0,3}}?)"
    r"(?P<also>(?:[\s,]+(?:too|as\s+well|also|then|please|pls))*)[\s.!?]*",
    re.IGNORECASE,
)
"""A follow-up that only names another thing."""

_ATTRIBUTE = re.compile(
    r"\b(?:date|deadline|day|time|hours|address|number|iban|code|pin|password|e-?mail|website|phone|name|author|sender|place"
    r"|location|room|reason|duration|length|size|weight|age|reference|platform|gate|seat)s?$",
    re.IGNORECASE,
)
_AMOUNT = re.compile(
    r"\b(?:price|cost|fee|rate|amount|total|sum|balance|vat|tax|discount|deposit|rent|salary|wage|bill)s?$",
    re.IGNORECASE,
)
"""What a thing has: a question of its own rather than the question before it about another thing."""

_ASKS_AMOUNT = re.compile(r"how\s+much\b|.*\b(?:cost|price|fee)s?\b", re.IGNORECASE | re.DOTALL)
_SUBJECT_OF = re.compile(
    rf"\b(?P<verb>is|are|was|were|(?:do|doe|di|wil|ca|ha|coul|woul|shoul)[a-z]+)\s+"
    rf"(?P<subject>(?:(?:the|my|our|this|that|his|her|their|an?)\s+)(?:(?!{_PREPOSITION}\b){_WORD}\s*)+|(?-i:[A-Z]){_WORD}?(?=\s))",
    re.IGNORECASE,
)
_WITH_VERB = 2
"""Words of a subject with a determiner; behind "does", a further one is the verb."""

_BE = ("is", "are", "was", "were")

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
        words = phrase[1].strip(_EDGES)
        return (
            replace_same_kind(question[0].rstrip(" .?!"), 0, words)
            or f"{_capitalized(question['asking'])}{rest} {words}?"
        )
    noun = _NOUN.fullmatch(core)
    continues = bool(lead and lead.end()) or text.endswith("?")
    if noun and (continues or noun["also"]) and not lexicon().verb.match(core.lower()):
        return _about_noun(noun, question)
    if (about := _PRONOUN.fullmatch(core)) and (subject := _subject(question[0])):
        return f"{about[1]}{question[0][slice(*subject)].strip()}{about[2]}"
    return None


def _about_noun(noun: re.Match[str], question: re.Match[str]) -> str:
    """The question before a follow-up that only names another thing, about this; else what it is."""
    words = noun["noun"].strip(_EDGES)
    whole = f"{noun['determiner'] or 'the'} {words}" if noun["determiner"] or words.islower() else words
    if counted := _COUNTED.match(question["asking"]):
        return f"{counted[0]}{words}{question['rest'].rstrip(' .!?')}?"
    asks_other = _ATTRIBUTE.search(words) or (_AMOUNT.search(words) and not _ASKS_AMOUNT.match(question[0]))
    if (subject := _subject(question[0])) and not asks_other:
        return f"{question[0][: subject[0]]}{whole}{question[0][subject[1] :].rstrip(' .!?')}?"
    return f"What is {whole}?"


def _subject(question: str) -> tuple[int, int] | None:
    """The span of the thing that a question is about."""
    found = _SUBJECT_OF.search(question)
    if found is None:
        return None
    words = question[: found.end()].rstrip(_EDGES)
    end = len(words)
    is_name = " " not in found["subject"].strip()
    if found["verb"].lower() not in _BE and not is_name and len(found["subject"].split()) > _WITH_VERB:
        end = len(words.rpartition(" ")[0])
    return found.start("subject"), end


def _capitalized(words: str) -> str:
    return words[:1].upper() + words[1:]

"""Orders that no kind of task carries out, such as sending a result by e-mail."""

import re
from collections.abc import Iterator

from services.planner.embedded.clauses import Clause, pieces
from services.planner.embedded.patterns import Lexicon
from services.planner.embedded.wording import MARKED

_OBJECT = (
    r"(?:me|us|him|her|it|them|everyone|everybody|the|this|that|these|those|my|our|your|his|its|their|all|both|an?|to"
    rf"|{MARKED})"
)
_DELIVERING = (
    rf"(?:e-?mail|mail|post|upload|publish|share|forward|tweet|fax|notify|alert|remind(?!\s+(?:me|us)\s+(?:of|what|when|where|which|who|why|how)\b)|buy|order|pay|book|reserve|sell"
    rf"|schedule|delete|install|deploy|execute|rename|archive|encrypt|compress|zip|frame)\s+{_OBJECT}(?!\w)"
    r"|(?:text|message|phone|call)\s+(?:me|us|him|her|them|everyone)\b"
    rf"|(?:send|deliver)\s+(?!me\b|us\b){_OBJECT}(?!\w)(?!.*\bto\s+(?:me|us)\b|(?:\s+\w+){{0,3}}?\s+back\b(?!\s+to\b))"
    r"|send\s+(?:me|us)\s+(?:an?\s+)?(?:e-?mail|mail|message|text\s+message)\b"
)
_CHANGING = re.compile(
    r"\b(?:louder|quieter|faster|slower)\b|\b(?:speed|slow)\s+(?:\w+\s+){0,3}?(?:up|down)\b"
    r"|\b(?:cut|trim|remove)\s+(?:\w+\s+){1,4}(?:seconds?|minutes?|half)\b"
    r"|\b(?:remove|erase|delete|get\s+rid\s+of)\s+(?:the|this|that|these|all)\s+(?:\w+\s+)?(?:persons?|people|man|woman|logo|watermark|objects?)\b"
    r"|\bexplain\b|\b(?:spell|grammar)[- ]?check\w*"
    r"|\b(?:correct|fix)\s+(?:\w+\s+){0,3}(?:mistakes|errors|typos|grammar|spelling)\b"
)
"""Changes of recordings, texts and pictures that no task makes."""
_VERB = re.compile(rf"(?<![\w'-])(?:{_DELIVERING})")
LONGEST_LEAD = 20
"""Characters before a verb that are looked at."""

_NO_VERB = re.compile(
    r"\b(?:the|this|that|these|those|an?|my|our|your|his|her|its|their|each|every|i|we|you|they|who|of|in|from|by|on|for"
    r"|about|with|not|don't|never|without|last|first|new)\s+$"
)
"""How words end after which one of the verbs is a noun, or describes an action, or forbids it."""

_NAMES = re.compile(MARKED)
"""A quotation or file right after a word that is no command makes it a noun: the book "Emma"."""

_PLACE = re.compile(r"(?<![\w/:.])(?:~|\.{1,2})?/(?:[\w.-]+/?)+|\b[a-z]:\\\S+")
_FETCHING = re.compile(r"\b(?:return|fetch|list|dump|print)\s+(?:\w+\s+){0,2}?contents?\s+of\s+(?P<what>.+)")


def unsupported_orders(clause: Clause, lexicon: Lexicon) -> Iterator[tuple[int, int]]:
    """Yields the spans of the orders in a clause that no kind of task carries out."""
    masked = clause.masked
    stretches = list(pieces(masked, 0, len(masked)))
    for start, end in stretches[:-1] or stretches:
        core = start + (polite.end() if (polite := lexicon.polite.match(masked[start:end])) else 0)
        is_change = not clause.matches and _CHANGING.search(masked, core, end)
        if is_change or _delivers(clause, core, end) or _fetches(masked[core:end], lexicon):
            yield clause.start + core, clause.start + end


def _delivers(clause: Clause, start: int, end: int) -> bool:
    if clause.asks:
        return False
    called = [(match.start - clause.start, match.end - clause.start) for match in clause.matches]
    return any(
        not _NO_VERB.search(clause.masked[max(start, verb.start() - LONGEST_LEAD) : verb.start()])
        and (verb.start() == start or not _NAMES.search(verb.group()))
        and not any(first <= verb.start() < last for first, last in called)
        for verb in _VERB.finditer(clause.masked, start, end)
    )


def _fetches(masked: str, lexicon: Lexicon) -> bool:
    """Whether it requests a file of a machine rather than one that was sent."""
    if _PLACE.search(masked):
        return True
    found = _FETCHING.search(masked)
    return found is not None and not (lexicon.named(found["what"]) or lexicon.page.search(found["what"]))

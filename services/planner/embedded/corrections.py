"""Applies a correction within a message: "the invoice date, no wait, the due date" means the due date."""

import re
from collections.abc import Sequence
from dataclasses import replace

from services.planner.embedded.resources import Resource, resources
from services.planner.request import Request

_INTERJECTIONS = r"(?:(?:oh|oops|ah|hm+|uh|um|wait|ok|no|nope|sorry|actually)[,.!\s]+)*"
_CLEAR = (
    r"(?:scratch that|forget that|ignore that|i meant?|or rather|actually,? no|no,? wait|wait,? no"
    r"|hang on|hold on|make that|my (?:mistake|bad|fault)|i take that back|correction"
    r"|i (?:mixed|got) (?:that|it|this|them|things) (?:up|wrong|mixed up))\b"
)
_UNMARKED = r"(?=,?\s+(?:not\s+)?(?:the|my|our|his|her|its|their|don't|do\s+not|just)\b)"
"""Follows "no" or "sorry" that begins a correction without a clear word."""

_MARKER = re.compile(
    rf"\s*(?:(?:[,;–—]|\.{{3}}|…|\s-+)\s*(?:(?:oh|oops|ah|hm+|uh|um|wait)[,\s]+)*"
    rf"(?:(?:(?:no|nope|actually no|sorry)[,\s]+(?:wait|sorry|actually|hang on|hold on|i meant?)\b|sorry(?=,)"
    rf"|(?:no|nope|sorry|actually){_UNMARKED}|{_CLEAR})[,:\s]*)+"
    rf"|[.?!]+\s+{_INTERJECTIONS}(?:{_CLEAR}(?!\s+(?:by|with|to say)\b)(?<!mean(?=,))[,.:;\s]*)+)(?:just\s+)?",
    re.IGNORECASE,
)
"""Words of a correction; behind the end of a sentence only the clear ones."""
_NOTHING = re.compile(rf"\s*{_INTERJECTIONS}(?:no|nope|oops|sorry|oh|ah|wait)?\s*", re.IGNORECASE)
"""What a correction of an earlier message begins with."""
_TRAILING = re.compile(
    r"(?:[,\s]+(?:i meant?|instead|please|of course)"
    r"|\s+(?:is|was) what i(?:'m| am| was)? (?:need|want|mean|meant|wanted|after|looking for))\s*(?=[.?!]*$)",
    re.IGNORECASE,
)
_TAKEN_BACK = re.compile(
    r"(?:please\s+)?(?:don't|do not|not|never mind|forget(?: about)?)\s[^,.;]{1,60}?(?:[,.;]\s*(?:but\s+)?|\s+but\s+)"
    r"(?:(?:just|rather|only|instead)\s+)?(?=\S)",
    re.IGNORECASE,
)
"""What a correction takes back before it says what is meant: "don't mirror it, just ..."."""
_KINDS = (
    re.compile(r"\b(?:mon|tues|wednes|thurs|fri|satur|sun)day\b", re.IGNORECASE),
    re.compile(
        r"\b(?:january|february|march|april|june|july|august|september|october|november|december)\b", re.IGNORECASE
    ),
    re.compile(r"\b\d[\d.,:]*\b"),
)
"""Words of one kind: a weekday replaces a weekday."""
_WITH_PREPOSITION = re.compile(r"(?:in|on|at|for|from|to|of|until|with|by|per)\b", re.IGNORECASE)
_COMMAND = re.compile(
    r"(?:what|who|where|when|why|which|how|is|are|does|read|summari[sz]e|make|turn|rotate|convert|count|find|tell|show"
    r"|give|translate|save|crop|resize|blur|describe|transcribe|extract|remove|list)\b",
    re.IGNORECASE,
)
_QUESTION = re.compile(r"\s*(?:what|who|where|when|why|which|how|is|are|was|were|do|does|did|can)\b", re.IGNORECASE)
_SENTENCE_START = re.compile(r".*(?:[.?!\n]\s+|^)", re.DOTALL)
_FILE = re.compile(r"[\w-]+\.[a-z]\w{1,3}\b", re.IGNORECASE)
_OTHER_FILE = re.compile(
    r"the\s+other\s+(?:one|file|document|pdf|picture|image|photo|recording|text|letter|bill|invoice|offer)[\s.!?]*",
    re.IGNORECASE,
)
_FURTHER = re.compile(r"\s*(?:--?|[,;–—])?\s+(?:and|then)\s+(?!(?:the|a|an|my|our)\b)")
"""Where a request goes on behind a correction."""
_LAST_WORD = re.compile(r"\S+\s*$")
_PRONOUN = re.compile(r"\b(?:this|that|it|them|those|these)\s*$", re.IGNORECASE)
_DETERMINER = r"(?:the|a|an|my|our|your|his|her|its|their)"
_PREPOSITION = r"(?:of|in|on|at|for|to|from|with|by|into|as|and|or)"
_AUXILIARY = r"(?:is|are|was|were|do|does|did|has|have|had|will|can)"
_END_OF_PHRASE = rf"(?:{_DETERMINER}|{_PREPOSITION}|{_AUXILIARY})"
_PHRASE = re.compile(rf"\b{_DETERMINER}\s+((?:(?!{_END_OF_PHRASE}\b)[\w'’-]+\s*)+)", re.IGNORECASE)
_COUNTED = re.compile(r"\bhow\s+(?:much|many)\s+(?!(?:is|are|was|were|do|does|did)\b)([\w'’-]+)", re.IGNORECASE)
_NAME = re.compile(r"(?<=\s)[A-Z][\w'’-]+")
_WORD = re.compile(r"[^\W_]+")
_LONGEST = 300
"""Characters of a message that is corrected within."""


def apply_correction(request: Request) -> Request | None:
    """The request with the corrected words of its last message replaced; None if it is unclear which they are."""
    text = request.text
    marker = _MARKER.search(text) if len(text) <= _LONGEST else None
    if marker is None or _NOTHING.fullmatch(text[: marker.start()]) or not text[marker.end() :].strip():
        return request
    before, after = text[: marker.start()], _TRAILING.sub("", _without_lead(text[marker.end() :]))
    corrected = replace_corrected(before, after, sent_files(request))
    if corrected is None:
        return None
    last = replace(request.conversation[-1], text=corrected)
    return replace(request, conversation=(*request.conversation[:-1], last))


def _without_lead(after: str) -> str:
    taken_back = _TAKEN_BACK.match(after)
    return after[taken_back.end() :] if taken_back else after


def sent_files(request: Request) -> list[Resource]:
    """The files of the latest message that has some."""
    named = [one for one in resources(request) if one.names[0] and not one.made]
    latest = min((one.age for one in named), default=0)
    return [one for one in named if one.age == latest]


def replace_corrected(before: str, after: str, there: Sequence[Resource]) -> str | None:
    """Returns a request with what a correction means instead; None if it is unclear what it replaces.

    Args:
        before: the request.
        after: the correction without words such as "no, I meant".
        there: the files that either may name.
    """
    start = _SENTENCE_START.match(before)
    begin = start.end() if start else 0
    if _OTHER_FILE.fullmatch(after):
        return _with_other_file(before, there)
    file, named = _FILE.match(after), list(_FILE.finditer(before, begin))
    if file and named:
        return before[: named[-1].start()] + file[0] + before[named[-1].end() :] + after[file.end() :]
    if _COMMAND.match(after):
        return before[:begin] + after
    if renamed := _with_called_file(before, after, there):
        return renamed
    is_phrase = re.match(rf"{_DETERMINER}\s", after, re.IGNORECASE)
    return (_with_phrase if is_phrase else _with_word)(before, begin, after)


def replace_same_kind(before: str, begin: int, after: str) -> str | None:
    """Returns a request with another day, month, number, or phrase with the same preposition; None if it has none.

    Args:
        before: the request.
        begin: where the sentence begins that may change.
        after: what is meant instead.
    """
    words = after.strip(" .?!")
    if preposition := _WITH_PREPOSITION.match(words):
        found = list(re.finditer(rf"\b{preposition[0]}\b", before[begin:], re.IGNORECASE))
        return before[: begin + found[-1].start()] + words if found else None
    for kind in _KINDS:
        if kind.fullmatch(words) and (found := list(kind.finditer(before, begin))):
            return before[: found[-1].start()] + words + before[found[-1].end() :]
    return None


def _with_phrase(before: str, begin: int, after: str) -> str | None:
    """The request with another noun phrase; a command without one goes on with it."""
    if found := _phrase(before, begin, after):
        further = _FURTHER.search(after)
        meant, rest = (after[: further.start()], after[further.start() :]) if further else (after, "")
        return before[: found.start()] + meant.rstrip(" .?!") + _rest(before, found) + rest
    if pronoun := _PRONOUN.search(before, begin):
        return before[: pronoun.start()] + after
    return None if _QUESTION.match(before, begin) else f"{before} {after}"


def _with_word(before: str, begin: int, after: str) -> str | None:
    """The command with another last word; the question with another name, or another thing counted."""
    if phrase := _phrase(before, begin, after, must_be_similar=True):
        return before[: phrase.start(1)] + after.strip(" .?!") + _rest(before, phrase)
    if not _QUESTION.match(before, begin):
        return replace_same_kind(before, begin, after) or _LAST_WORD.sub("", before) + after
    is_name = after[:1].isupper() and _NAME.search(before, begin)
    found = list((_NAME if is_name else _COUNTED).finditer(before, begin))
    if not found or " " in after.strip():
        return replace_same_kind(before, begin, after)
    start, end = found[-1].span(0 if is_name else 1)
    return before[:start] + after.strip(" .?!") + before[end:]


def _rest(before: str, phrase: re.Match[str]) -> str:
    rest = before[phrase.end() :]
    return f" {rest}" if rest else ""


def _phrase(before: str, begin: int, after: str, *, must_be_similar: bool = False) -> re.Match[str] | None:
    """The noun phrase that a correction replaces: one with a word of it, else the last unless it must be similar."""
    words = set(_WORD.findall(after.lower())) - {"the", "a", "an", "my", "our", "your", "his", "her", "its", "their"}
    phrases = list(_PHRASE.finditer(before, begin))
    similar = [one for one in phrases if words & set(_WORD.findall(one[1].lower()))]
    return next(iter(similar or ([] if must_be_similar else phrases[-1:])), None)


def _with_other_file(before: str, there: Sequence[Resource]) -> str | None:
    """The request with the other of two files, if it names one of them."""
    if len(there) != 2:  # noqa: PLR2004  # "the other one" is one of two
        return None
    for one, other in (there, there[::-1]):
        if (found := _mention(before, one)) and not _mention(before, other):
            return before[: found[0]] + other.names[0] + before[found[1] :]
    return None


def _with_called_file(before: str, after: str, there: Sequence[Resource]) -> str | None:
    """The request with another file, if request and correction call files by words of their names."""
    meant = [one for one in there if _mention(after, one)]
    others = [one for one in there if one not in meant and _mention(before, one)]
    if len(meant) != 1 or len(others) != 1 or not (found := _mention(before, others[0])):
        return None
    return before[: found[0]] + meant[0].names[0] + before[found[1] :]


def _mention(words: str, resource: Resource) -> tuple[int, int] | None:
    """Where words name a file, wholly or by a word of its name."""
    name = words.lower().find(resource.names[0])
    if name >= 0:
        return name, name + len(resource.names[0])
    stem = set(_WORD.findall(resource.names[0].rpartition(".")[0]))
    found = (match for match in _WORD.finditer(words) if match[0].lower() in stem)
    return next((match.span() for match in found), None)

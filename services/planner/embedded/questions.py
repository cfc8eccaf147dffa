"""The questions a stretch of a request asks, in the user's words, without what leads up to them or follows."""

import re
from collections.abc import Iterator, Sequence

from services.planner.embedded.clauses import PREPOSITION
from services.planner.embedded.languages import PATTERN as LANGUAGE
from services.planner.embedded.patterns import LIKELY, Lexicon, Match
from services.planner.embedded.wording import MARKED
from services.planner.task_spec import Modality, Spec

_LEADING = 3
"""Characters within which words that call for a task begin a question."""

_ASKING = r"(?:what|who|whom|whose|where|when|why|which|how|whether|whoever|whatever|whats|wheres|whos)(?:'s|'re)?"
_FORM = r"(?:is|are|was|were|does|do|did|has|have|must|am)(?:n't)?"
_START = re.compile(rf"(?:{PREPOSITION}\s+)?{_ASKING}\b(?!\s+(?:it|that)\s+(?:all\s+)?(?:says|sings)\b)")
_FORMED = re.compile(rf"{_FORM}\s+[\w{MARKED[1:-1]}]|(?:can|could|would|will|should)\s+(?!(?:you|u|we|i)\b)\w")
_LEAD = re.compile(
    r"(?:^|[.,;:!?()–—\n]\s*|\b(?:and|but|then|or|tell\s+me|ask|know|also)\s+)(?:(?:and|then|also|please|so|besides)\s+)*"
)
_NEXT = re.compile(
    rf"\s*(?:,\s*(?:and\s+)?|\s+and\s+)(?=(?:{PREPOSITION}\s+)?{_ASKING}\b|(?:is|are|was|were|does|do|did|can|could|may|must|should|will)\s+(?:i|we|it|he|she|they|the|there|this|any)\b)"
)
_TURN = (
    r"please|pls|plz|thanks?|thx|see|say|tell|answer|reply|read|speak|spoken|aloud|out\s+loud|told|voice|give|put|send|write|translate|draw|paint|make|list"
    r"|also|then|could\s+you|can\s+you|would\s+you|i\s+(?:need|want)|i'd|no\s+\w+|both\b|show|turn|describe|summari[sz]e|use|add"
)
_OVER = re.compile(
    r"\s*[?;\n]|\s*(?<!\bmrs)(?<!\bmr)(?<!\bms)(?<!\bdr)(?<!\bprof)(?<!\bst)[.!](?=\s|$)|\s*\(|\s+[–—-]+\s+"
    rf"|\s*,?\s+(?:and\s+|but\s+)*(?:then\s+)?(?:{_TURN})\b"
    rf"|\s*,\s*(?:according\s+to|going\s+by|based\s+on|judging\s+by|it's|its\s+|as\s+(?:an?\s+)?(?:audio|speech|spoken))\b"
    rf"|\s*,?\s+(?:and\s+)?(?:in|into)\s+(?:{LANGUAGE})\b"
    r"|\s*:\s"
)
_PLAIN_TURN = re.compile(rf"\s+(?:{_TURN})\b")
_NOUNS = re.compile(r"(?:^|(?<=[.;:?!\n])|,\s+and\s+)\s*(?:and\s+)?([^.;:?!,\n][^.;:?!\n]{2,80})\?")
COURTESY = re.compile(
    r"(?:[\s,]+(?:please|pls|plz|thanks?|thx|cheers|thank\s+you|do\s+you\s+know|any\s+idea|i\s+wonder))+(?=\W*$)",
    re.IGNORECASE,
)
"""Words behind a question that are no part of it."""

_EDGES = " ,.:;?!\n\t"
_PLEASE = re.compile(r"^(?:please|pls|plz)\s+", re.IGNORECASE)
_SAID = re.compile(r"[^\W\d_]{3,}")
_WISH = re.compile(r"(?:can|could|would|will|may)\s+(?:you|u|i|we)\b|(?:please|pls|ok|right|and)\b")
NO_CONTENT = re.compile(
    rf"(?:{PREPOSITION}\s+)?{_ASKING}(?:\s+(?:much|many|long|old|big|far|often|time|day|date|one))?(?:\s+{_FORM})?"
    rf"(?:\s+(?:it|that|this|they|those|these)(?:\s+{_FORM})?)?(?:\s+(?:be|costs?|in\s+total|exactly|again|please|then|there|here))*"
)
"""A question whose words do not say what it is about: "how much", "what was that"."""

_NEED = re.compile(
    r"(?:(?:i|we)(?:'m|'d)?\s+)?(?:(?:just|only|really)\s+)?(?:need|want|looking\s+for|about|regarding)\s+"
)
_LOOK_UP = re.compile(r"(?:please\s+)?(?:look\s+up|find(?:\s+out)?)\s+(?=the\b|his\b|her\b|my\b)", re.IGNORECASE)
_FILE = re.compile(
    rf"(?<!\bis)(?<!\bare)(?<!\bwas)(?<!\bwere)\s+(?:in|on|of|from)\s+(?:the\s+(?:file|photo|picture|scan)\s+)?{MARKED}+$"
)


def find_questions(text: str, masked: str, lexicon: Lexicon, spec: Spec) -> list[str]:
    """The questions in the words, but for those another task is for; none if there is no question word."""
    spans: list[tuple[int, int]] = []
    at = 0
    while (start := _beginning(masked, at)) is not None:
        end = _end(masked, start)
        spans += [(one, last) for one, last in _several(masked, start, end) if masked[one:last].strip()]
        at = max(end, start + 1)
    spans = list(_with_topics(masked, spans))
    spans += [span for span in _nouns(masked) if not any(start < span[1] and span[0] < end for start, end in spans)]
    if len(spans) == 1:
        return [_written(text, *spans[0])]
    there = {port.modality for port in spec.inputs} - {Modality.TEXT}
    own = [span for span in spans if not _others(lexicon.find(masked, *span, there), span[0], spec)]
    return [_written(text, *span) for span in sorted(own or spans)]


def _with_topics(masked: str, spans: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The spans of questions; one that does not say what it is about begins with the words before it."""
    before = 0
    for start, end in spans:
        if NO_CONTENT.fullmatch(masked[start:end].strip(_EDGES)) and _SAID.search(masked, before, start):
            need = _NEED.match(masked, before)
            yield need.end() if need else before, end
        else:
            yield start, end
        before = end


def _nouns(masked: str) -> Iterator[tuple[int, int]]:
    """Questions without a verb: "total? due date?"."""
    for found in _NOUNS.finditer(masked):
        if not _WISH.match(found[1]):
            yield found.start(1), found.end(1)


def part(words: str) -> str:
    """The object of words that are no question: "the total", without the words after it."""
    lead = _LOOK_UP.match(words)
    start = lead.end() if lead else 0
    end = _end(words.lower(), start) if len(words.lower()) == len(words) else len(words)
    return COURTESY.sub("", words[start:end].strip(" ,.:;")) or words


def _others(found: Sequence[Match], start: int, spec: Spec) -> bool:
    """Whether a question is one that another task is for."""
    leading = [hit for hit in found if hit.weight >= LIKELY and hit.start <= start + _LEADING]
    return bool(leading) and not any(spec.name in hit.tasks for hit in leading)


def _written(text: str, start: int, end: int) -> str:
    words = _PLEASE.sub("", COURTESY.sub("", text[start:end].strip(" ,.:;\n\t")))
    mark = "?" if text[end:].lstrip()[:1] == "?" and not words.endswith("?") else ""
    return words[:1].upper() + words[1:] + mark


def _beginning(masked: str, at: int) -> int | None:
    worded = _START.search(masked, at)
    while worded and worded.start() and masked[worded.start() - 1] not in " ,.:;(\n?!\"'-—–":
        worded = _START.search(masked, worded.end())
    for lead in _LEAD.finditer(masked, at):
        if worded and lead.end() > worded.start():
            break
        if _FORMED.match(masked, lead.end()) and "?" in masked[lead.end() : lead.end() + 300]:
            return lead.end()
    return worded.start() if worded else None


def _end(masked: str, start: int) -> int:
    over = start + 4
    for found in _OVER.finditer(masked, start + 4):
        if _PLAIN_TURN.match(found.group()) and "," not in found.group() and " and " not in found.group():
            continue
        over = found.start()
        break
    else:
        over = len(masked)
    file = _FILE.search(masked, start, over)
    return file.start() if file else over


def _several(masked: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    at = start
    for following in _NEXT.finditer(masked, start + 4, end):
        yield at, following.start()
        at = following.end()
    yield at, end

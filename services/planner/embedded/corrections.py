"""Applies a correction within a message: "the invoice date, no wait, the due date" means the due date."""

import re
from dataclasses import replace

from services.planner.request import Request

_MARKER = re.compile(
    r"\s*(?:[,;–—]|\.{3}|…|\s-+)\s*(?:oh[,\s]+|wait[,\s]+)*"
    r"(?:(?:(?:no|nope|actually no|sorry)[,\s]+(?:wait|sorry|actually|i meant?)\b|sorry(?=,)"
    r"|(?:scratch that|i meant?|or rather|actually,? no|make that)\b)[,:\s]*)+(?:just\s+)?",
    re.IGNORECASE,
)
_TRAILING = re.compile(r"[,\s]+(?:i meant?|instead|please)\s*(?=[.?!]*$)", re.IGNORECASE)
_DETERMINER = re.compile(r"(?:the|a|an|my|our|your|his|her|its|their)\s", re.IGNORECASE)
_COMMAND = re.compile(
    r"(?:what|who|where|when|why|which|how|is|are|does|read|summari[sz]e|make|turn|rotate|convert|count|find|tell|show"
    r"|give|translate|save|crop|resize|blur|describe|transcribe|extract|remove|list)\b",
    re.IGNORECASE,
)
_SENTENCE_START = re.compile(r".*(?:[.?!\n]\s+|^)", re.DOTALL)
_FILE = re.compile(r"[\w-]+\.[a-z]\w{1,3}\b", re.IGNORECASE)
_LAST_WORD = re.compile(r"\S+\s*$")
_LONGEST = 300
"""Characters of a message that is corrected within."""


def apply_correction(request: Request) -> Request:
    """The request with the corrected words of its last message replaced."""
    text = request.text
    marker = _MARKER.search(text) if len(text) <= _LONGEST else None
    if marker is None or not text[: marker.start()].strip() or not text[marker.end() :].strip():
        return request
    before, after = text[: marker.start()], _TRAILING.sub("", text[marker.end() :])
    last = replace(request.conversation[-1], text=_corrected(before, after))
    return replace(request, conversation=(*request.conversation[:-1], last))


def _corrected(before: str, after: str) -> str:
    start = _SENTENCE_START.match(before)
    begin = start.end() if start else 0
    file, named = _FILE.match(after), list(_FILE.finditer(before, begin))
    if file and named:
        return before[: named[-1].start()] + file[0] + before[named[-1].end() :] + after[file.end() :]
    if _COMMAND.match(after):
        return before[:begin] + after
    if determiner := _DETERMINER.match(after):
        first = re.compile(rf"\b{determiner[0].strip()}\s", re.IGNORECASE).search(before, begin)
        return (before[: first.start()] if first else before + " ") + after
    return _LAST_WORD.sub("", before) + after

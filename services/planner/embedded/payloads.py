"""Content that was pasted without quotation marks: after a colon, or in paragraphs next to the request."""

import re
from collections.abc import Iterator

from services.planner.embedded.languages import NAME as LANGUAGE
from services.planner.embedded.patterns import CERTAIN, WEAK, Lexicon
from services.planner.embedded.wording import MARKED, Wording
from services.planner.task_spec import Modality

LONGEST_HEAD = 400
"""Characters of a line that introduces content."""

SHORTEST_PASTE = 80
"""Characters of a paragraph that is content by its length alone."""

_COLON = re.compile(r":(?:\s+|(?=\w*\n))")
_SENTENCE_START = re.compile(r"(?:^|[.!?]\s+|\n\s*)")
_LIST = re.compile(r"\s*(?:\d+[.)]|[-*•])\s")
_FURTHER = re.compile(
    r"(?:[.!?]\s+|\n\s*)(?=(?:and\s+)?(?:then|after\s+that|afterwards|finally|next|also|please|once\s+(?:done|that))\b)"
)
_POINTS = re.compile(r"(?:following|below|above|this|these)\b")
_QUESTIONS = re.compile(r"\bquestions\b|\b(?:answer|tell\s+me|know)\s*$")
_PARAGRAPH = re.compile(r"\n\s*\n|\n")


def with_pasted(wording: Wording, lexicon: Lexicon) -> Wording:
    """The wording with pasted content masked as well; there is at most one such stretch."""
    return _Paste(wording, lexicon).found()


_QUOTATIONS = re.compile(rf"(?=.*{MARKED})(?:[\W\d]|\b(?:and|or|vs|versus|[a-z])\b)+", re.DOTALL)
"""Quotations alone, numbered perhaps: each is content of its own."""


class _Paste:
    def __init__(self, wording: Wording, lexicon: Lexicon) -> None:
        self._wording = wording
        self._masked = wording.masked
        self._lexicon = lexicon

    def found(self) -> Wording:
        for start, end in (*self._after_colon(), *self._paragraphs()):
            return self._wording.with_payload(start, end)
        return self._wording

    def _after_colon(self) -> Iterator[tuple[int, int]]:
        colon = _COLON.search(self._masked, 0, LONGEST_HEAD)
        if colon is None:
            return
        head = self._masked[self._head_start(colon.start()) : colon.start()]
        tail = self._masked[colon.end() :]
        weight = WEAK if _POINTS.search(head) else CERTAIN
        about_text, has_cue = self._about_text(head), bool(self._cues(head, Modality.TEXT, weight))
        if _QUESTIONS.search(head) and "?" in tail:
            return
        if not (about_text or has_cue) or len(tail.split()) < 1 or re.match(MARKED, tail.lstrip()):
            return
        if not has_cue and self._cues(_first_sentence(tail)):
            return
        if _LIST.match(tail) and self._cues(tail):
            return
        end = colon.end() + self._length(tail, cued=has_cue)
        if self._masked[colon.end() : end].strip() and not _QUOTATIONS.fullmatch(self._masked, colon.end(), end):
            yield colon.end(), end

    def _length(self, tail: str, *, cued: bool) -> int:
        """How much of what follows the colon is content: what asks for more is not."""
        asks_for_more = True  # until some rest has no cue: then no shorter one has any
        for further in _FURTHER.finditer(tail):
            rest = tail[further.end() :]
            asks_for_more = asks_for_more and self._cues(rest)
            if asks_for_more or LANGUAGE.search(_first_sentence(rest)):
                return further.start() + 1
        if not cued:
            starts = [start.end() for start in _SENTENCE_START.finditer(tail)][1:]
            for start in starts:
                if self._cues(_first_sentence(tail[start:])):
                    return start
        return len(tail)

    def _paragraphs(self) -> Iterator[tuple[int, int]]:
        breaks = [found.span() for found in _PARAGRAPH.finditer(self._masked)]
        if not breaks:
            return
        (first_end, rest_start), (rest_end, last_start) = breaks[0], breaks[-1]
        first, last = self._masked[:first_end], self._masked[last_start:]
        if self._instructs(first, self._masked[rest_start:]):
            yield rest_start, len(self._masked)
        elif self._instructs(last, self._masked[:rest_end]):
            yield 0, rest_end

    def _instructs(self, line: str, rest: str) -> bool:
        """Whether a line asks for something to be done with the rest of the words."""
        if len(line) > LONGEST_HEAD or not self._cues(line, Modality.TEXT) or re.search(MARKED, line):
            return False
        if any(len(other) < SHORTEST_PASTE and self._cues(other) for other in _PARAGRAPH.split(rest)):
            return False
        return len(rest) >= SHORTEST_PASTE or bool(_POINTS.search(line))

    def _about_text(self, head: str) -> bool:
        last = head.rstrip().rpartition(" ")[2]
        return bool(self._lexicon.nouns[Modality.TEXT].fullmatch(last)) or last in {"following", "this"}

    def _cues(self, words: str, modality: Modality | None = None, weight: int = CERTAIN) -> bool:
        at_hand = {modality} if modality else None
        return any(match.weight >= weight for match in self._lexicon.find(words, 0, len(words), at_hand))

    def _head_start(self, colon: int) -> int:
        return max(start.end() for start in _SENTENCE_START.finditer(self._masked, 0, colon))


def _first_sentence(words: str) -> str:
    return re.split(r"(?<=[.!?])\s|\n", words.lstrip(), maxsplit=1)[0]

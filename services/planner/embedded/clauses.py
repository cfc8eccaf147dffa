"""Clauses of a request: stretches that ask for something, each with the words that call for its tasks."""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from services.planner.embedded.patterns import CERTAIN, LIKELY, Lexicon, Match, resolved
from services.planner.embedded.wording import MARKED, Mention, Payload, Wording
from services.planner.task_spec import Modality

LONGEST = 2_000
"""Characters of one sentence that are looked at; what is longer is no instruction."""

MOST = 20_000
"""Characters of all sentences that are looked at."""

_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]]*(?:\s+|(?=" + MARKED + r"))|\s*\n+\s*|;\s+")
_NO_END = re.compile(r"(?:\b(?:e\.g|i\.e|etc|vs|mr|mrs|ms|dr|prof|no|st|approx|fig)\.|^\s*\d+[.)])\s*$")
_SEQUENCE = (
    r"then|next|finally|lastly|afterwards|after\s+(?:that|this|which|doing\s+(?:so|that))|subsequently|thereafter"
    r"|followed\s+by|once\s+(?:that\s+is\s+)?done"
)
_JOINT = re.compile(
    rf"(?:\s*(?:[,:–—&]|\s-\s|\(\d{{1,2}}\)|(?<!\w)\d{{1,2}}\))\s*|\s+(?={MARKED}*and\b)|\s*\b(?:and|but|plus|also|as\s+well\s+as|along\s+with"
    rf"|together\s+with|additionally|in\s+addition|{_SEQUENCE})\b\s*)+"
)
_SEQUEL = re.compile(rf"\b(?:{_SEQUENCE}|based\s+on\s+(?:that|this|it|the\s+\w+)|using\s+(?:that|the\s+\w+))\b")
_ENUMERATED = re.compile(r"^\s*(?:\d+[.)]|[-*•])\s+")
_NEGATED = re.compile(
    r"\b(?:don't|do not|does not|without|no need (?:to|for)|instead of|rather than|never) (?:\w+ ){0,2}$"
    r"|(?<!why )\b(?:no|not|nor) (?:(?:an?|the|any|further|more) )?$"
)
_BEFORE = re.compile(r"\W*before\b(?!\s+(?:that|this|noon|the\s+\w+$))")
_LEAD_IN = re.compile(
    r"\W*(?:based on|according to|judging by|from|in|using|given|looking at|going by|after|once|when)\b"
)
"""How words begin that a question may follow."""

_WANTED = re.compile(r"\b(?:needs?|wants?|like|please|to be|can you|could you)\b")
PREPOSITION = r"(?:by|in|on|at|to|from|for|until|till|since|under|with|of|about|after|before)"
"""A preposition that a question may begin with."""

_ASKING = r"(?:what|who|whom|whose|where|when|why|which|how)"
_QUESTION = re.compile(
    rf"(?:(?:{PREPOSITION}\s+)?{_ASKING}(?:'?s|'?re)?|(?:is|are|was|were|does|did|do(?=\s+(?:you|they|we|i|these|those|people)\b)|has|have|can"
    r"|could|would|should|will)(?:n'?t)?)\b"
)
_ASKED_FOR = re.compile(
    rf"(?:(?:please\s+)?(?:(?:tell|show|telling|showing)\s+(?:me|us)|let\s+(?:me|us)\s+know|(?:i|we)(?:'d|\s+would)?\s+(?:like|want|need|have)\s+to"
    r"\s+(?:know|find\s+out)|do\s+you\s+know|(?:check|find\s+out|figure\s+out|look\s+up|work\s+out)(?:\s+for\s+me)?"
    r"|(?:checking|finding\s+out|looking\s+up)|any\s+idea|(?:i|we)\s+wonder|(?:i\s+was\s+|just\s+)?wondering)[\s,:]+)+"
    rf"(?=(?:{PREPOSITION}\s+)?{_ASKING}(?:'?s)?\s+\w)"
)
"""Words before a question in a statement: "tell me when it is due"."""

_RELATIVE = re.compile(rf"(?:{PREPOSITION}\s+)?(?:which|where|who|whom|whose|when)\b")
_SUBJECT = (
    r"(?:i|we|you|he|she|it|they|there|(?:any|some)(?:one|body|thing)?|the|this|that|these|those"
    r"|my|our|your|his|her|its|their)"
)
_FINITE = r"(?:is|are|was|were|do|does|did|has|have|had|can|could|would|should|will|must|may|am)(?:n'?t)?"
_INVERTED = re.compile(
    rf"(?:{PREPOSITION}\s+)?(?:which|where|who|whom|whose|when)\s+(?:[\w-]+\s+){{0,3}}?{_FINITE}\s+{_SUBJECT}\b"
)
"""A question that is no relative clause, since its verb precedes its subject: "which number do I ring"."""

_AUXILIARY = re.compile(rf"{_FINITE}\s")
_AUXILIARY_AND_SUBJECT = re.compile(rf"{_FINITE}\s+{_SUBJECT}\b")
_SUBORDINATE = re.compile(rf"(?:when|while|since|what|where|how)\s+(?:an?|{_SUBJECT})\b|how\s+\w+\s*(?=[,.!]|$)")
"""Beginning of a clause or of an exclamation, unless a question mark follows."""

_LOOKBACK = 10
"""Characters before a stretch in which the sentence before it may end."""

_MARK = re.compile(r"[.!?](?!\w)")
_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
_FEWEST_QUESTION_WORDS = 3
_SHORT_QUESTION = re.compile(r"(?:what|who|where|when|why|which|how)\s+[\w'-]+\s*\?")
_PICKS = re.compile(r"\b(?:first|second|third|fourth|fifth|last|other)\b")
_EDGES = " .,:;!?"


@dataclass(frozen=True, slots=True)
class Clause:
    """A stretch of the request that asks for something."""

    start: int
    end: int
    words: str
    """As they were written, without what leads in and out."""
    masked: str
    sequel: bool
    """Whether it follows what precedes it."""
    matches: tuple[Match, ...]
    mentions: tuple[Mention, ...]
    payloads: tuple[Payload, ...]
    named: frozenset[Modality]
    """Modalities whose nouns or files it contains."""
    asks: bool
    """A question."""
    results: tuple[Match, ...] = ()
    """Words that would call for a task but mean its result: "the sketch"."""

    @property
    def masks(self) -> tuple[Mention, ...]:
        """The files it names that are called masks."""
        return tuple(mention for mention in self.mentions if "mask" in mention.name)

    def says(self, pattern: re.Pattern[str]) -> bool:
        return bool(pattern.search(self.masked))


@dataclass(frozen=True, slots=True)
class Stretch:
    """A piece of the words between two joints."""

    start: int
    end: int
    sequel: bool
    leads: bool
    """A question may begin here: at the beginning, after "and" or a colon, after a question or what one is based on."""


Find = Callable[[int, int, Collection[Modality] | None], list[Match]]


class Reader:
    """Finds the clauses of one wording, with what calls for tasks found by `find`."""

    def __init__(self, wording: Wording, lexicon: Lexicon, find: Find) -> None:
        self._wording = wording
        self._lexicon = lexicon
        self._find = find
        self.refused: set[str] = set()
        """Tasks that the words exclude, at least once."""

    def clauses(self, start: int, end: int, at_hand: Collection[Modality]) -> list[Clause]:
        """The clauses of one sentence; those without a match ask for something nothing is known for."""
        matches = self._matches(start, end, at_hand)
        groups: list[tuple[Stretch, list[Stretch], list[Match]]] = []
        leading: list[Stretch] = []
        for stretch in self._stretches(start, end, matches):
            within = [match for match in matches if stretch.start <= match.start < stretch.end]
            within = _strongest(within) or self._overlooked(stretch)
            if within or (self.requests(stretch) and not self._aside(stretch)):
                groups.append((stretch, [*leading, stretch], within))
                leading = []
            elif self._aside(stretch) and not _PICKS.search(self._core(stretch)):
                continue
            elif groups:
                groups[-1][1].append(stretch)
            else:
                leading.append(stretch)
        if len(groups) > 1 and _BEFORE.match(self._wording.masked, groups[0][0].start):
            groups[:2] = reversed(groups[:2])
        return [self._clause(main, stretches, within) for main, stretches, within in groups]

    def requests(self, stretch: Stretch) -> bool:
        """Whether it asks for something, by its form."""
        words = self._core(stretch)
        if self._lexicon.verb.match(words):
            return len(_WORD.findall(words)) > 1 or bool(re.search(MARKED, words))
        return self._questions(stretch)

    def _aside(self, stretch: Stretch) -> bool:
        words = self._core(stretch).strip(_EDGES)
        means_file = any(
            mention.resource and stretch.start <= mention.start < stretch.end for mention in self._wording.mentions
        )
        return bool(self._lexicon.aside.fullmatch(words)) and not means_file

    def _questions(self, stretch: Stretch) -> bool:
        words = self._core(stretch)
        if _ASKED_FOR.match(words):
            return True
        long_enough = len(_WORD.findall(words)) >= _FEWEST_QUESTION_WORDS or _SHORT_QUESTION.match(words)
        if not (_QUESTION.match(words) and long_enough):
            return False
        stated = _SUBORDINATE.match(words) or (_AUXILIARY.match(words) and not _AUXILIARY_AND_SUBJECT.match(words))
        if stated and self._stated(stretch):
            return False
        return stretch.leads or not _RELATIVE.match(words) or bool(_INVERTED.match(words))

    def _stated(self, stretch: Stretch) -> bool:
        """Whether it begins a sentence that ends in a full stop or exclamation mark."""
        masked = self._wording.masked
        before = masked[max(0, stretch.start - _LOOKBACK) : stretch.start].rstrip()
        mark = _MARK.search(masked, stretch.start)
        return mark is not None and mark.group() != "?" and (not before or before[-1] in ".!?")

    def _core(self, stretch: Stretch) -> str:
        words = _ENUMERATED.sub("", self._wording.masked[stretch.start : stretch.end])
        return words[self._lexicon.polite.match(words).end() :] if words else ""  # type: ignore[union-attr]  # it matches nothing, too

    def _matches(self, start: int, end: int, at_hand: Collection[Modality]) -> list[Match]:
        found = [match for match in self._find(start, end, at_hand) if self._meant(match, start)]
        return resolved(found)

    def _overlooked(self, stretch: Stretch) -> list[Match]:
        """What it would call for if what it needs were at hand."""
        if not self.requests(stretch) or self._questions(stretch):
            return []
        found = self._find(stretch.start, stretch.end, None)
        return resolved([match for match in found if match.weight >= CERTAIN and self._meant(match, stretch.start)])

    def _meant(self, match: Match, start: int) -> bool:
        before = self._wording.masked[start : match.start]
        if _NEGATED.search(before):
            self.refused.update(match.tasks)
            return False
        joints = [joint.end() for joint in _JOINT.finditer(before)]
        piece = before[joints[-1] if joints else 0 :]
        given = self._lexicon.context.match(piece) and not _WANTED.search(piece)
        return not given or bool(self._lexicon.verb.match(self._wording.masked, match.start))

    def _stretches(self, start: int, end: int, matches: Sequence[Match]) -> Iterator[Stretch]:
        masked, at, sequel, leads = self._wording.masked, start, False, True
        for joint in _JOINT.finditer(masked, start, end):
            inside = any(match.start < joint.end() and joint.start() < match.end for match in matches)
            between_marks = (
                joint.start() > start
                and re.match(MARKED, masked[joint.start() - 1 : joint.start()])
                and re.match(rf"\s*{MARKED}", masked[joint.end() : end])
            )
            if inside or between_marks:
                continue
            if masked[at : joint.start()].strip():
                stretch = Stretch(at, joint.start(), sequel or self._sequel(at, joint.start()), leads)
                yield stretch
                sequel, leads = False, bool(_LEAD_IN.match(masked, at, joint.start())) or self._questions(stretch)
            at = joint.end()
            sequel = sequel or bool(_SEQUEL.search(joint.group()))
            leads = leads or "and" in joint.group() or ":" in joint.group()
        if masked[at:end].strip():
            yield Stretch(at, end, sequel or self._sequel(at, end), leads)

    def _sequel(self, start: int, end: int) -> bool:
        return bool(_SEQUEL.search(self._wording.masked, start, min(end, start + 40)))

    def _clause(self, main: Stretch, stretches: Sequence[Stretch], matches: Sequence[Match]) -> Clause:
        start, end = stretches[0].start, stretches[-1].end
        masked = self._wording.masked[start:end]
        return Clause(
            start=start,
            end=end,
            words=self._tidy(start, end),
            masked=masked,
            sequel=any(stretch.sequel for stretch in stretches),
            matches=tuple(matches),
            mentions=tuple(mention for mention in self._wording.mentions if start <= mention.start < end),
            payloads=tuple(payload for payload in self._wording.payloads if start <= payload.start < end),
            named=self._lexicon.named(masked),
            asks=self._questions(main),
        )

    def states(self, start: int, end: int) -> bool:
        """Whether a sentence states something that a question could be about, not what was sent or requested."""
        words = self._core(Stretch(start, end, sequel=False, leads=True))
        aside = self._lexicon.aside.fullmatch(words.strip(_EDGES))
        return not (aside or self._lexicon.context.match(words) or re.search(MARKED, words))

    def _tidy(self, start: int, end: int) -> str:
        words = self._wording.text[start:end]
        lead = _ENUMERATED.match(words)
        words = words[lead.end() :] if lead else words
        polite = self._lexicon.polite.match(words.lower()) if len(words.lower()) == len(words) else None
        words = words[polite.end() :] if polite else words
        return words.strip(" \t\n,;:–—-").rstrip(".").strip()


def _strongest(matches: Sequence[Match]) -> list[Match]:
    """Without weak matches, unless there are only weak ones."""
    return [match for match in matches if match.weight >= LIKELY] or list(matches)


def pieces(masked: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The stretches between all joints of a sentence, and the whole of it."""
    at = start
    for joint in _JOINT.finditer(masked, start, end):
        if masked[at : joint.start()].strip():
            yield at, joint.start()
        at = joint.end()
    if at > start and masked[at:end].strip():
        yield at, end
    yield start, end


def sentences(masked: str) -> Iterator[tuple[int, int]]:
    """Spans of the sentences; content is masked, so that its full stops end none."""
    at = looked_at = 0
    for start, end in _stops(masked):
        if start > at and looked_at < MOST and masked[at:start].strip():
            last = min(start, at + LONGEST)
            looked_at += last - at
            yield at, last
        at = end


def _stops(masked: str) -> Iterator[tuple[int, int]]:
    """Spans between sentences, and the end."""
    at = 0
    for stop in _SENTENCE_END.finditer(masked):
        abbreviated = _NO_END.search(masked[at : stop.end()][-12:]) and "\n" not in stop.group()
        if not abbreviated:
            at = stop.end()
            yield stop.span()
    yield len(masked), len(masked)

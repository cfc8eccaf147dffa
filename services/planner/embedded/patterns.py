"""Which words call for which standard task: the patterns of patterns.json, compiled once.

In a pattern a space matches any white space, "~" between words for up to three words that are no conjunction,
{name} for an entry of "words", {language} for any language, and <image>, <audio>, <video>, <text>, <table>, <pdf> and
<quote> for a masked file name or content.
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from services.planner.embedded.languages import PATTERN as LANGUAGE
from services.planner.embedded.wording import MARKED, MARKS, PDF_MARK, QUOTE_MARK
from services.planner.task_spec import Modality

CERTAIN, LIKELY, WEAK = 3, 2, 1
"""Weights: the words mean a task; they usually do; they do if nothing else is meant."""

_MASKS = {
    "<image>": f"[{MARKS[Modality.IMAGE]}{PDF_MARK}]+",
    "<audio>": f"{MARKS[Modality.AUDIO]}+",
    "<video>": f"{MARKS[Modality.VIDEO]}+",
    "<text>": f"{MARKS[Modality.TEXT]}+",
    "<table>": f"{MARKS[Modality.TABLE]}+",
    "<pdf>": f"{PDF_MARK}+",
    "<quote>": f"{QUOTE_MARK}+[.]?",
}
_WORD = r"(?:(?!(?:and|then|or)\b)(?:[\w'-]|" + MARKED + ")+)"
_MODALITIES = {modality.name.lower(): modality for modality in Modality} | {"page": Modality.IMAGE}


@dataclass(frozen=True, slots=True)
class Match:
    """Words that call for a task."""

    start: int
    end: int
    tasks: tuple[str, ...]
    """By preference: the first that is offered is meant."""
    weight: int
    aspect: str = ""
    """Distinguishes uses of one task, such as sentiment and language."""
    offered: bool = True

    @property
    def rank(self) -> tuple[int, bool, int]:
        return self.weight, self.offered, self.end - self.start

    def overlaps(self, other: "Match") -> bool:
        return self.start < other.end and other.start < self.end


@dataclass(frozen=True, slots=True)
class Cue:
    tasks: tuple[str, ...]
    weight: int
    aspect: str
    when: frozenset[Modality]
    """Only where one of these is at hand; empty: anywhere."""
    pattern: re.Pattern[str]

    def applies(self, at_hand: Collection[Modality]) -> bool:
        return not self.when or not self.when.isdisjoint(at_hand)


@dataclass(frozen=True, slots=True)
class Lexicon:
    cues: tuple[Cue, ...]
    nouns: Mapping[Modality, re.Pattern[str]]
    """What a request calls the things of each modality."""
    page: re.Pattern[str]
    """What it calls a document that may be a picture, a PDF or a text."""
    chat: re.Pattern[str]
    """A whole message that is small talk."""
    small_talk: Mapping[str, re.Pattern[str]]
    """Parts of such a message by kind, the kind that an answer is most needed for first."""
    verb: re.Pattern[str]
    """The beginning of a command."""
    polite: re.Pattern[str]
    """Words before the beginning; matches the empty text, too."""
    context: re.Pattern[str]
    """The beginning of a sentence that says what there is."""
    aside: re.Pattern[str]
    """What asks for nothing."""
    results: Sequence[tuple[re.Pattern[str], Collection[str]]]
    """What a request calls the outputs of which tasks."""
    prompted: frozenset[str]
    """Tasks whose text describes what is to be made."""
    instructed: frozenset[str]
    """Tasks whose text is the request itself."""
    common: frozenset[str]
    """Words every English request is made of."""
    generic: frozenset[str]
    """Stems of words that distinguish no tasks."""

    def find(self, masked: str, start: int, end: int, at_hand: Collection[Modality] | None) -> list[Match]:
        """All matches within a stretch; at_hand None lets every cue apply."""
        return [
            Match(hit.start(), hit.end(), cue.tasks, cue.weight, cue.aspect)
            for cue in self.cues
            if at_hand is None or cue.applies(at_hand)
            for hit in cue.pattern.finditer(masked, start, end)
        ]

    def named(self, masked: str) -> frozenset[Modality]:
        """Modalities whose nouns or files the words contain."""
        return frozenset(modality for modality, noun in self.nouns.items() if noun.search(masked))


@cache
def lexicon() -> Lexicon:
    data = json.loads((files("services.planner.embedded") / "patterns.json").read_text(encoding="utf-8"))
    words: dict[str, str] = data["words"]
    cues = tuple(
        Cue(
            tasks=tuple(cue["tasks"]),
            weight=cue["weight"],
            aspect=cue.get("aspect", ""),
            when=frozenset(_MODALITIES[name] for name in cue.get("when", ())),
            pattern=_compiled(cue["words"], words),
        )
        for cue in data["cues"]
    )
    chat = [pattern for patterns in data["chat"].values() for pattern in patterns]
    noun_words = ("image", "audio", "video", "table", "text")
    nouns = {_MODALITIES[name]: _compiled([words[name]], words) for name in noun_words}
    return Lexicon(
        cues=cues,
        nouns=nouns,
        page=_compiled([words["page"], "<pdf>"], words),
        chat=re.compile(rf"\W*+(?:(?>(?:{_expanded('|'.join(chat), words)})(?![\w']))\W*+)++"),
        small_talk={kind: _compiled(patterns, words) for kind, patterns in data["chat"].items()},
        verb=_compiled(data["verbs"], words),
        polite=re.compile(rf"[\W_]*(?:(?:{_expanded(data['polite'], words)})\b[\W_]*)*"),
        context=re.compile(rf"\W*(?:{_expanded(data['context'], words)})\b"),
        aside=_compiled([data["aside"]], words),
        results=[(_compiled([nouns], words), tasks) for nouns, tasks in data["results"].items()],
        prompted=frozenset(data["prompted"]),
        instructed=frozenset(data["instructed"]),
        common=frozenset(data["common"].split()),
        generic=frozenset(data["generic"].split()),
    )


def resolved(matches: Collection[Match]) -> list[Match]:
    """Matches of which no two overlap, the strongest kept, in the order of the words."""
    kept: list[Match] = []
    for match in sorted(matches, key=lambda match: match.rank, reverse=True):
        if not any(match.overlaps(other) for other in kept):
            kept.append(match)
    return sorted(kept, key=lambda match: match.start)


def _compiled(patterns: Collection[str], words: Mapping[str, str]) -> re.Pattern[str]:
    alternatives = "|".join(f"(?:{_expanded(pattern, words)})" for pattern in patterns)
    return re.compile(rf"(?<![\w-])(?:{alternatives})(?![\w-])")


def _expanded(pattern: str, words: Mapping[str, str]) -> str:
    known = {**words, "language": LANGUAGE}
    while (filled := re.sub(r"\{([a-z]+)\}", lambda name: known[name[1]], pattern)) != pattern:
        pattern = filled
    for mask, meaning in _MASKS.items():
        pattern = pattern.replace(mask, meaning)
    pattern = pattern.replace(r"[\w'<>-]", rf"(?:[\w'-]|{MARKED})")
    pattern = pattern.replace(" ~ ", rf" (?:{_WORD} ){{0,3}}?")
    return pattern.replace(" ?", r"\s*").replace(" ", r"\s+")

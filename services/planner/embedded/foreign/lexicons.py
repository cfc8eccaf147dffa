"""The words of one language with the English words that the planner knows them by.

A lexicon's file maps, for every kind of word, an English gloss to what says it, alternatives between "|": "~" is
for an ending of up to three letters, "fass~ … zusammen" for two words of one sentence that belong together.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, lru_cache
from importlib.resources import files

from services.planner.embedded.patterns import lexicon as english
from services.planner.embedded.resources import BY_EXTENSION
from services.planner.embedded.wording import FILLING, MARKED

SUPPORTED = ("de", "fr", "es", "it", "pt", "zh", "ja", "ko")
UNSPACED = frozenset({"zh", "ja", "ko"})
"""Languages without spaces between all words, whose requests may be anywhere in a sentence."""

_APART = " … "
_CLAUSE_END = r"(?=\s*(?:$|[^\w\s]|(?:und|oder|aber|sondern|dann|danach|anschließend|bitte)\b))"
_SHORT_PART = 3
"""Letters of a second part that may as well be a preposition: it counts only where it ends a clause."""

_ENDED = ("", "e", "en", "t")
_WORD = re.compile(r"[^\W_]+(?:['-][^\W_]+)*")
_LATIN = re.compile(r"[a-z0-9][a-z0-9%.x-]*")
_STOP = re.compile(r"\n+|[.!?。！？…]+|[,;:，、；：()（）&–—・]")  # as they are written elsewhere
_FILE = re.compile(rf"[a-z0-9][a-z0-9_.%+@-]*\.(?:{'|'.join(BY_EXTENSION)})(?![a-z0-9])")
"""A file's name, also next to letters of another script."""

_HANGUL = re.compile(r"[\uac00-\ud7a3]+")
_ACCENTED = {"ä": "(?:ä|ae)", "ö": "(?:ö|oe)", "ü": "(?:ü|ue)", "ß": "(?:ß|ss)"}
_BARE = str.maketrans("àáâãäçèéêëìíîïñòóôõöùúûüÿ", "aaaaaceeeeiiiinooooouuuuy")


class Kind(StrEnum):
    """What a word does in its sentence; the names are those of the lexicons' files."""

    VERB = "verb"
    ASK = "ask"
    NOUN = "noun"
    WORD = "word"
    AFTER = "after"
    THEN = "then"
    LINK = "link"
    SILENT = "silent"
    STOP = "stop"
    UNKNOWN = "unknown"
    CONTENT = "content"
    LITERAL = "literal"


_ENDINGS = {Kind.AFTER, Kind.LINK}


@dataclass(frozen=True, slots=True)
class Token:
    """A word or phrase, its position and its gloss."""

    start: int
    end: int
    kind: Kind
    gloss: str

    @property
    def thing(self) -> bool:
        """Whether it can be what something is done to."""
        return self.kind in {Kind.NOUN, Kind.UNKNOWN, Kind.CONTENT, Kind.LITERAL}


@dataclass(frozen=True, slots=True)
class _Entry:
    kind: Kind
    gloss: str


_Apart = tuple[re.Pattern[str], re.Pattern[str], _Entry]
"""The first and the second part of a verb in two parts."""


class LanguageLexicon:
    """The words of one language and their English glosses."""

    def __init__(self, tag: str, data: Mapping[str, Mapping[str, str]]) -> None:
        self.tag = tag
        self.spaced = tag not in UNSPACED
        self._entries: dict[str, list[_Entry]] = {}
        self._apart: dict[str, list[_Apart]] = {}
        for kind, gloss, phrase in _phrases(data):
            first, apart, second = phrase.partition(_APART)
            if apart:
                ends = _CLAUSE_END if len(second) <= _SHORT_PART else ""
                words = (
                    re.compile(rf"{_lenient(first)}(?!\w)"),
                    re.compile(rf"(?<!\w){_lenient(second)}(?!\w){ends}"),
                )
                self._apart.setdefault(_initial(phrase), []).append((*words, _Entry(kind, gloss)))
            else:
                self._entries.setdefault(phrase, []).append(_Entry(kind, gloss))
        self._phrases: dict[str, list[str]] = {}
        for phrase in sorted(self._entries, key=lambda phrase: len(phrase.rstrip("~")), reverse=True):
            self._phrases.setdefault(_initial(phrase), []).append(phrase)
        self._patterns = {
            initial: (self._any_of(phrase, _pattern), self._any_of(phrase, _lenient))
            for initial, phrase in self._phrases.items()
        }

    def _any_of(self, alternatives: Sequence[str], pattern: Callable[[str], str]) -> re.Pattern[str]:
        return re.compile("|".join(f"({pattern(phrase)}{self._edge(phrase)})" for phrase in alternatives))

    def _edge(self, phrase: str) -> str:
        return r"(?!\w)" if self.spaced and not phrase.endswith("'") else ""

    def tokens(self, masked: str, start: int, end: int) -> list[Token]:
        """The words of a stretch in lower case, one after the other."""
        found: list[Token] = []
        taken: list[tuple[int, int]] = []
        at = start
        while at < end:
            if taken and taken[0][0] <= at:
                tail = taken.pop(0)
                found.append(Token(*tail, Kind.SILENT, ""))
                at = tail[1]
            elif masked[at].isspace() and masked[at] != "\n":
                at += 1
            else:
                token = self._token(masked, at, end, taken, found[-1] if found else None)
                found.append(token)
                at = token.end
        return found

    def _token(self, masked: str, at: int, end: int, taken: list[tuple[int, int]], last: Token | None) -> Token:
        if marked := re.compile(MARKED + "+").match(masked, at, end):
            return Token(at, marked.end(), Kind.CONTENT, "")
        if named := _FILE.match(masked, at, end):
            return Token(at, named.end(), Kind.CONTENT, "")
        for first, second, entry in self._apart.get(_initial(masked[at]), ()):
            if (head := first.match(masked, at, end)) and (
                tail := second.search(masked, head.end(), _sentence_end(masked, head.end(), end))
            ):
                taken.append(tail.span())
                taken.sort()
                return Token(at, head.end(), entry.kind, entry.gloss)
        if known := self._known(masked, at, end):
            stop, entries = known
            attached = at > 0 and not masked[at - 1].isspace() and bool(last) and not (last and last.kind is Kind.STOP)
            for entry in sorted(entries, key=lambda entry: (entry.kind in _ENDINGS) is not attached):
                if self._fits(entry, last, attached=attached):
                    return Token(at, stop, entry.kind, entry.gloss)
        return self._other(masked, at, end)

    def _known(self, masked: str, at: int, end: int) -> tuple[int, list[_Entry]] | None:
        """The longest that is known here, preferably as it is spelled: where it ends and what it may be."""
        initial = _initial(masked[at])
        matches = [pattern.match(masked, at, end) for pattern in self._patterns.get(initial, ())]
        found = [match for match in matches if match and match.end() > at]
        if not found:
            return None
        longest = max(found, key=lambda match: match.end())
        return longest.end(), self._entries[self._phrases[initial][(longest.lastindex or 1) - 1]]

    def _fits(self, entry: _Entry, last: Token | None, *, attached: bool) -> bool:
        if entry.kind is Kind.LINK:
            return last is not None and last.kind in {Kind.VERB, Kind.SILENT, Kind.ASK}
        return entry.kind is not Kind.AFTER or attached or entry.gloss == "in"

    def _other(self, masked: str, at: int, end: int) -> Token:
        """A mark between words, a word of the planner's own English, or one that is not known."""
        if stop := _STOP.match(masked, at, end):
            return Token(at, stop.end(), Kind.STOP, _english_stop(stop.group()))
        if masked[at] == FILLING or not masked[at].isalnum():
            return Token(at, at + 1, Kind.SILENT, "")
        if latin := _LATIN.match(masked, at, end):
            word = _WORD.match(masked, at, end) if self.spaced else None
            stop_at = max(latin.start() + len(latin.group().rstrip(".-")), word.end() if word else 0)
            first = latin.group().partition("-")[0]
            return borrowed(masked, at, latin.start() + len(first) if first in BY_EXTENSION else stop_at)
        return Token(at, self._unknown_end(masked, at, end), Kind.UNKNOWN, "")

    def _unknown_end(self, masked: str, at: int, end: int) -> int:
        if self.spaced and (word := _WORD.match(masked, at, end)):
            return word.end()
        hangul = _HANGUL.match(masked, at, end)
        last = hangul.end() if hangul else end
        for position in range(at + 1, last):
            known = self._known(masked, position, end)
            ends = hangul is None or (known is not None and known[0] >= last)
            if not masked[position].isalnum() or (known and ends):
                return position
        return last


def borrowed(masked: str, start: int, end: int) -> Token:
    """A word written as in English, known if the planner's own words have it."""
    return Token(start, end, _in_english(masked[start:end]), masked[start:end])


@lru_cache(maxsize=4096)
def _in_english(word: str) -> Kind:
    if english().verb.fullmatch(word):
        return Kind.VERB
    if word[0].isdigit() or word in BY_EXTENSION or any(noun.fullmatch(word) for noun in english().nouns.values()):
        return Kind.NOUN
    return Kind.WORD if word in english().common else Kind.UNKNOWN


def _english_stop(mark: str) -> str:
    if "\n" in mark:
        return "\n"
    last = {"。": ".", "！": "!", "？": "?", "…": "."}.get(mark[-1], mark[-1])  # as they are written elsewhere
    return last if last in ".!?:;" else ","


def _sentence_end(masked: str, start: int, end: int) -> int:
    stop = _STOP.search(masked, start, end)
    return stop.start() if stop else end


def _phrases(data: Mapping[str, Mapping[str, str]]) -> Iterator[tuple[Kind, str, str]]:
    for kind, glosses in data.items():
        for gloss, alternatives in glosses.items():
            for phrase in alternatives.split("|"):
                yield Kind(kind), gloss.strip(), phrase


def _initial(phrase: str) -> str:
    """The first letter without its accent, the key of the lookup."""
    return phrase[0].translate(_BARE)


def _pattern(phrase: str) -> str:
    """What matches a way to say something as it is spelled."""
    return re.escape(phrase).replace("\\~", r"\w{0,3}").replace("\\ ", r"\s+").replace("~", r"\w{0,3}")


def _lenient(phrase: str) -> str:
    """What matches it with its accents or without."""
    return "".join(_letter(letter) for letter in phrase)


def _letter(letter: str) -> str:
    if letter in {" ", "~"}:
        return r"\s+" if letter == " " else r"\w{0,3}"
    if letter in _ACCENTED:
        return _ACCENTED[letter]
    bare = letter.translate(_BARE)
    return re.escape(letter) if bare == letter else f"[{letter}{bare}]"


@cache
def lexicon_of(tag: str) -> LanguageLexicon:
    """The lexicon of a supported language."""
    return LanguageLexicon(tag, _data(tag))


def commands(tag: str) -> set[str]:
    """The commonest forms of the single words by which a supported language asks for something."""
    verbs = {phrase for kind, _, phrase in _phrases(_data(tag)) if kind is Kind.VERB}
    stems = {verb.partition(_APART)[0] for verb in verbs}
    whole = {stem for stem in stems if "~" not in stem and " " not in stem}
    return whole | {stem[:-1] + ending for stem in stems - whole if " " not in stem for ending in _ENDED}


def _data(tag: str) -> Mapping[str, Mapping[str, str]]:
    data: Mapping[str, Mapping[str, str]] = json.loads(
        (files("services.planner.embedded.foreign") / f"{tag}.json").read_text(encoding="utf-8")
    )
    return data

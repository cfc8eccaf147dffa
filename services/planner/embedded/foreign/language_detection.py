"""Which language a request asks in, by its script and its commonest words; what it quotes or pastes does not count."""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files

from services.planner.embedded.foreign.lexicons import SUPPORTED, UNSPACED, Kind, borrowed, commands, lexicon_of
from services.planner.embedded.patterns import LIKELY
from services.planner.embedded.patterns import lexicon as english
from services.planner.embedded.spelling import spelling
from services.planner.embedded.wording import MARKED, Wording

ENGLISH, UNKNOWN = "en", "unknown"

LOOKED_AT = 400
"""Characters of the first and of the last line that are looked at."""

_SURE = 2

_WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
_SENTENCE = re.compile(r"[^.!?。！？]+")
_HEAD = re.compile(r"[^\n:：]*")  # as it is written elsewhere
_SCRIPTS: Mapping[str, re.Pattern[str]] = {
    tag: re.compile(f"[{letters}]")
    for tag, letters in {
        "ko": "\uac00-\ud7a3\u3131-\u318e",
        "ja": "\u3041-\u3096\u30a1-\u30fa",
        "zh": "\u4e00-\u9fff",
        "uk": "іїєґ",  # letters of Ukrainian
        "ru": "\u0400-\u04ff",
        "fa": "\u067e\u0686\u0698\u06af\u06cc\u06a9",
        "ar": "\u0600-\u06ff",
        "he": "\u0590-\u05ff",
        "hi": "\u0900-\u097f",
        "bn": "\u0980-\u09ff",
        "ta": "\u0b80-\u0bff",
        "te": "\u0c00-\u0c7f",
        "th": "\u0e00-\u0e7f",
        "el": "\u0370-\u03ff",
        "ka": "\u10a0-\u10ff",
        "hy": "\u0530-\u058f",
    }.items()
}
"""By the language most likely meant; of those that share letters the rarer ones first."""

_LETTERS = re.compile(r"[^\W\d_]")
_LATIN = re.compile(r"[a-zà-ɏ]")


def plainly_english(text: str) -> bool:
    """Whether the words of a text leave no doubt that it is English throughout; cheap, and often false."""
    if not text.isascii() or len(text) > LOOKED_AT:
        return False
    tags = [_common().get(word, ()) for word in _WORD.findall(text.lower())]
    ours = sum(ENGLISH in known for known in tags)
    return ours >= _SURE and sum(bool(known) for known in tags) == ours


def detect(wording: Wording) -> str:
    """The language of a request's own words: a tag, ENGLISH also when in doubt, or UNKNOWN where no word is known."""
    masked = wording.masked
    first, last = _HEAD.match(masked.lstrip()), masked.rstrip().rpartition("\n")[2]
    head = first.group()[:LOOKED_AT] if first else ""
    lines = [head, last[-LOOKED_AT:]]
    for sentence in _SENTENCE.findall(head):
        if (tag := _line(sentence)) != ENGLISH and _asks(tag, sentence):
            return tag
    tags = [tag for line in dict.fromkeys(lines) if (tag := _line(line))]
    if not tags or (ENGLISH in tags and not _asks(tags[0], lines[0])):
        return ENGLISH
    return tags[0]


def of_sentence(masked: str, other: str) -> str:
    """Whether one sentence of a request in another language is in English after all."""
    scores = _scores(_WORD.findall(masked))
    return ENGLISH if scores.get(ENGLISH, 0) >= _SURE and scores[ENGLISH] > scores.get(other, 0) else other


def _line(line: str) -> str:
    """The language of a line; empty if it has no words."""
    words = _WORD.findall(re.sub(MARKED, " ", line))
    if all(len(word) == 1 and word.isascii() for word in words):
        return ""
    scores = _scores(words)
    ours = scores.pop(ENGLISH, 0)
    if tag := _by_script(line):
        return ENGLISH if ours >= _SURE and _LATIN.match(words[0]) else tag
    tag, most = max(scores.items(), key=lambda pair: (pair[1], pair[0] in SUPPORTED), default=("", 0))
    if ours > most:
        return ENGLISH
    if most > ours and most >= _SURE:
        return tag
    return _by_lexicons(line, words, else_told=tag if tag not in SUPPORTED and most >= 1 else "")


def _by_script(line: str) -> str:
    letters = len(_LETTERS.findall(line))
    counts = {tag: len(script.findall(line)) for tag, script in _SCRIPTS.items()}
    foreign = sum(counts[tag] for tag in counts if tag not in {"uk", "fa"})
    if not letters or foreign < letters / 3:
        return ""
    return next(tag for tag, count in counts.items() if count and (tag not in {"ko", "ja"} or count >= letters / 10))


def _by_lexicons(line: str, words: list[str], *, else_told: str) -> str:
    """The language whose lexicon knows most of the words, or UNKNOWN for words that nothing is known of."""
    ours = sum(borrowed(word, 0, len(word)).kind is not Kind.UNKNOWN for word in words if word.isascii())
    if ours == len(words):
        return ENGLISH
    native = {tag: _understood(tag, line) for tag in SUPPORTED if tag not in UNSPACED}
    likeliest = max(native, key=lambda tag: native[tag])
    if native[likeliest] > (_SURE if else_told else ours):
        return likeliest
    if else_told:
        return else_told
    if ours or any(match.weight >= LIKELY for match in english().find(line, 0, len(line), None)):
        return ENGLISH
    return UNKNOWN if any(not word.isascii() for word in words) else ENGLISH


def _understood(tag: str, line: str) -> int:
    tokens = lexicon_of(tag).tokens(line, 0, len(line))
    long_ones = [token for token in tokens if token.end - token.start > 1]
    commands = any(token.kind in {Kind.VERB, Kind.ASK, Kind.SILENT} for token in long_ones)
    commands = commands or all(token.kind in {Kind.WORD, Kind.STOP} for token in tokens)
    foreign = [token for token in tokens if token.kind not in {Kind.UNKNOWN, Kind.STOP, Kind.CONTENT}]
    native = [line[token.start : token.end] for token in foreign if token.gloss != line[token.start : token.end]]
    known = sum(len(_WORD.findall(words)) for words in native)
    return known if commands or known > _SURE else 0


def _asks(tag: str, line: str) -> bool:
    """Whether a line in a supported language has a command or a question of it."""
    if tag not in SUPPORTED:
        return False
    return any(token.kind in {Kind.VERB, Kind.ASK} for token in lexicon_of(tag).tokens(line, 0, len(line)))


def _scores(words: Iterable[str]) -> dict[str, float]:
    """How many of the words are common ones of each language; a word of several counts for each a part."""
    index, scores = _common(), defaultdict[str, float](float)
    for word in words:
        tags = index.get(word, ())
        for tag in tags:
            scores[tag] += 1 / len(tags)
    return dict(scores)


@cache
def _common() -> Mapping[str, tuple[str, ...]]:
    data: dict[str, str] = json.loads(
        (files("services.planner.embedded.foreign") / "words.json").read_text(encoding="utf-8")
    )
    typos = (typo for typo, word in spelling().slips.items() if word in english().common)
    known: dict[str, list[str]] = {word: [ENGLISH] for word in (*english().common, *typos, "a", "i")}
    for tag, words in data.items():
        for word in dict.fromkeys([*words.split(), *(commands(tag) if tag in SUPPORTED else ())]):
            known.setdefault(word, []).append(tag)
    for word, tags in known.items():
        if tags[0] != ENGLISH and word.isascii() and borrowed(word, 0, len(word)).kind is not Kind.UNKNOWN:
            tags.append(ENGLISH)
    return {word: tuple(tags) for word, tags in known.items()}

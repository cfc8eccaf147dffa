"""A request in another language turned into English words in an English order, each known by where it came from."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from services.planner.embedded.foreign.lexicons import Kind, LanguageLexicon, Token
from services.planner.embedded.languages import TAGS

_JOINTS = {Kind.STOP, Kind.THEN, Kind.LINK}
_ASKING = {Kind.VERB, Kind.ASK}
_ADVERBS = {"then", "finally"}
_NOT = "not"
_SOFT = {"and", "or", ","}
"""Joints between the objects of one command."""

_LEADS = {"if", "without", "not", "except", "but"}
_LAST = {"to": 2, "into": 2, "as": 2, "": 0}
"""Where what a preposition leads goes in a command; all others: 1."""

_GREETINGS = {"hello", "thanks"}
_TELL = "tell me"
_TELL_GLOSSES = {_TELL, "show", "find", "detect", "check", "count", "recognize", "explain", "answer", "analyze", "give"}
"""Commands that a question may follow."""

_AUXILIARIES = {"is", "are", "was", "has", "does"}
_PAST = {"write": "wrote", "send": "sent", "make": "made", "draw": "drew", "call": "called", "order": "ordered"}
_PREPOSITIONS = {"to", "into", "in", "from", "as", "with", "about"}


@dataclass(frozen=True, slots=True)
class Piece:
    """English words and the stretch of the request that they render."""

    text: str
    start: int
    end: int
    kind: Kind

    @property
    def known(self) -> bool:
        return self.kind is not Kind.UNKNOWN


def glossed(text: str, tokens: Sequence[Token], language: LanguageLexicon) -> list[Piece]:
    """The pieces of an English rendering of a request's tokens, in English order; those without words last."""
    arrange = _arranged if language.spaced else _reversed
    segments = [_with_object_quoted(_asked(segment)) for segment in _segments(_with_joints_in_front(tokens))]
    arranged = [token for segment in segments for token in _with_negation_in_front(arrange(segment))]
    covered = {position for token in arranged for position in range(token.start, token.end)}
    passed_over = [replace(token, kind=Kind.SILENT, gloss="") for token in tokens if token.start not in covered]
    return [_piece(text, token) for token in (*arranged, *passed_over)]


def _piece(text: str, token: Token) -> Piece:
    kept = token.kind in {Kind.CONTENT, Kind.LITERAL, Kind.UNKNOWN}
    words = text[token.start : token.end] if kept else token.gloss
    words = f"“{words}”" if token.kind is Kind.LITERAL else words
    return Piece(words, token.start, token.end, token.kind)


# ---------------------------------------------------------------- segments


def _with_joints_in_front(tokens: Sequence[Token]) -> list[Token]:
    """With "then" moved before the command that contains it."""
    moved: list[Token] = []
    for index, token in enumerate(tokens):
        if token.gloss == "," and _leads_to_question(moved, islice(tokens, index + 1, None)):
            continue
        if token.kind is Kind.THEN and token.gloss in _ADVERBS:
            opening = _opening(moved)
            rest = islice(tokens, index + 1, None)
            following = next((other for other in rest if other.kind in _ASKING | _JOINTS), None)
            moved.insert(opening if _amidst(moved[opening:], following) else len(moved), token)
        else:
            moved.append(token)
    return moved


def _amidst(before: Sequence[Token], following: Token | None) -> bool:
    """Whether the words before an adverb belong to the same command as those behind it."""
    asks_after = following is not None and following.kind in _ASKING
    if any(token.kind in _ASKING for token in before):
        return not asks_after
    return asks_after and any(token.thing for token in before)


def _leads_to_question(before: Sequence[Token], after: Iterable[Token]) -> bool:
    """Whether a comma separates a command from its question: "tell me, who"."""
    last = next((token for token in reversed(before) if token.kind is not Kind.SILENT), None)
    following = next((token for token in after if token.kind is not Kind.SILENT), None)
    return last is not None and last.kind is Kind.VERB and following is not None and following.kind is Kind.ASK


def _opening(tokens: Sequence[Token]) -> int:
    """Where the segment begins that the last token belongs to."""
    return next((index + 1 for index in reversed(range(len(tokens))) if tokens[index].kind in _JOINTS), 0)


def _segments(tokens: Iterable[Token]) -> list[list[Token]]:
    """Stretches with at most one command and the joints between; what a command at the end is about is with it."""
    segments: list[list[Token]] = [[]]
    for token in tokens:
        if token.kind is Kind.LINK and token.gloss == _NOT:
            segments[-1].append(replace(token, kind=Kind.WORD))
            segments += [[Token(token.end, token.end, Kind.THEN, "but")], []]
        elif token.kind in _JOINTS:
            segments += [[token], []]
        else:
            segments[-1].append(token)
    joined: list[list[Token]] = []
    for segment in filter(None, segments):
        whole = segment
        while _ends_in_command(whole) and len(joined) > 1 and joined[-1][0].gloss in _SOFT and _thing(joined[-2]):
            whole = [*joined[-2], *joined[-1], *whole]
            joined = joined[:-2]
        joined.append(whole)
    return joined


def _ends_in_command(segment: Sequence[Token]) -> bool:
    command = _command(segment)
    return command is not None and any(token.thing for token in segment[:command])


def _thing(segment: Sequence[Token]) -> bool:
    asks = any(token.kind in _ASKING for token in segment)
    return not asks and any(token.thing for token in segment) and segment[0].kind not in _JOINTS


def _command(segment: Sequence[Token]) -> int | None:
    return next((index for index, token in enumerate(segment) if token.kind is Kind.VERB), None)


def _asked(segment: list[Token]) -> list[Token]:
    """A question by itself, without "tell me"."""
    asks = any(token.kind is Kind.ASK for token in segment)
    return [token for token in segment if not (asks and token.gloss == _TELL)]


def _with_object_quoted(segment: list[Token]) -> list[Token]:
    """With quotation marks around the text of "translate good morning"."""
    if not any(token.gloss == "translate" for token in segment):
        return segment
    words = [token for token in segment if token.kind is Kind.UNKNOWN or token.gloss in _GREETINGS]
    things = [token for token in segment if token.kind in {Kind.NOUN, Kind.CONTENT} and token.gloss not in TAGS]
    between = [token for token in segment if words and words[0].start <= token.start <= words[-1].start]
    if things or len(between) != len(words) or not words:
        return segment
    quoted = Token(words[0].start, words[-1].end, Kind.LITERAL, "")
    return [quoted if token is words[0] else token for token in segment if token is words[0] or token not in words]


# ---------------------------------------------------------------- order


def _with_negation_in_front(segment: list[Token]) -> list[Token]:
    """With what says not to do something before the command that it is about."""
    command = _command(segment)
    denied = next((token for token in segment if token.gloss == _NOT), None)
    if command is None or denied is None or any(token.kind is Kind.ASK for token in segment[:command]):
        return segment
    rest = [token for token in segment if token is not denied]
    command = _command(rest) or 0
    return [*rest[:command], replace(denied, gloss="do not"), *rest[command:]]


def _arranged(segment: list[Token]) -> list[Token]:
    """With the command first, for a language whose prepositions precede their nouns."""
    segment = [_as_pronoun(token, following) for token, following in zip(segment, [*segment[1:], None], strict=True)]
    command = _command(segment)
    asked = next((index for index, token in enumerate(segment) if token.kind is Kind.ASK), None)
    if asked is not None and (command is None or asked < command):
        return [*segment[:asked], *_asking(segment[asked:])]
    if command is None:
        return segment
    before = segment[:command]
    leads = [token for token in before if token.gloss in _LEADS] if before and before[0].gloss in _LEADS else []
    rest = [token for token in before if token not in leads]
    asked = asked if asked is not None else len(segment)
    return [*leads, segment[command], *rest, *segment[command + 1 : asked], *_asking(segment[asked:])]


def _asking(question: list[Token]) -> list[Token]:
    """A question with its verb behind what it asks for, and in the past where it would else be a command."""
    words = [replace(token, gloss=_PAST.get(token.gloss, token.gloss)) for token in question]
    if len(words) > 1 and words[-1].gloss in _AUXILIARIES:
        return [words[0], words[-1], *words[1:-1]]
    return words


def _as_pronoun(token: Token, following: Token | None) -> Token:
    """An article without a noun is a pronoun."""
    alone = following is None or following.kind not in {Kind.NOUN, Kind.UNKNOWN, Kind.CONTENT, Kind.WORD}
    alone = alone or (following is not None and following.gloss.partition(" ")[0] in _PREPOSITIONS)
    return replace(token, gloss="it") if token.gloss == "the" and alone else token


def _reversed(segment: list[Token]) -> list[Token]:
    """With the question word first, then its subject, for a language with postpositions."""
    if segment[0].kind in _JOINTS:
        return segment
    heads = [token for token in segment if token.kind in _ASKING]
    if any(token.gloss in _TELL_GLOSSES for token in heads):
        heads.sort(key=lambda token: token.gloss not in _TELL_GLOSSES)
    heads = [token for token in heads if token.gloss != "is"] or heads
    head = next(iter(heads), None)
    chunks = _chunks([token for token in segment if token.kind not in _ASKING], head)
    things = [token for chunk in sorted(chunks, key=lambda chunk: _LAST.get(chunk.lead, 1)) for token in chunk.words]
    if head and len(heads) == 1 and head.kind is Kind.VERB and all(chunk.lead for chunk in chunks):
        things = [Token(head.end, head.end, Kind.WORD, "it"), *things]
    if head and head.kind is Kind.ASK:
        heads = _asking(heads)
    first, rest = (heads, []) if any(token.kind is Kind.ASK for token in heads) else (heads[:1], heads[1:])
    return [*first, *things, *rest]


class _Chunk:
    """A thing with the words that belong to it."""

    def __init__(self, *words: Token, lead: str = "") -> None:
        self.words = list(words)
        self.lead = lead
        self.closed = False

    def close(self, after: Token) -> None:
        """What follows it describes its role."""
        if after.gloss and not self.lead:
            self.words, self.lead = [after, *self.words], after.gloss
        self.closed = True


def _chunks(tokens: Sequence[Token], head: Token | None) -> list[_Chunk]:
    """Each thing with its preposition in front, and what it is said to be of behind it."""
    chunks = [_Chunk()]
    held: list[Token] = []
    for index, token in enumerate(tokens):
        chunk = chunks[-1]
        crosses = head and chunk.words and chunk.words[-1].end <= head.start < token.start
        if token.kind is Kind.AFTER and token.gloss == "of" and any(other.thing for other in tokens[index:]):
            held = [*chunk.words, *held] if chunk.lead else [token, *chunk.words, *held]
            chunks[-1] = _Chunk()
        elif token.kind is Kind.AFTER:
            chunk.close(replace(token, gloss="") if token.gloss == "of" else token)
        elif token.kind is Kind.WORD and token.gloss in _PREPOSITIONS:
            chunks.append(_Chunk(token, lead=token.gloss))
        elif token.kind is not Kind.SILENT:
            if chunk.closed or crosses:
                chunks.append(_Chunk())
            chunks[-1].words.append(token)
        if held and token.thing and chunks[-1].words:
            chunks[-1].words += held
            held = []
    chunks[-1].words += held
    return [chunk for chunk in chunks if chunk.words]

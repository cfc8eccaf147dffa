"""Plans requests in other languages by their English renderings, or notes that they were not understood."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files

from services.planner.embedded.foreign import language_detection as languages
from services.planner.embedded.foreign.lexicons import SUPPORTED, UNSPACED, Kind
from services.planner.embedded.foreign.pivot import Pivot, Placed, pivot, with_plain_quotes
from services.planner.embedded.plan_builder import BRIDGES
from services.planner.embedded.resources import resources
from services.planner.embedded.wording import read
from services.planner.plan import Argument, Decision, Draft, Many, Note, NoteKind, Task, Text
from services.planner.request import Request

Plan = Callable[[Request], Draft]
"""Plans a request in English."""

MOST_WORDS = 6
"""Most words a note lists that were not understood."""

_KNOWN_WHOLE = 0.9
"""What is left of the confidence in a plan made by way of English words."""

_KNOWN_IN_PART = 0.45
"""The confidence in a plan of a request of which some words were skipped, at most."""

_LONGEST_SPAN = 300
_INSTRUCTION = "instruction"
"""The port that takes what is to be done, which is understood best in English."""

_QUESTION = "question"
_QUESTION_MARKS = ("?", "？", "까", "吗", "呢")
_READERS = frozenset(BRIDGES.values())
_SENTENCE = re.compile(r"[^.!?。！？\n]+[.!?。！？]*")
_QUOTED = re.compile(r"[\"“”„«»「」『』《》]")
_ADJECTIVES_FIRST = "de"
_COMMANDS_FIRST = frozenset({"fr", "es", "it", "pt"})
_PART_END = re.compile(r"[:.!?\n]")


def planned(request: Request, plan: Plan) -> Draft:
    """A plan of a request in whatever language; the arguments keep the user's own words."""
    if languages.plainly_english(request.text):
        return plan(request)
    wording = read(with_plain_quotes(request.text), resources(request))
    tag = languages.detect(wording)
    if tag == languages.ENGLISH:
        return plan(request)
    if tag not in SUPPORTED:
        return _not_understood(tag, request.text)
    return _Rendered(pivot(wording, tag, request.text), request, tag).plan(plan)


class _Rendered:
    """A request with its English rendering."""

    def __init__(self, english: Pivot, request: Request, tag: str) -> None:
        self._english = english
        self._request = request
        self._tag = tag
        self._questions = 0
        """Number of questions in the plan."""
        self._carried: list[tuple[int, int]] = []
        """Stretches of the request that arguments carry as they are."""

    def plan(self, plan: Plan) -> Draft:
        """The plan of the rendering, in the words of the request."""
        last = replace(self._request.conversation[-1], text=self._english.text)
        draft = plan(replace(self._request, conversation=(*self._request.conversation[:-1], last)))
        self._questions = sum(_QUESTION in task.arguments for task in draft.tasks)
        tasks = tuple(self._task(task) for task in draft.tasks)
        skipped = [placed for placed in self._english.unknown() if not self._is_carried(placed)]
        skipped = [] if self._reads_everything(draft) else [one for one in skipped if not self._is_stated(one)]
        if any(self._matters(placed) for placed in skipped) or (skipped and not tasks):
            return self._as_question(plan) or _not_understood(self._tag, *self._words(skipped))
        notes = [self._note(note) for note in draft.notes]
        confidence = draft.decision.confidence * _KNOWN_WHOLE
        if skipped:
            notes.append(_skipped(self._tag, self._words(skipped)))
            confidence = min(confidence, _KNOWN_IN_PART)
        decision = replace(draft.decision, confidence=round(confidence, 2))
        return replace(draft, tasks=tasks, notes=tuple(notes), decision=decision)

    def _as_question(self, plan: Plan) -> Draft | None:
        """Plans a request that asks something as a question about what was sent; None if it asks nothing."""
        if not (self._english.asks or self._request.text.rstrip().endswith(_QUESTION_MARKS)):
            return None
        quoted = re.sub(r"[“”\"]", "'", self._request.text.strip())
        question = f"{quoted.rstrip('?.!？。 ')}?"
        last = replace(self._request.conversation[-1], text=f"Answer the question “{question}”")
        draft = plan(replace(self._request, conversation=(*self._request.conversation[:-1], last)))
        source = self._request.text[:_LONGEST_SPAN]
        tasks = tuple(replace(task, source=source, arguments=self._asked(task, question)) for task in draft.tasks)
        if not tasks or not all(_QUESTION in task.arguments or task.task in _READERS for task in tasks):
            return None
        confidence = min(draft.decision.confidence, _KNOWN_IN_PART)
        return replace(draft, tasks=tasks, notes=(), decision=replace(draft.decision, confidence=confidence))

    def _asked(self, task: Task, question: str) -> Mapping[str, Argument]:
        """The arguments of a task, with the request itself as the question."""
        own = Text(self._request.text.strip())
        return {port: own if argument == Text(question) else argument for port, argument in task.arguments.items()}

    def _matters(self, placed: Placed) -> bool:
        """Whether an unknown word may name a task: it is no mere attribute of a noun."""
        before, after = self._english.neighbours(placed)
        word = self._request.text[placed.piece.start : placed.piece.end]
        if self._tag in UNSPACED or before is None or not word.islower():
            return True
        if self._tag == _ADJECTIVES_FIRST:
            return not (before.kind is Kind.WORD and after is not None and after.kind is Kind.NOUN)
        return before.kind is not Kind.NOUN

    def _reads_everything(self, draft: Draft) -> bool:
        """Whether it only asks what is written or said, which is answered in full wherever that is."""
        readers = bool(draft.tasks) and all(task.task in _READERS for task in draft.tasks)
        return readers and self._english.asks and not any(one.piece.kind is Kind.THEN for one in self._english.placed)

    def _is_stated(self, placed: Placed) -> bool:
        """Whether an unknown word is in a statement, in a language whose commands begin with the verb."""
        if self._tag not in _COMMANDS_FIRST:
            return False
        text = self._english.text
        start = max((stop.end() for stop in _PART_END.finditer(text, 0, placed.at)), default=0)
        stop = _PART_END.search(text, placed.end)
        end = stop.start() if stop else len(text)
        part = [one for one in self._english.placed if start <= one.at < end]
        asks = any(one.piece.kind in (Kind.VERB, Kind.ASK) for one in part)
        return not asks and part[0] is not placed and len(text) > end + 1

    def _is_carried(self, placed: Placed) -> bool:
        return any(start <= placed.piece.start and placed.piece.end <= end for start, end in self._carried)

    def _words(self, placed: Iterable[Placed]) -> list[str]:
        return [self._request.text[one.piece.start : one.piece.end] for one in placed]

    # ------------------------------------------------------------ back to the user's words

    def _task(self, task: Task) -> Task:
        source = self._english.original(task.source, before=True, after=True)
        if source.casefold() not in self._request.text.casefold():
            source = self._request.text[:_LONGEST_SPAN]
        arguments = {
            port: self._whole(task.source, source)
            if argument == Text(task.source) and port != _INSTRUCTION
            else self._argument(port, argument)
            for port, argument in task.arguments.items()
        }
        return replace(
            task,
            arguments=arguments,
            parameters_json=self._parameters(task.parameters_json),
            source=source,
        )

    def _argument(self, port: str, argument: Argument) -> Argument:
        if isinstance(argument, Many):
            return Many(tuple(self._text(port, item) if isinstance(item, Text) else item for item in argument.items))
        if not isinstance(argument, Text) or port == _INSTRUCTION:
            return argument
        return self._text(port, argument)

    def _whole(self, english: str, source: str) -> Text:
        """The clause itself as the argument of a task."""
        if span := self._english.span(english):
            self._carried.append(span)
        return Text(source)

    def _text(self, port: str, argument: Text) -> Text:
        if span := self._english.span(argument.text):
            self._carried.append(span)
        words = self._english.original(argument.text, after=port == _QUESTION)
        return Text(self._sentence_of(words) if port == _QUESTION else words)

    def _sentence_of(self, question: str) -> str:
        """The whole sentence of a question, if it asks nothing else: words that have no gloss matter to the answer."""
        sentences = [sentence.group().strip() for sentence in _SENTENCE.finditer(self._request.text)]
        found = [one for one in sentences if question.casefold() in one.casefold() and not _QUOTED.search(one)]
        return found[0] if len(found) == 1 and self._questions == 1 else question

    def _parameters(self, parameters_json: str) -> str:
        """The parameters, with names of classes as the user gave them."""
        given: dict[str, object] = json.loads(parameters_json or "{}")
        labels = given.get("candidate_labels")
        if not isinstance(labels, list):
            return parameters_json
        for label in labels:
            if span := self._english.span(label):
                self._carried.append(span)
        given["candidate_labels"] = [self._english.original(label) for label in labels]
        return json.dumps(given, sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    def _note(self, note: Note) -> Note:
        original = self._english.original(note.span)
        return replace(note, text=note.text.replace(f"“{note.span}”", f"“{original}”"), span=original)


# ---------------------------------------------------------------- notes


def _not_understood(tag: str, *words: str) -> Draft:
    named = _named(words)
    text = f"{_regret(tag)}These words{_of(tag)} were not understood: {named}. {_REMEDY}".strip()
    note = Note(NoteKind.CLARIFY, text, " … ".join(words)[:_LONGEST_SPAN])
    reason = "Not planned: the rules know too few of the words of this request."
    return Draft((), (note,), Decision("embedded", reason, 0.0))


def _skipped(tag: str, words: Sequence[str]) -> Note:
    text = f"{_regret(tag)}These words{_of(tag)} were skipped: {_named(words)}. {_REMEDY}"
    return Note(NoteKind.CLARIFY, text, " … ".join(words)[:_LONGEST_SPAN])


_REMEDY = "Say it in English, or set up an LLM with LLM_BASE_URL."


def _named(words: Sequence[str]) -> str:
    shown = [f"“{word[:60]}”" for word in dict.fromkeys(words)]
    more = [f"{len(shown) - MOST_WORDS} more"] if len(shown) > MOST_WORDS else []
    return ", ".join([*shown[:MOST_WORDS], *more])


def _of(tag: str) -> str:
    return f" of {_apologies()[tag][0]}" if tag in _apologies() else ""


def _regret(tag: str) -> str:
    return f"{_apologies()[tag][1]} " if tag in _apologies() else ""


@cache
def _apologies() -> Mapping[str, tuple[str, str]]:
    """By tag: the English name of a language, and an apology in it."""
    data = (files("services.planner.embedded.foreign") / "apologies.json").read_text(encoding="utf-8")
    return {tag: (name, text) for tag, (name, text) in json.loads(data).items()}

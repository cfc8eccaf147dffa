"""The task intents of a clause: which tasks it calls for."""

import re
from collections.abc import Collection, Sequence
from dataclasses import replace

from services.planner.embedded import arguments
from services.planner.embedded.clauses import Clause
from services.planner.embedded.parameters import TARGET
from services.planner.embedded.patterns import Lexicon, Match
from services.planner.embedded.plan_builder import BRIDGES, PlanBuilder
from services.planner.embedded.resources import Resource
from services.planner.embedded.steps import Step
from services.planner.embedded.streams import feeds
from services.planner.embedded.vocabulary import stems
from services.planner.embedded.wording import Wording
from services.planner.task_spec import Catalogue, Modality, Spec

TaskIntent = tuple[tuple[str, ...], str]
"""Tasks by preference, and an aspect."""

_ZERO_SHOT = {
    Modality.IMAGE: ("zero-shot-image-classification",),
    Modality.AUDIO: ("zero-shot-audio-classification",),
    Modality.TEXT: ("zero-shot-classification",),
}
"""What sorts into classes that are named; other classifiers have classes of their own."""

_CLASSIFYING = frozenset(
    ("image-classification", "audio-classification", "text-classification", "visual-question-answering")
)
_QUESTION = ("question",)
"""A cue for whatever can answer a question."""

_DOCUMENTS = "document-question-answering"
CONVERSING = ("conversational", "text-generation")
_SPEAKING, _SOUND_FILES = "text-to-speech", "audio-conversion"
_SUMMARIZING, _TRANSLATING = "summarization", "translation"
_MEDIA = (Modality.TABLE, Modality.IMAGE, Modality.AUDIO, Modality.VIDEO)
_ADDRESSED = re.compile(r"\b(?:you|your|yourself)\b")
_OF_RESULT = re.compile(r"\b(?:the|this|that|these|those|its|their|each|both|all|previous|resulting)\s+(?:[\w-]+\s+)?$")
_OF_WHAT = re.compile(r"\b(?:the|this|that|these|those|its|resulting|new)\s+$")


class TaskIntents:
    """Finds the task intents of clauses, given the offered tasks and the plan so far."""

    def __init__(
        self,
        catalogue: Catalogue,
        standard: Catalogue,
        lexicon: Lexicon,
        *,
        resources: Sequence[Resource],
        wording: Wording,
        builder: PlanBuilder,
    ) -> None:
        self._catalogue = catalogue
        self._standard = standard
        self._lexicon = lexicon
        self._resources = resources
        self._wording = wording
        self._builder = builder
        self._called: dict[str, frozenset[str]] = {}
        """Requested tasks, planned or not, with the stems of the words for them."""

    def steps(self, clause: Clause) -> list[Step]:
        """The steps a clause asks for, as data flows through them, else as they are named."""
        results = tuple(match for match in clause.matches if self._speaks_of_result(clause, match))
        meant = tuple(match for match in clause.matches if match not in results)
        clause = replace(clause, matches=meant, results=results)
        labels = arguments.labels(clause, self._wording)
        ordered: list[Step] = []
        for names, aspect in self._intents(clause, labels):
            step = self._step(names, aspect, clause, labels)
            later = (index for index, other in enumerate(ordered) if self._precedes(step, other))
            ordered.insert(next(later, len(ordered)), step)
        for step in ordered:
            self._note(step)
        return ordered

    def only_results(self, clause: Clause) -> bool:
        """Whether a clause names nothing but results of earlier ones."""
        return bool(clause.matches) and all(self._speaks_of_result(clause, match) for match in clause.matches)

    def offered(self, names: Sequence[str]) -> bool:
        """Whether one of the tasks is offered; the task of a question is found later."""
        return names == _QUESTION or any(name in self._catalogue for name in names)

    def spec(self, name: str) -> Spec | None:
        """A kind of task that is offered, or standard."""
        return self._catalogue.get(name) or self._standard.get(name)

    def _step(self, names: Sequence[str], aspect: str, clause: Clause, labels: Sequence[str]) -> Step:
        offered = next((name for name in names if name in self._catalogue), names[0])
        spec = self.spec(offered) or Spec(offered)
        if spec.name == "zero-shot-object-detection" and not labels:
            labels = arguments.things(clause)
        return Step(spec, clause, tuple(labels), aspect)

    def _precedes(self, step: Step, other: Step) -> bool:
        """Whether a step named later comes first, since the other takes its result."""
        if not feeds(step.spec, other.spec):
            return False
        return not feeds(other.spec, step.spec) or self._inner(step, other)

    def _inner(self, later: Step, earlier: Step) -> bool:
        """Whether a step named later is the object of one named before: "translate the summary"."""
        words = [
            self._wording.masked[match.start : match.end]
            for match in later.clause.matches
            if later.spec.name in match.tasks
        ]
        return earlier.spec.name != later.spec.name and any(arguments.NOUN.search(word) for word in words)

    # ------------------------------------------------------------ what is meant

    def _intents(self, clause: Clause, labels: Sequence[str]) -> list[TaskIntent]:
        intents = list(dict.fromkeys((match.tasks, match.aspect) for match in clause.matches))
        if bridging := {names[0] for names, _ in intents}.intersection(BRIDGES.values()):
            kinds = {kind for one in self._builder.media.every(clause) for kind in one.modalities[:1]}
            intents += [((name,), "") for kind, name in BRIDGES.items() if kind in kinds and name not in bridging]
        if len(intents) > 1:
            intents = [(names, aspect) for names, aspect in intents if aspect != "also"]
        if self._needs_speech({name for names, _ in intents for name in names}):
            intents.insert(0, ((_SPEAKING,), ""))
        if labels and not any(aspect == "sentiment" for _, aspect in intents):
            return self._with_labels(clause, intents)
        asks = clause.asks or any(payload.asks for payload in clause.payloads)
        if (_QUESTION, "") in intents or (not intents and asks):
            return self._with_question(clause, intents)
        return _with_translation(clause, intents)

    def _needs_speech(self, names: Collection[str]) -> bool:
        """Whether a text is to become a file of sound, which takes a recording of it first."""
        media = self._builder.media
        is_read_aloud = Modality.AUDIO not in media.kinds() and (media.has_text() or not media.kinds())
        return _SOUND_FILES in names and _SPEAKING not in names and is_read_aloud

    def _speaks_of_result(self, clause: Clause, match: Match) -> bool:
        """Whether the words mean what an earlier clause gave, as "the detected objects" and "the sketch" do."""
        called = [self._called[name] for name in match.tasks if name in self._called]
        if not called or any(mention.resource for mention in clause.mentions):
            return False
        before, words = self._wording.masked[: match.start], self._wording.masked[match.start : match.end]
        if _OF_RESULT.search(before) and arguments.RESULT.match(words):
            return True
        return bool(_OF_WHAT.search(before)) and any(stems(words) & known for known in called)

    def _note(self, step: Step) -> None:
        """Remembers by which words a task was called for: a later clause may call its result by them."""
        spans = [(match.start, match.end) for match in step.clause.matches if step.spec.name in match.tasks]
        words = " ".join(self._wording.masked[start:end] for start, end in spans)
        self._called[step.spec.name] = self._called.get(step.spec.name, frozenset()) | stems(words)

    def _with_labels(self, clause: Clause, intents: Sequence[TaskIntent]) -> list[TaskIntent]:
        """Classes that are named turn a classification into one that takes them."""
        others = [(names, aspect) for names, aspect in intents if not _CLASSIFYING.intersection(names)]
        if intents and len(others) == len(intents):
            return others
        subject = self._subject(clause) or Modality.TEXT
        return [*others, (_ZERO_SHOT.get(subject, _ZERO_SHOT[Modality.TEXT]), "")]

    def _with_question(self, clause: Clause, intents: Sequence[TaskIntent]) -> list[TaskIntent]:
        others = [(names, aspect) for names, aspect in intents if names != _QUESTION]
        if any(name.endswith("question-answering") for names, _ in others for name in names):
            return others
        return [*others, *((names, "") for names in self._answering(clause))]

    def _answering(self, clause: Clause) -> list[tuple[str, ...]]:
        """The tasks that can answer a question, by what it is about."""
        subject = self._subject(clause)
        if subject is Modality.IMAGE:
            return [(_DOCUMENTS,) if self._about_page(clause) else ("visual-question-answering", _DOCUMENTS)]
        if subject is Modality.TABLE:
            return [("table-question-answering",)]
        if subject is not None:
            return [("question-answering",)]
        return [CONVERSING] if any(name in self._catalogue for name in CONVERSING) else []

    def _about_page(self, clause: Clause) -> bool:
        """Whether a question about a picture is about the writing on it."""
        if _DOCUMENTS in self._called:
            return True
        names = " ".join(" ".join(resource.stem_words) for resource in self._resources)
        for words in (clause.words.lower(), self._wording.text.lower(), names):
            is_page, is_picture = self._lexicon.page.search(words), self._lexicon.nouns[Modality.IMAGE].search(words)
            if is_page or is_picture:
                return bool(is_page)
        pdfs = [resource.pdf for resource in self._resources if Modality.IMAGE in resource.modalities]
        return bool(pdfs) and all(pdfs)

    def _subject(self, clause: Clause) -> Modality | None:
        """What kind of thing a clause is about."""
        for mention in clause.mentions:
            if mention.modality is not Modality.UNSPECIFIED:
                return mention.modality
        there = self._builder.media.kinds()
        question = arguments.question(clause).lower()
        named = (clause.named | self._lexicon.named(question)) & there
        if subject := next((modality for modality in _MEDIA if modality in named), None):
            return subject
        if self._builder.texts.carried(clause):
            return Modality.TEXT
        if clause.says(self._lexicon.page) or self._lexicon.page.search(question):
            return Modality.IMAGE if Modality.IMAGE in there else None
        if subject := next((modality for modality in _MEDIA if modality in there), None):
            return subject
        stated = self._builder.texts.aside and not clause.says(_ADDRESSED)
        return Modality.TEXT if stated else None


def _with_translation(clause: Clause, intents: list[TaskIntent]) -> list[TaskIntent]:
    """Translates a summary that is requested in a language."""
    tasks = [names[0] for names, _ in intents]
    if _SUMMARIZING in tasks and _TRANSLATING not in tasks and clause.says(TARGET):
        intents.insert(tasks.index(_SUMMARIZING) + 1, ((_TRANSLATING,), ""))
    return intents

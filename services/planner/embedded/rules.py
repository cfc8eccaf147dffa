"""Reads a request by rules: its clauses, the steps that they call for, and a plan of these steps."""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from services.planner.embedded import note_texts
from services.planner.embedded.clauses import Clause, Reader, pieces, sentences
from services.planner.embedded.conditions import condition
from services.planner.embedded.limits import several
from services.planner.embedded.patterns import CERTAIN, LIKELY, WEAK, Lexicon, Match, lexicon
from services.planner.embedded.payloads import with_pasted
from services.planner.embedded.plan_builder import PlanBuilder
from services.planner.embedded.resources import Resource, resources
from services.planner.embedded.spelling import read_mended
from services.planner.embedded.steps import Step
from services.planner.embedded.task_intents import CONVERSING, TaskIntents
from services.planner.embedded.unsupported_orders import unsupported_orders
from services.planner.embedded.vocabulary import Vocabulary
from services.planner.embedded.wording import MARKED, QUOTE_MARK, Wording
from services.planner.plan import HARD_LIMIT, Note
from services.planner.request import Request
from services.planner.task_spec import Catalogue, Modality, Spec

SEVERAL = "several"
"""Aspect of words that call for a task only if there are several files or texts."""

_DETECTING = frozenset(("object-detection", "zero-shot-object-detection"))
_DONE_TO_RESULT = re.compile(
    r"\W*(?!(?:show|give|send|return|print|display|tell|see|have|get|save|want|need|use|provide|present|include|take)\b)"
    r"[a-z]+\s+(?:(?:me|us)\s+)?(?:the|this|that|its)\b"
)
"""Beginning of a clause that orders something to be done with a result; an answer does the excepted verbs anyway."""

_FURTHER_TEXT = re.compile(rf"\W*(?:and\s+)?(?:then|next|also|finally|afterwards)\s+{QUOTE_MARK}")
"""Beginning of a sentence that requests for another text what the sentence before requests."""

_INABILITY = re.compile(
    r"\b(?:i|we|he|she|they)(?:'m| am| are)? (?:can't|can not|cannot|couldn't|could not|unable to|not able to)\b"
)
"""A reason for a request."""

_SPEAKS = re.compile(rf"\w|{MARKED}")
"""A letter, a digit, a file or a quotation: punctuation alone calls for nothing."""

_CONFIDENCE = {CERTAIN: 0.9, LIKELY: 0.7}
_LEAST_CONFIDENCE = 0.5
_AMBIGUOUS = 0.7
"""Factor of the confidence if the words leave a choice."""


@dataclass(frozen=True)
class RuleReading:
    """What rules found in a request."""

    plan: PlanBuilder
    """With all steps added in their order."""
    notes: tuple[Note, ...]
    """On what rules could not plan."""
    confidence: float
    """0 to 1; 0 without tasks."""
    wording: Wording
    resources: tuple[Resource, ...]
    """The files and texts that the request may mean."""
    clauses: tuple[Clause, ...]
    steps: tuple[Step, ...]
    refused: frozenset[str] = frozenset()
    """Tasks that the request excludes."""
    is_final: bool = False
    """The learned graph is not consulted: a part of the request depends on a condition, nothing can be planned without
    further input, the request continues a conversation, or it means files by their numbers."""


class Rules:
    """Reads requests by words that are known to call for tasks."""

    def __init__(self, standard: Catalogue) -> None:
        self._standard = standard
        self._lexicon = lexicon()
        self._known: tuple[Catalogue, Vocabulary] | None = None

    def read(self, request: Request, catalogue: Catalogue) -> RuleReading:
        """Reads the last turn; its notes state what cannot be planned."""
        there = resources(request)
        wording = with_pasted(read_mended(request.text, there), self._lexicon)
        excluded = wording.excluded()
        there = tuple(one for one in there if one not in {mention.resource for mention in excluded})
        wording = wording.without(excluded)
        builder = PlanBuilder(catalogue, self._standard, self._lexicon, resources=there, wording=wording)
        task_intents = TaskIntents(
            catalogue, self._standard, self._lexicon, resources=there, wording=wording, builder=builder
        )
        return _RuleReader(
            self._vocabulary(catalogue),
            self._lexicon,
            resources=there,
            wording=wording,
            builder=builder,
            task_intents=task_intents,
        ).reading()

    def _vocabulary(self, catalogue: Catalogue) -> Vocabulary:
        known = self._known  # plans are made in several threads: another may meet another catalogue meanwhile
        if known is None or known[0] is not catalogue:
            self._known = known = catalogue, Vocabulary(catalogue, self._standard)
        return known[1]


class _RuleReader:
    """Reads one request; each step is added to the plan at once, since a later clause may mean what it makes."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        words: Lexicon,
        *,
        resources: Sequence[Resource],
        wording: Wording,
        builder: PlanBuilder,
        task_intents: TaskIntents,
    ) -> None:
        self._vocabulary = vocabulary
        self._lexicon = words
        self._resources = resources
        self._wording = wording
        self._builder = builder
        self._task_intents = task_intents
        self._reader = Reader(wording, words, self._find)
        self._clauses: list[Clause] = []
        self._steps: list[Step] = []
        self._confidence = [1.0]
        self._conditional = False
        self._is_beyond_tasks = False
        """A clause orders what no kind of task carries out."""
        self._left_open = False
        """The sentence before ends in what depends on a condition: so does a sequel to it."""

    def reading(self) -> RuleReading:
        stated: list[str] = []
        for start, end in self._sentences():
            clauses, open_ended = self._unconditional(start, end)
            self._builder.notes += open_ended
            self._left_open = bool(open_ended)
            self._conditional |= self._left_open
            self._clauses += clauses
            words = self._wording.text[start:end].strip()
            if not (clauses or open_ended) and _FURTHER_TEXT.match(self._wording.masked, start, end):
                self._builder.notes.append(note_texts.unknown(words))
            elif words and not (clauses or open_ended) and self._states(start, end):
                stated.append(words)
                self._builder.texts.aside = " ".join(stated)
            for clause in clauses:
                self._builder.texts.pass_by(clause, self._clauses)
                self._plan(clause)
            if max(len(self._clauses), len(self._steps)) > HARD_LIMIT:  # each takes longer than the one before
                self._builder.notes.append(note_texts.unread(self._wording.text[end:].strip()))
                break
        has_tasks = bool(self._builder.tasks)
        asks_back = self._is_beyond_tasks or self._builder.asks_back
        return RuleReading(
            plan=self._builder,
            notes=tuple(self._builder.notes),
            confidence=min(self._confidence) if has_tasks else 0.0,
            wording=self._wording,
            resources=tuple(self._resources),
            clauses=tuple(self._clauses),
            steps=tuple(self._steps),
            refused=frozenset(self._reader.refused) - {step.spec.name for step in self._steps}
            | (_DETECTING if self._only_pdfs else frozenset()),
            is_final=self._conditional
            or self._is_small_talk()
            or (self._continues() or self._distinguishes_files() if has_tasks else asks_back),
        )

    def _is_small_talk(self) -> bool:
        """Whether the whole request is small talk that no task answers."""
        return bool(self._lexicon.chat.fullmatch(self._wording.masked.strip())) and not self._task_intents.offered(
            CONVERSING
        )

    def _sentences(self) -> list[tuple[int, int]]:
        """Spans of the sentences; "I can't read this" is a request only if no other sentence is."""
        masked = self._wording.masked
        found = [span for span in sentences(masked) if not self._lexicon.chat.fullmatch(masked[slice(*span)])]
        others = [span for span in found if not _INABILITY.search(masked, *span)]
        return others if len(others) < len(found) and any(self._read(*span) for span in others) else found

    def _continues(self) -> bool:
        """Whether all files and texts come from earlier turns."""
        return bool(self._resources) and all(one.age for one in self._resources) and not self._wording.payloads

    def _distinguishes_files(self) -> bool:
        """Whether each clause means one of several files by its number, for which the learned graph has no feature."""
        media = self._builder.media
        kinds = media.sent_kinds()
        return all(any(media.numbered(clause, modality) for modality in kinds) for clause in self._clauses)

    # ------------------------------------------------------------ reading

    def _read(self, start: int, end: int) -> list[Clause]:
        at_hand = self._at_hand(start, end)
        clauses = self._reader.clauses(start, end, at_hand)
        made = {port.modality for clause in clauses for spec in self._specs(clause.matches) for port in spec.outputs}
        return clauses if made <= at_hand else self._reader.clauses(start, end, at_hand | made)

    def _unconditional(self, start: int, end: int) -> tuple[list[Clause], list[Note]]:
        """What a sentence requests unconditionally, and a note on what depends on a condition."""
        clauses = self._read(start, end)
        if clauses and clauses[0].sequel and self._left_open:
            return [], [note_texts.conditional(self._excerpt(start, end))]
        found = condition(self._wording.masked, start, end, self._lexicon)
        if found is not None and not clauses and self._lexicon.verb.search(self._wording.masked, start, end):
            return [], [note_texts.conditional(self._excerpt(start, end))]
        if found is None or not clauses:
            return clauses, []
        before = self._read(start, found.start) if self._wording.masked[start : found.start].strip() else []
        depends = found.start
        if not found.leads:
            last = max(before, key=lambda clause: clause.start, default=None)
            if last and last.asks:
                return clauses, []
            before = [clause for clause in before if clause is not last]
            depends = last.start if last else start
        return before, [note_texts.conditional(self._excerpt(depends, end))]

    def _excerpt(self, start: int, end: int) -> str:
        return self._wording.text[start:end].strip(" \t\n,;:.")

    def _at_hand(self, start: int, end: int) -> set[Modality]:
        """The modalities that a sentence may be about: those it names, else all."""
        words = self._wording.masked[start:end]
        named = set(self._lexicon.named(words))
        there = self._builder.media.kinds()
        if self._lexicon.page.search(words):
            named |= {Modality.IMAGE, Modality.TEXT} & there or {Modality.IMAGE, Modality.TEXT}
        settled = (named - {Modality.TEXT}) & (there or named)
        return named if settled else named | there

    def _find(self, start: int, end: int, at_hand: Collection[Modality] | None) -> list[Match]:
        masked = self._wording.masked
        if not _SPEAKS.search(masked, start, end):
            return []
        found = self._lexicon.find(masked, start, end, at_hand)
        if self._only_pdfs:
            found = [match for match in found if match.tasks[0] not in _DETECTING]
        if not self._several:
            found = [match for match in found if match.aspect != SEVERAL]
        found += self._vocabulary.by_name(masked, start, end)
        for first, last in pieces(masked, start, end):
            found += self._vocabulary.by_words(masked, first, last)
        misspelt = [match for match in found if self._is_misspelt(match)]
        most = WEAK if len(misspelt) < len(found) else LIKELY
        return [
            replace(
                match,
                offered=self._task_intents.offered(match.tasks),
                weight=min(match.weight, most) if match in misspelt else match.weight,
            )
            for match in found
        ]

    def _is_misspelt(self, match: Match) -> bool:
        """Whether a corrected typo is part of it: weaker evidence, which loses to any word as it was written."""
        return any(match.start < end and start < match.end for start, end in self._wording.mended)

    @property
    def _several(self) -> bool:
        """Whether there are several files or texts, so that they can be compared or added up."""
        return several(self._resources, self._wording)

    @property
    def _only_pdfs(self) -> bool:
        """Whether all pictures are documents: how many there are of something is then said in their text."""
        pictures = [one for one in self._resources if Modality.IMAGE in one.modalities]
        return bool(pictures) and all(one.pdf for one in pictures)

    def _specs(self, matches: Collection[Match]) -> Iterator[Spec]:
        for match in matches:
            yield from (spec for name in match.tasks[:1] if (spec := self._task_intents.spec(name)))

    def _states(self, start: int, end: int) -> bool:
        conversation = self._lexicon.chat.fullmatch(self._wording.masked[start:end])
        return self._reader.states(start, end) and not conversation

    # ------------------------------------------------------------ planning

    def _plan(self, clause: Clause) -> None:
        steps = self._task_intents.steps(clause)
        if not steps:
            self._builder.notes += self._not_planned(clause)
        else:
            stretches = unsupported_orders(clause, self._lexicon)
            self._builder.notes += [note_texts.beyond_tasks(self._excerpt(*stretch)) for stretch in stretches]
        for step in steps:
            self._steps.append(step)
            self._builder.add(step)
            self._confidence.append(self._certainty(clause))

    def _not_planned(self, clause: Clause) -> list[Note]:
        if clause.asks and not self._resources:
            return [note_texts.question_without_text(clause.words)]
        if stretches := list(unsupported_orders(clause, self._lexicon)):
            self._is_beyond_tasks = True
            return [note_texts.beyond_tasks(self._excerpt(*stretch)) for stretch in stretches]
        aside = self._lexicon.aside.fullmatch(clause.masked.strip(" .,!?"))
        if self._task_intents.only_results(clause):
            return [note_texts.unknown(clause.words)] if _DONE_TO_RESULT.match(clause.masked) else []
        return [] if aside or clause.matches or not clause.words else [note_texts.unknown(clause.words)]

    def _certainty(self, clause: Clause) -> float:
        weights = [match.weight for match in clause.matches] or [LIKELY]
        certainty = _CONFIDENCE.get(min(max(weights), CERTAIN), _LEAST_CONFIDENCE)
        return certainty * (_AMBIGUOUS if self._builder.media.ambiguous else 1)

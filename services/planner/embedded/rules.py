"""What rules make of a request: clauses, what they call for, and what they work on."""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from services.planner.embedded import note_texts
from services.planner.embedded.clauses import Clause, Reader, pieces, sentences
from services.planner.embedded.conditions import condition
from services.planner.embedded.outside import outside
from services.planner.embedded.patterns import CERTAIN, LIKELY, WEAK, Lexicon, Match, lexicon
from services.planner.embedded.payloads import with_pasted
from services.planner.embedded.plan_builder import PlanBuilder
from services.planner.embedded.resources import Resource, resources
from services.planner.embedded.spelling import read_mended
from services.planner.embedded.steps import Step
from services.planner.embedded.task_intents import TaskIntents
from services.planner.embedded.vocabulary import Vocabulary, common_words
from services.planner.embedded.wording import MARKED, QUOTE_MARK, Wording
from services.planner.plan import HARD_LIMIT, Decision, Draft, Note
from services.planner.request import Request
from services.planner.task_spec import Catalogue, Modality, Spec

CONTROLLER = "embedded"

SEVERAL = "several"
"""Aspect of words that call for a task only where there are several files or texts."""

_DETECTING = frozenset(("object-detection", "zero-shot-object-detection"))
_WHOLE = frozenset(
    (
        "summarization",
        "image-to-text",
        "text-to-speech",
        "automatic-speech-recognition",
        "text-classification",
        "token-classification",
        "translation",
    )
)
"""Tasks that take all of a text, recording or document."""
_PART = re.compile(
    r"\b(?:first|second|third|fourth|last|next)\s+(?:\w+\s+)?"
    r"(?:pages?|paragraphs?|sections?|chapters?|sentences?|lines?|half|minutes?|seconds?)\b"
    r"|\b(?:page|paragraph|section|chapter|line)s?\s+\d+\b"
)
_COUNTING = frozenset(("object-detection", "text-statistics", "page-count"))
_IN_TOTAL = re.compile(r"\b(?:in\s+(?:total|all|sum)|altogether|all\s+together|combined|overall)\b")
_PDF = re.compile(r"\bpdfs?\b")
_DONE_TO_RESULT = re.compile(
    r"\W*(?!(?:show|give|send|return|print|display|tell|see|have|get|save|want|need|use|provide|present|include|take)\b)"
    r"[a-z]+\s+(?:(?:me|us)\s+)?(?:the|this|that|its)\b"
)
"""How a clause begins that wants something done to a result; what is left out an answer does anyway."""

_FURTHER_TEXT = re.compile(rf"\W*(?:and\s+)?(?:then|next|also|finally|afterwards)\s+{QUOTE_MARK}")
"""How a sentence begins that wants for another text what the one before wants."""

_INABILITY = re.compile(
    r"\b(?:i|we|he|she|they)(?:'m| am| are)? (?:can't|can not|cannot|couldn't|could not|unable to|not able to)\b"
)
"""A reason why something is asked for."""

_SPEAKS = re.compile(rf"\w|{MARKED}")
"""A letter, a digit, a file or a quotation: punctuation alone calls for nothing."""

_CONFIDENCE = {CERTAIN: 0.9, LIKELY: 0.7}
_LEAST_CONFIDENCE = 0.5
_AMBIGUOUS = 0.7
"""What is left of the confidence where the words left a choice."""


@dataclass(frozen=True)
class RuleDraft:
    """A draft by rules, with what it was made from."""

    draft: Draft
    wording: Wording
    resources: tuple[Resource, ...]
    clauses: tuple[Clause, ...]
    steps: tuple[Step, ...]
    refused: frozenset[str] = frozenset()
    """Tasks the words say not to do."""
    settled: bool = False
    """Nothing learned can tell better: some words hold only in a case that a plan cannot know, all that is asked for
    needs input that was not sent, or the request continues a conversation."""


class Rules:
    """Plans a request by words that are known to call for tasks."""

    def __init__(self, standard: Catalogue) -> None:
        self._standard = standard
        self._lexicon = lexicon()
        self._known: tuple[Catalogue, Vocabulary] | None = None

    def draft(self, request: Request, catalogue: Catalogue) -> RuleDraft:
        """A plan for the last turn; what cannot be planned is in its notes."""
        there = resources(request)
        wording = with_pasted(read_mended(request.text, there), self._lexicon)
        excluded = wording.excluded()
        there = tuple(one for one in there if one not in {mention.resource for mention in excluded})
        wording = wording.without(excluded)
        builder = self._builder(wording, there, catalogue)
        task_intents = TaskIntents(
            catalogue, self._standard, self._lexicon, resources=there, wording=wording, builder=builder
        )
        return _Planning(
            self._vocabulary(catalogue),
            self._lexicon,
            resources=there,
            wording=wording,
            builder=builder,
            task_intents=task_intents,
        ).drafted()

    def builder(self, drafted: RuleDraft, catalogue: Catalogue) -> PlanBuilder:
        """One to plan the same words anew with."""
        return self._builder(drafted.wording, drafted.resources, catalogue)

    def _builder(self, wording: Wording, there: Sequence[Resource], catalogue: Catalogue) -> PlanBuilder:
        return PlanBuilder(catalogue, self._standard, self._lexicon, resources=there, wording=wording)

    def _vocabulary(self, catalogue: Catalogue) -> Vocabulary:
        known = self._known  # plans are made in several threads: another may meet another catalogue meanwhile
        if known is None or known[0] is not catalogue:
            self._known = known = catalogue, Vocabulary(catalogue, self._standard)
        return known[1]


class _Planning:
    """One request on its way to a plan."""

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
        """A clause asks for what no task does."""
        self._left_open = False
        """The sentence before ends in what depends on a condition: so does what comes then."""

    def drafted(self) -> RuleDraft:
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
        tasks, notes = self._builder.tasks, self._builder.notes
        if tasks:
            notes += list(self._unused(notes))
        if not tasks and not notes:
            notes = [self._without_tasks()]
        draft = Draft(tuple(tasks), tuple(dict.fromkeys(notes)), self._decision())
        return RuleDraft(
            draft,
            self._wording,
            tuple(self._resources),
            tuple(self._clauses),
            tuple(self._steps),
            frozenset(self._reader.refused) - {step.spec.name for step in self._steps}
            | (_DETECTING if self._only_pdfs else frozenset()),
            self._conditional
            or (self._is_beyond_tasks and not tasks)
            or (self._builder.asks_back and not tasks)
            or (bool(tasks) and (self._continues() or self._tells_apart())),
        )

    def _sentences(self) -> list[tuple[int, int]]:
        """Spans of the sentences; "I can't read this" is a request only if no other sentence is."""
        masked = self._wording.masked
        found = [span for span in sentences(masked) if not self._lexicon.chat.fullmatch(masked[slice(*span)])]
        others = [span for span in found if not _INABILITY.search(masked, *span)]
        return others if len(others) < len(found) and any(self._read(*span) for span in others) else found

    def _continues(self) -> bool:
        """Whether all there is to work on comes from earlier turns."""
        return bool(self._resources) and all(one.age for one in self._resources) and not self._wording.payloads

    def _tells_apart(self) -> bool:
        """Whether each task is for one of several files, by its number, which what was learned knows nothing of."""
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
        """What a sentence asks for whatever may be the case, and a note on what depends on a condition."""
        clauses = self._read(start, end)
        if clauses and clauses[0].sequel and self._left_open:
            return [], [note_texts.conditional(self._said(start, end))]
        found = condition(self._wording.masked, start, end, self._lexicon)
        if found is not None and not clauses and self._lexicon.verb.search(self._wording.masked, start, end):
            return [], [note_texts.conditional(self._said(start, end))]
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
        return before, [note_texts.conditional(self._said(depends, end))]

    def _said(self, start: int, end: int) -> str:
        return self._wording.text[start:end].strip(" \t\n,;:.")

    def _at_hand(self, start: int, end: int) -> set[Modality]:
        """What a sentence may be about: what it names, else all there is."""
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
        return [
            replace(match, offered=self._task_intents.offered(match.tasks), weight=self._weight(match))
            for match in found
        ]

    def _weight(self, match: Match) -> int:
        """Its weight; a typo is weak evidence that loses to any word as it was written."""
        mended = any(match.start < end and start < match.end for start, end in self._wording.mended)
        return WEAK if mended else match.weight

    @property
    def _several(self) -> bool:
        """Whether there are several files or texts, so that they can be compared or added up."""
        contents = [payload for payload in self._wording.payloads if not payload.asks]
        return sum(not one.age for one in self._resources) + len(contents) > 1

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
            stretches = outside(clause, self._lexicon)
            self._builder.notes += [note_texts.beyond_tasks(self._said(*stretch)) for stretch in stretches]
            if self._is_about_part(clause, steps):
                self._builder.notes.append(note_texts.whole_only(clause.words))
            if self._several and clause.says(_IN_TOTAL) and any(step.spec.name in _COUNTING for step in steps):
                self._builder.notes.append(note_texts.counted_each(clause.words))
        for step in steps:
            self._steps.append(step)
            self._builder.add(step)
            self._confidence.append(self._certainty(clause))

    def _is_about_part(self, clause: Clause, steps: Sequence[Step]) -> bool:
        """Whether a clause is about a page or another part of what was sent, and its task takes the whole."""
        is_single = sum(not one.age for one in self._resources) == 1
        return is_single and clause.says(_PART) and any(step.spec.name in _WHOLE for step in steps)

    def _not_planned(self, clause: Clause) -> list[Note]:
        if clause.asks and not self._resources:
            return [note_texts.question_without_text(clause.words)]
        if stretches := list(outside(clause, self._lexicon)):
            self._is_beyond_tasks = True
            return [note_texts.beyond_tasks(self._said(*stretch)) for stretch in stretches]
        aside = self._lexicon.aside.fullmatch(clause.masked.strip(" .,!?"))
        if self._task_intents.only_results(clause):
            return [note_texts.unknown(clause.words)] if _DONE_TO_RESULT.match(clause.masked) else []
        return [] if aside or clause.matches or not clause.words else [note_texts.unknown(clause.words)]

    def _without_tasks(self) -> Note:
        masked, words = self._wording.masked.strip(), self._wording.text.strip()
        if self._lexicon.chat.fullmatch(masked):
            kinds = (kind for kind, part in self._lexicon.small_talk.items() if part.search(masked))
            return note_texts.small_talk(words, next(kinds))
        if not common_words(masked):
            return note_texts.not_understood(words)
        return note_texts.without_request(words, self._resources)

    def _unused(self, notes: Sequence[Note]) -> Iterator[Note]:
        """What to say of the files that were sent for nothing."""
        words = " ".join(note.text for note in notes)
        unused = [resource for resource in self._builder.media.unused() if resource.names[0] not in words]
        if meant := self._meant(unused):
            yield note_texts.overlooked(meant)
        if left := [resource for resource in unused if resource not in meant]:
            yield note_texts.left_out(left)

    def _meant(self, unused: Sequence[Resource]) -> list[Resource]:
        """The files of which the request speaks: by name, by kind, or by speaking of all."""
        media, masked = self._builder.media, self._wording.masked
        by_name = [mention.resource for mention in self._wording.mentions]
        together = [resource for clause in self._clauses for resource in media.every(clause)] if unused else []
        kinds = self._lexicon.named(masked) - media.used_kinds() - {Modality.TEXT}
        pdfs = bool(_PDF.search(masked))
        return [
            one
            for one in unused
            if one in by_name or one in together or kinds.intersection(one.modalities[:1]) or (pdfs and one.pdf)
        ]

    # ------------------------------------------------------------ how sure

    def _certainty(self, clause: Clause) -> float:
        weights = [match.weight for match in clause.matches] or [LIKELY]
        certainty = _CONFIDENCE.get(min(max(weights), CERTAIN), _LEAST_CONFIDENCE)
        return certainty * (_AMBIGUOUS if self._builder.media.ambiguous else 1)

    def _decision(self) -> Decision:
        tasks, clauses, notes = len(self._builder.tasks), len(self._clauses), len(self._builder.notes)
        reason = f"Planned by rules, without an LLM: tasks {tasks}, clauses {clauses}, left open {notes}."
        return Decision(CONTROLLER, reason, round(min(self._confidence), 2) if tasks else 0.0)

"""A finished plan of the embedded planner: its tasks, the notes that apply to them, and its decision."""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from services.planner.embedded import note_texts
from services.planner.embedded.limits import limit_notes, several
from services.planner.embedded.patterns import lexicon
from services.planner.embedded.plan_builder import LONGEST_SOURCE, PlanBuilder
from services.planner.embedded.resources import Resource
from services.planner.embedded.rules import RuleReading
from services.planner.embedded.vocabulary import common_words
from services.planner.plan import Decision, Draft, Note, NoteKind
from services.planner.task_spec import Modality

CONTROLLER = "embedded"

GUESS = 0.5
"""Confidence below which a plan may well be wrong: the rules' notes on its words still apply."""

_PDF = re.compile(r"\bpdfs?\b")


def finished(plan: PlanBuilder, rules: RuleReading, *, confidence: float, is_guess: bool = False) -> Draft:
    """Returns a plan with its notes and its decision.

    Args:
        plan: that of the rules, or another of the same request.
        rules: what rules found in the request.
        confidence: of the plan, 0 to 1.
        is_guess: whether the plan may well be wrong.
    """
    notes = tuple(_notes(plan, rules, is_guess=is_guess))
    reason = (
        "Planned without an LLM, by rules and by what was learned from labelled requests:"
        f" tasks {len(plan.tasks)}, left open {len(notes)}."
    )
    draft = Draft(tuple(plan.tasks), notes, Decision(CONTROLLER, reason), plan.intents)
    return with_confidence(draft, confidence)


def with_confidence(draft: Draft, confidence: float) -> Draft:
    """Returns a plan with another confidence, 0 to 1; that of a plan without tasks is 0."""
    return replace(draft, decision=replace(draft.decision, confidence=round(confidence, 2) if draft.tasks else 0.0))


def _notes(plan: PlanBuilder, rules: RuleReading, *, is_guess: bool) -> list[Note]:
    both_have_tasks = plan.tasks and rules.plan.tasks
    of_rules = rules.notes or (() if both_have_tasks else (_without_tasks(rules),))
    if not plan.tasks:
        return list(dict.fromkeys(of_rules))
    planned = set() if is_guess else {task.source for task in plan.tasks}
    planned |= {note.span for note in plan.notes}
    used = [name for resource in rules.resources if plan.media.uses(resource) for name in resource.names]
    notes = [*plan.notes, *(note for note in of_rules if _applies(note, planned, used))]
    notes += _on_limits(plan, rules)
    notes += _on_unused(plan, rules, notes)
    return list(dict.fromkeys(notes))


def _applies(note: Note, planned: Collection[str], used: Collection[str]) -> bool:
    """Whether a note of the rules is about words and files that the plan does not use."""
    about_used = note.span in planned or any(name in note.text for name in used)
    return note.kind is not NoteKind.CHAT and not about_used


def _on_limits(plan: PlanBuilder, rules: RuleReading) -> Iterator[Note]:
    """Notes on what the tasks leave out of the words that they come from."""
    masked = {clause.words[:LONGEST_SOURCE]: clause.masked for clause in rules.clauses}
    whole = rules.wording.text.strip()[:LONGEST_SOURCE], rules.wording.masked
    has_several = several(rules.resources, rules.wording)
    return limit_notes(plan.tasks, dict([whole]) | masked, rules.resources, has_several=has_several)


def _without_tasks(rules: RuleReading) -> Note:
    masked, words = rules.wording.masked.strip(), rules.wording.text.strip()
    if lexicon().chat.fullmatch(masked):
        kinds = (kind for kind, part in lexicon().small_talk.items() if part.search(masked))
        return note_texts.small_talk(words, next(kinds))
    if not common_words(masked):
        return note_texts.not_understood(words)
    return note_texts.without_request(words, rules.resources)


def _on_unused(plan: PlanBuilder, rules: RuleReading, notes: Sequence[Note]) -> Iterator[Note]:
    """Notes on files that no task takes and no other note names."""
    text = " ".join(note.text for note in notes)
    unused = [resource for resource in plan.media.unused() if resource.names[0] not in text]
    meant = _meant(unused, plan, rules)
    if meant:
        yield note_texts.overlooked(meant)
    if rest := [resource for resource in unused if resource not in meant]:
        yield note_texts.left_out(rest)


def _meant(unused: Sequence[Resource], plan: PlanBuilder, rules: RuleReading) -> list[Resource]:
    """The files that the request refers to: by name, by kind, or by "all"."""
    masked = rules.wording.masked
    by_name = [mention.resource for mention in rules.wording.mentions]
    together = [resource for clause in rules.clauses for resource in plan.media.every(clause)] if unused else []
    kinds = lexicon().named(masked) - plan.media.used_kinds() - {Modality.TEXT}
    pdfs = bool(_PDF.search(masked))
    return [
        one
        for one in unused
        if one in by_name or one in together or kinds.intersection(one.modalities[:1]) or (pdfs and one.pdf)
    ]

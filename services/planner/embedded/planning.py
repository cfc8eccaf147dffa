"""The planner without an LLM: rules and a learned graph."""

from dataclasses import replace

from services.planner.embedded.corrections import apply_correction
from services.planner.embedded.follow_ups import complete
from services.planner.embedded.foreign.planner import planned as in_any_language
from services.planner.embedded.implied_questions import implied_question
from services.planner.embedded.learned.weights import Weights, weights
from services.planner.embedded.merging import ANSWERING, merged
from services.planner.embedded.note_texts import unclear_correction
from services.planner.embedded.patterns import lexicon
from services.planner.embedded.plan_builder import BRIDGES, LONGEST_SOURCE
from services.planner.embedded.plan_notes import CONTROLLER
from services.planner.embedded.retrieval_templates import unwrap
from services.planner.embedded.rules import Rules
from services.planner.plan import Decision, Draft
from services.planner.request import Request
from services.planner.task_spec import Catalogue

_READING = ANSWERING.union(BRIDGES.values())
"""Tasks of a plan that answers a question."""

_UNCLEAR_CORRECTION = "Asked back without an LLM: a correction does not show what it replaces."


class Embedded:
    """Plans requests by their words: rules find steps and arguments, the learned graph corrects tasks and links.

    Args:
        standard: the standard kinds of task.
        learned: the trained weights; by default those of the package.
    """

    def __init__(self, standard: Catalogue, learned: Weights | None = None) -> None:
        self._rules = Rules(standard)
        self._learned = learned or weights()

    def plan(self, request: Request, catalogue: Catalogue) -> Draft:
        """Plans the last turn, in any language; the notes state what cannot be planned."""
        own = unwrap(request)
        draft = in_any_language(own, lambda english: self._plan(english, catalogue, is_own=english is own))
        return replace(draft, decision=replace(draft.decision, version=self._learned.version))

    def _plan(self, request: Request, catalogue: Catalogue, *, is_own: bool) -> Draft:
        """Plans a request in English.

        Args:
            request: the request.
            catalogue: the offered tasks.
            is_own: whether the words are the user's, not a rendering of another language.
        """
        corrected = apply_correction(request)
        if corrected is None:
            return Draft((), (unclear_correction(request.text),), Decision(CONTROLLER, _UNCLEAR_CORRECTION))
        reading = self._rules.read(complete(corrected), catalogue)
        draft = merged(reading, self._learned)
        if draft.tasks or not (is_own and (question := implied_question(reading, lexicon()))):
            return draft
        return self._as_question(corrected, question, catalogue) or draft

    def _as_question(self, request: Request, question: str, catalogue: Catalogue) -> Draft | None:
        """The plan of a question about texts and documents that were sent; None if no task can answer it."""
        last = replace(request.conversation[-1], text=f"Answer the question “{question}”")
        reading = self._rules.read(replace(request, conversation=(*request.conversation[:-1], last)), catalogue)
        draft = merged(reading, self._learned)
        tasks = tuple(replace(task, source=question[:LONGEST_SOURCE]) for task in draft.tasks)
        return replace(draft, tasks=tasks) if tasks and all(task.task in _READING for task in tasks) else None

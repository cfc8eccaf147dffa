"""The planner without an LLM: rules and a learned graph."""

from dataclasses import replace

from services.planner.embedded.corrections import apply_correction
from services.planner.embedded.follow_ups import complete
from services.planner.embedded.foreign.planner import planned as in_any_language
from services.planner.embedded.learned.weights import Weights, weights
from services.planner.embedded.merging import merged
from services.planner.embedded.note_texts import unclear_correction
from services.planner.embedded.plan_notes import CONTROLLER
from services.planner.embedded.retrieval_templates import unwrap
from services.planner.embedded.rules import Rules
from services.planner.plan import Decision, Draft
from services.planner.request import Request
from services.planner.task_spec import Catalogue

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
        draft = in_any_language(unwrap(request), lambda english: self._plan(english, catalogue))
        return replace(draft, decision=replace(draft.decision, version=self._learned.version))

    def _plan(self, request: Request, catalogue: Catalogue) -> Draft:
        corrected = apply_correction(request)
        if corrected is None:
            return Draft((), (unclear_correction(request.text),), Decision(CONTROLLER, _UNCLEAR_CORRECTION))
        return merged(self._rules.read(complete(corrected), catalogue), self._learned)

"""The planner without an LLM: rules and a learned graph."""

from dataclasses import replace

from services.planner.embedded.blending import agreement, hints, only_asks, standing
from services.planner.embedded.corrections import apply_correction
from services.planner.embedded.follow_ups import complete
from services.planner.embedded.foreign.planner import planned as in_any_language
from services.planner.embedded.graph_builder import Builder, lacks_more, with_notes
from services.planner.embedded.intents import intents_of
from services.planner.embedded.learned.reading import Reading, read
from services.planner.embedded.learned.weights import Weights, weights
from services.planner.embedded.learned.words import Token, tokens
from services.planner.embedded.note_texts import unclear_correction
from services.planner.embedded.retrieval_templates import unwrap
from services.planner.embedded.rules import CONTROLLER, RuleDraft, Rules
from services.planner.plan import Decision, Draft
from services.planner.request import Request
from services.planner.task_spec import Catalogue

_UNCLEAR_CORRECTION = "Asked back without an LLM: a correction does not show what it replaces."


class Embedded:
    """Plans a request by its words: rules draft, the learned graph decides, rules find the arguments.

    Args:
        standard: the standard kinds of task.
        learned: the trained weights; by default those of the package.
    """

    def __init__(self, standard: Catalogue, learned: Weights | None = None) -> None:
        self._rules = Rules(standard)
        self._learned = learned or weights()
        self._places = {name: place for place, name in enumerate(self._learned.intents)}

    def plan(self, request: Request, catalogue: Catalogue) -> Draft:
        """A plan for the last turn, in whatever language; what cannot be planned is in its notes."""
        draft = in_any_language(unwrap(request), lambda english: self._plan(english, catalogue))
        return replace(draft, decision=replace(draft.decision, version=self._learned.version))

    def _plan(self, request: Request, catalogue: Catalogue) -> Draft:
        corrected = apply_correction(request)
        if corrected is None:
            return Draft((), (unclear_correction(request.text),), Decision(CONTROLLER, _UNCLEAR_CORRECTION))
        drafted = self._rules.draft(complete(corrected), catalogue)
        if drafted.settled or not self._knows(drafted):
            return drafted.draft
        known = hints(drafted, self._places)
        found = tokens(drafted.wording)
        reading = read(found, known, self._learned)
        certainty, agreed = standing(reading, known, asks=only_asks(drafted)), agreement(reading, known)
        if certainty is not None:
            return _with_decision(drafted.draft, certainty * agreed)
        draft, certainty = self._built(drafted, reading, found, catalogue)
        return _with_decision(draft, certainty * agreed)

    def _knows(self, drafted: RuleDraft) -> bool:
        """Whether the learned graph knows all intents that rules found; otherwise it would omit some."""
        return set(intents_of(drafted.draft).values()) <= self._places.keys()

    def _built(
        self, drafted: RuleDraft, reading: Reading, found: list[Token], catalogue: Catalogue
    ) -> tuple[Draft, float]:
        """The plan of the learned graph, or of the rules if the graph leaves out more, and how certain it is."""
        builder = Builder(drafted, self._rules.builder(drafted, catalogue), self._learned.intents)
        built = builder.build(reading, [token.start for token in found])
        if drafted.draft.tasks and reading.graph.intents and lacks_more(built, drafted.draft):
            return drafted.draft, drafted.draft.decision.confidence
        return with_notes(drafted, built, reading.probability), reading.probability


def _with_decision(draft: Draft, certainty: float) -> Draft:
    reason = (
        f"Planned without an LLM, by rules and by what was learned from labelled requests: tasks {len(draft.tasks)},"
        f" left open {len(draft.notes)}."
    )
    confidence = round(certainty, 2) if draft.tasks else 0.0
    return replace(draft, decision=Decision(CONTROLLER, reason, confidence))

"""The planner without an LLM: rules and what was learned, in milliseconds."""

from dataclasses import replace

from services.planner.embedded.building import Builder, lacks_more, with_remarks
from services.planner.embedded.follow_ups import complete
from services.planner.embedded.foreign.planned import planned as in_any_language
from services.planner.embedded.learned.reading import Reading, read
from services.planner.embedded.learned.weights import Weights, weights
from services.planner.embedded.learned.words import Token, tokens
from services.planner.embedded.rules import CONTROLLER, Drafted, Rules
from services.planner.embedded.senses import senses_of
from services.planner.embedded.weighing import agreement, hints, only_asks, standing
from services.planner.plan import Decision, Draft
from services.planner.request import Request
from services.planner.task_spec import Catalogue


class Embedded:
    """Plans a request by the words it is made of: rules draft, what was learned decides, rules find the arguments.

    Args:
        standard: the kinds of task that are settled for everybody.
        learned: what was learned; by default what comes with the planner.
    """

    def __init__(self, standard: Catalogue, learned: Weights | None = None) -> None:
        self._rules = Rules(standard)
        self._learned = learned or weights()
        self._places = {name: place for place, name in enumerate(self._learned.senses)}

    def plan(self, request: Request, catalogue: Catalogue) -> Draft:
        """A plan for the last turn, in whatever language; what cannot be planned is in its notes."""
        draft = in_any_language(request, lambda english: self._plan(english, catalogue))
        return replace(draft, decision=replace(draft.decision, version=self._learned.version))

    def _plan(self, request: Request, catalogue: Catalogue) -> Draft:
        drafted = self._rules.draft(complete(request), catalogue)
        if drafted.settled or not self._knows(drafted):
            return drafted.draft
        known = hints(drafted, self._places)
        found = tokens(drafted.wording)
        reading = read(found, known, self._learned)
        certainty, agreed = standing(reading, known, asks=only_asks(drafted)), agreement(reading, known)
        if certainty is not None:
            return _told(drafted.draft, certainty * agreed)
        draft, certainty = self._built(drafted, reading, found, catalogue)
        return _told(draft, certainty * agreed)

    def _knows(self, drafted: Drafted) -> bool:
        """Whether all that rules found could have been learned: else another graph would leave some of it out."""
        return set(senses_of(drafted.draft).values()) <= self._places.keys()

    def _built(
        self, drafted: Drafted, reading: Reading, found: list[Token], catalogue: Catalogue
    ) -> tuple[Draft, float]:
        """The plan of the learned graph, or of the rules if the graph leaves out more, and how certain it is."""
        builder = Builder(drafted, self._rules.weaver(drafted, catalogue), self._learned.senses)
        built = builder.build(reading, [token.start for token in found])
        if drafted.draft.tasks and reading.graph.senses and lacks_more(built, drafted.draft):
            return drafted.draft, drafted.draft.decision.confidence
        return with_remarks(drafted, built, reading.probability), reading.probability


def _told(draft: Draft, certainty: float) -> Draft:
    reason = (
        f"Planned without an LLM, by rules and by what was learned from labelled requests: tasks {len(draft.tasks)},"
        f" left open {len(draft.notes)}."
    )
    confidence = round(certainty, 2) if draft.tasks else 0.0
    return replace(draft, decision=Decision(CONTROLLER, reason, confidence))

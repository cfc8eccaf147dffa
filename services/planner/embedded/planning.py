"""The planner without an LLM: rules and what was learned, in milliseconds."""

from services.planner.embedded.foreign.planned import planned as in_any_language
from services.planner.embedded.rules import Rules
from services.planner.plan import Catalogue, Draft
from services.planner.request import Request


class Embedded:
    """Plans a request by the words it is made of."""

    def __init__(self, standard: Catalogue) -> None:
        self._rules = Rules(standard)

    def plan(self, request: Request, catalogue: Catalogue) -> Draft:
        """A plan for the last turn, in whatever language; what cannot be planned is in its notes."""
        return in_any_language(request, lambda english: self._plan(english, catalogue))

    def _plan(self, request: Request, catalogue: Catalogue) -> Draft:
        return self._rules.draft(request, catalogue).draft

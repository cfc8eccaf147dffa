"""Chooses models: leaves out what may not be used, ranks the rest, and says why."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from protos.hugginggpt.v1.task_pb2 import TaskSpec
from services.common.errors import InvalidRequest
from services.llm.usage import Usage
from services.selector import routing, selection_errors
from services.selector.catalog import Catalog
from services.selector.query import Avoid, Mode, Wanted
from services.selector.ranking import Favour, Ranked, Wish, Word
from services.selector.replica import Replica
from services.selector.routing_table import Table
from services.selector.task_offers import Offer, Shelf
from services.selector.tokens import words

CANDIDATES = 5

_SOURCE_WEIGHT, _REQUEST_WEIGHT = 1.0, 0.25
"""Of the words that the task came from, and of the rest of the request's."""

_OWN_LABELS = frozenset({"labels", "objects", "entities"})
"""Outputs that can only say what the model was made to say."""
_CLEAR_FIT = 0.5


class Controller(StrEnum):
    """Who chose."""

    PINNED = "pinned"
    ROUTED = "routed"
    """The deployment's routing table."""
    RANK = "rank"
    LLM = "llm"


@dataclass(frozen=True)
class Chosen:
    """A model in the list."""

    offer: Offer
    replicas: Sequence[Replica]
    """Where to call it, without those to avoid."""
    score: float
    """The ranking's."""
    reason: str
    failing: bool


@dataclass(frozen=True)
class Choice:
    """Models in the order in which to ask them, at least one."""

    spec: TaskSpec
    chosen: Sequence[Chosen]
    reason: str
    confidence: float
    """0: not estimated."""
    mode: Mode
    controller: Controller = Controller.RANK
    shadow: Chosen | None = None
    """Runs beside the first, for comparison."""
    llm_model: str = ""
    """The LLM asked, if one was."""
    fell_back_because: str = ""
    usage: Usage | None = None
    version: str = ""
    """Of the prompt by which it was asked."""


class Selector:
    """Chooses among the models of the catalogue, by ranking alone.

    Args:
        catalog: who offers what.
        standard: the kinds of task that are settled for everybody.
        mode: where models may be, unless the request says otherwise.
        region: where the house's own machines stand; empty: not said.
        table: what the operator has laid down.
    """

    def __init__(
        self,
        catalog: Catalog,
        standard: Mapping[str, TaskSpec],
        mode: Mode,
        region: str = "",
        table: Table = Table(),  # noqa: B008  # frozen
    ) -> None:
        self._catalog = catalog
        self._standard = standard
        self._mode = mode
        self._region = region
        self._table = table

    @property
    def revision(self) -> str:
        """Of the catalogue."""
        return self._catalog.view.revision

    def choose(self, wanted: Wanted) -> Choice:
        """The best models for a task.

        Raises:
            InvalidRequest: no task is named, or the limit is negative.
            NotFound: TASK, nobody offers it; MODEL, the pinned one is not there or none satisfies the constraints.
            FailedPrecondition: POLICY, only policy, mode or the routing table stand in the way.
        """
        if not wanted.task or wanted.limit < 0:
            raise InvalidRequest("a task and a limit of 0 or more are needed", remedy="name the task", port="task")
        shelf, route = self._shelf(wanted.task), self._table.route(wanted.task)
        mode = wanted.mode or self._mode
        admitted = self._admitted(shelf, wanted, mode)
        failing = (
            frozenset(i for i in admitted if _fails(shelf.offers[i], wanted.avoid)) if wanted.avoid else frozenset()
        )
        leading = self._leading(shelf, wanted, admitted, failing)
        favours = routing.together(leading, routing.scored(self._table, wanted.task, shelf.offers))
        wish = Wish(_words(wanted), wanted.languages, internal_first=mode is Mode.HYBRID)
        ranked = shelf.ranking.best(wish, admitted, wanted.limit or CANDIDATES, failing, favours)
        same = [place for place in ranked if route.candidates or _means_the_same(shelf, ranked[0], place)]
        chosen = [_chosen(shelf, place, wanted.avoid, place.position in failing) for place in same]
        controller = Controller.PINNED if wanted.model else Controller.ROUTED if leading else Controller.RANK
        return Choice(
            spec=shelf.spec,
            chosen=chosen,
            reason=_summary(chosen, len(admitted), wanted),
            confidence=_confidence(chosen),
            mode=mode,
            controller=controller,
            shadow=self._shadow(shelf, wanted, mode),
        )

    def _leading(
        self, shelf: Shelf, wanted: Wanted, admitted: Iterable[int], failing: Collection[int]
    ) -> Mapping[int, Favour]:
        route = self._table.route(wanted.task)
        if wanted.model or not (route.model or route.weights):
            return {}
        sound = [i for i in admitted if i not in failing]
        return routing.led(route, shelf.offers, sound, f"{wanted.lot}\0{wanted.task}")

    def _shadow(self, shelf: Shelf, wanted: Wanted, mode: Mode) -> Chosen | None:
        """Who runs beside the one chosen; nobody beside one that is pinned."""
        name = self._table.route(wanted.task).shadow
        if name is None or wanted.model:
            return None
        for offer in shelf.offers:
            if name.means(offer.card.id, offer.card.revision) and self._may_serve(offer, wanted, mode):
                return Chosen(offer, offer.replicas, 0.0, "runs beside it, for comparison", failing=False)
        return None

    def _may_serve(self, offer: Offer, wanted: Wanted, mode: Mode) -> bool:
        """Whether neither the routing table nor constraints, policy or mode are against it."""
        return (
            not self._forbids(offer)
            and wanted.constraints.admit(offer, self._region)
            and (wanted.may_leave or not offer.external)
            and (mode is Mode.HYBRID or offer.external is (mode is Mode.REMOTE))
        )

    def _forbids(self, offer: Offer) -> bool:
        return self._table.forbids(offer.card.task, offer.card.id, offer.card.revision)

    def _shelf(self, task: str) -> Shelf:
        view = self._catalog.view
        shelf = view.shelf(task)
        if shelf is None or not shelf.offers:
            raise selection_errors.nobody(task, view.tasks, self._standard, shelf.failed if shelf else ())
        return shelf

    def _admitted(self, shelf: Shelf, wanted: Wanted, mode: Mode) -> Collection[int]:
        """Positions of the offers that may be used."""
        offers, task = shelf.offers, wanted.task
        admitted: Collection[int] = range(len(offers))
        if wanted.model:
            admitted = [i for i in admitted if _is_pinned(offers[i], wanted)]
            if not admitted:
                raise selection_errors.unknown_model(task, wanted.model, wanted.revision, offers, shelf.failed)
        if self._table:
            admitted = self._laid_open(shelf, wanted, admitted)
        if str(wanted.constraints):
            admitted = [i for i in admitted if wanted.constraints.admit(offers[i], self._region)]
            if not admitted:
                raise selection_errors.unconstrained(task, str(wanted.constraints))
        if not wanted.may_leave:
            admitted = [i for i in admitted if not offers[i].external]
            if not admitted:
                raise selection_errors.only_outside(task)
        if mode is not Mode.HYBRID:
            admitted = [i for i in admitted if offers[i].external is (mode is Mode.REMOTE)]
            if not admitted:
                raise selection_errors.wrong_mode(task, mode)
        return admitted

    def _laid_open(self, shelf: Shelf, wanted: Wanted, admitted: Iterable[int]) -> Collection[int]:
        """Those that the routing table lets be used."""
        task, route = wanted.task, self._table.route(wanted.task)
        legal = [i for i in admitted if not self._forbids(shelf.offers[i])]
        if not legal:
            raise selection_errors.forbidden(task, wanted.model)
        open_ones = legal if wanted.model else routing.allowed(route, shelf.offers, legal)
        if not open_ones:
            raise selection_errors.no_candidate(task, route, shelf.offers)
        return open_ones


def _words(wanted: Wanted) -> Mapping[str, Word]:
    found = {stem: Word(written, _REQUEST_WEIGHT) for stem, written in words(wanted.request)}
    found.update({stem: Word(written, _SOURCE_WEIGHT) for stem, written in words(wanted.source)})
    return found


def _is_pinned(offer: Offer, wanted: Wanted) -> bool:
    return offer.card.id == wanted.model and wanted.revision in {"", offer.card.revision}


def _hits(avoid: Avoid, offer: Offer) -> bool:
    return avoid.model in {"", offer.card.id} and avoid.expert in {"", offer.card.expert}


def _reachable(offer: Offer, avoids: Sequence[Avoid]) -> Sequence[Replica]:
    """Where the offer may be called without meeting what fails."""
    hitting = [avoid for avoid in avoids if _hits(avoid, offer)]
    shut = {avoid.address for avoid in hitting}
    return () if "" in shut else [replica for replica in offer.replicas if replica.address not in shut]


def _fails(offer: Offer, avoids: Sequence[Avoid]) -> bool:
    if offer.replicas:
        return not _reachable(offer, avoids)
    return any(_hits(avoid, offer) and not avoid.address for avoid in avoids)


def _chosen(shelf: Shelf, place: Ranked, avoids: Sequence[Avoid], failing: bool) -> Chosen:
    offer = shelf.offers[place.position]
    return Chosen(offer, _reachable(offer, avoids) or offer.replicas, place.score, place.reason, failing)


def _means_the_same(shelf: Shelf, first: Ranked, other: Ranked) -> bool:
    """Whether a model may stand in for the first.

    Of models that can only say their own labels, those of one expert that share no word with a request which the first
    one meets clearly are for something else: languages instead of moods, people instead of faces.
    """
    spec = shelf.spec
    own_labels = not _OWN_LABELS.isdisjoint(port.name for port in spec.outputs)
    chosen_labels = any(parameter.name == "candidate_labels" for parameter in spec.parameters)
    same_expert = shelf.offers[first.position].card.expert == shelf.offers[other.position].card.expert
    return (
        not own_labels or chosen_labels or not same_expert or first.fit < _CLEAR_FIT or other.fit > 0 or other is first
    )


def _summary(chosen: Sequence[Chosen], admitted: int, wanted: Wanted) -> str:
    first = chosen[0]
    if wanted.model:
        return f"{first.offer.card.id} was asked for"
    rank = "the only model for it" if admitted == 1 else f"first of {admitted}"
    return f"{first.offer.card.id}, {rank}: {first.reason}"


def _confidence(chosen: Sequence[Chosen]) -> float:
    if len(chosen) == 1:
        return 1.0
    return round(1.0 - 0.5 * math.exp(chosen[1].score - chosen[0].score), 3)

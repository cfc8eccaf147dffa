"""Selects models: excludes those that may not be used, ranks the rest, and explains the result."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

from protos.hugginggpt.v1.task_pb2 import TaskSpec
from services.common.errors import InvalidRequest
from services.selector import routing_table, selection_errors
from services.selector.catalog import ExpertCatalog
from services.selector.ranking import Bonus, QueryTerm, Ranked, RankingQuery, tokenize
from services.selector.replica import Replica
from services.selector.routing_table import RoutingTable
from services.selector.selection import Avoid, Controller, Mode, SelectedModel, Selection, SelectionQuery
from services.selector.task_offers import Offer, TaskOffers

CANDIDATES = 5

_SOURCE_WEIGHT, _REQUEST_WEIGHT = 1.0, 0.25
"""Weights of terms of the task's own text, and of the rest of the request."""

_OWN_LABELS = frozenset({"labels", "objects", "entities"})
"""Outputs that are limited to the labels a model was trained on."""
_CLEAR_FIT = 0.5


class Selector:
    """Selects models of the catalogue by ranking, without an LLM.

    Args:
        catalog: of experts.
        standard: specs of the standard tasks.
        mode: allowed locations of models, unless the request says otherwise.
        region: of the deployment's own machines; empty: unknown.
        table: the routing table.
    """

    def __init__(
        self,
        catalog: ExpertCatalog,
        standard: Mapping[str, TaskSpec],
        mode: Mode,
        region: str = "",
        table: RoutingTable = RoutingTable(),  # noqa: B008  # frozen
    ) -> None:
        self._catalog = catalog
        self._standard = standard
        self._mode = mode
        self._region = region
        self._table = table

    @property
    def revision(self) -> str:
        """Revision of the catalogue."""
        return self._catalog.view.revision

    def choose(self, query: SelectionQuery) -> Selection:
        """Selects the best models for a task.

        Raises:
            InvalidRequest: no task is named, or the limit is negative.
            NotFound: TASK, no expert offers it; MODEL, the pinned one is not offered, or none satisfies constraints.
            FailedPrecondition: POLICY, the data policy, the mode or the routing table exclude all models.
        """
        if not query.task or query.limit < 0:
            raise InvalidRequest("the task is empty or the limit negative", remedy="name the task", port="task")
        task_offers, route = self._task_offers(query.task), self._table.route(query.task)
        mode = query.mode or self._mode
        admitted = self._admitted(task_offers, query, mode)
        failing = (
            frozenset(i for i in admitted if _fails(task_offers.offers[i], query.avoid)) if query.avoid else frozenset()
        )
        leading = self._leading(task_offers, query, admitted, failing)
        bonuses = routing_table.combine(
            leading, routing_table.score_bonuses(self._table, query.task, task_offers.offers)
        )
        ranking_query = RankingQuery(_terms(query), query.languages, internal_first=mode is Mode.HYBRID)
        ranked = task_offers.ranking.best(ranking_query, admitted, query.limit or CANDIDATES, failing, bonuses)
        same = [
            ranked_model
            for ranked_model in ranked
            if route.candidates or _is_substitute(task_offers, ranked[0], ranked_model)
        ]
        chosen = [
            _chosen(task_offers, ranked_model, query.avoid, ranked_model.position in failing) for ranked_model in same
        ]
        controller = Controller.PINNED if query.model else Controller.ROUTED if leading else Controller.RANK
        return Selection(
            spec=task_offers.spec,
            chosen=chosen,
            reason=_summary(chosen, len(admitted), query),
            confidence=_confidence(chosen),
            mode=mode,
            controller=controller,
            shadow=self._shadow(task_offers, query, mode),
        )

    def _leading(
        self, task_offers: TaskOffers, query: SelectionQuery, admitted: Iterable[int], failing: Collection[int]
    ) -> Mapping[int, Bonus]:
        route = self._table.route(query.task)
        if query.model or not (route.model or route.weights):
            return {}
        working = [i for i in admitted if i not in failing]
        return routing_table.leading_bonuses(route, task_offers.offers, working, f"{query.seed}\0{query.task}")

    def _shadow(self, task_offers: TaskOffers, query: SelectionQuery, mode: Mode) -> SelectedModel | None:
        """The shadow of the selected model; none for a pinned model."""
        name = self._table.route(query.task).shadow
        if name is None or query.model:
            return None
        for offer in task_offers.offers:
            if name.matches(offer.card.id, offer.card.revision) and self._may_serve(offer, query, mode):
                return SelectedModel(offer, offer.replicas, 0.0, "shadow, for comparison", failing=False)
        return None

    def _may_serve(self, offer: Offer, query: SelectionQuery, mode: Mode) -> bool:
        """Whether routing table, constraints, data policy and mode allow an offer."""
        return (
            not self._forbids(offer)
            and query.constraints.admit(offer, self._region)
            and (query.allows_external or not offer.external)
            and (mode is Mode.HYBRID or offer.external is (mode is Mode.REMOTE))
        )

    def _forbids(self, offer: Offer) -> bool:
        return self._table.forbids(offer.card.task, offer.card.id, offer.card.revision)

    def _task_offers(self, task: str) -> TaskOffers:
        view = self._catalog.view
        task_offers = view.offers_of(task)
        if task_offers is None or not task_offers.offers:
            raise selection_errors.no_offer(task, view.tasks, self._standard, task_offers.failed if task_offers else ())
        return task_offers

    def _admitted(self, task_offers: TaskOffers, query: SelectionQuery, mode: Mode) -> Collection[int]:
        """Indices of the offers that may be used."""
        offers, task = task_offers.offers, query.task
        admitted: Collection[int] = range(len(offers))
        if query.model:
            admitted = [i for i in admitted if _is_pinned(offers[i], query)]
            if not admitted:
                raise selection_errors.unknown_model(task, query.model, query.revision, offers, task_offers.failed)
        if self._table:
            admitted = self._allowed_by_table(task_offers, query, admitted)
        if str(query.constraints):
            admitted = [i for i in admitted if query.constraints.admit(offers[i], self._region)]
            if not admitted:
                raise selection_errors.constraints_unmet(task, str(query.constraints))
        if not query.allows_external:
            admitted = [i for i in admitted if not offers[i].external]
            if not admitted:
                raise selection_errors.only_external(task)
        if mode is not Mode.HYBRID:
            admitted = [i for i in admitted if offers[i].external is (mode is Mode.REMOTE)]
            if not admitted:
                raise selection_errors.wrong_mode(task, mode)
        return admitted

    def _allowed_by_table(
        self, task_offers: TaskOffers, query: SelectionQuery, admitted: Iterable[int]
    ) -> Collection[int]:
        """Indices of the offers that the routing table allows."""
        task, route = query.task, self._table.route(query.task)
        not_forbidden = [i for i in admitted if not self._forbids(task_offers.offers[i])]
        if not not_forbidden:
            raise selection_errors.forbidden(task, query.model)
        allowed = not_forbidden if query.model else routing_table.allowed(route, task_offers.offers, not_forbidden)
        if not allowed:
            raise selection_errors.no_candidate(task, route, task_offers.offers)
        return allowed


def _terms(query: SelectionQuery) -> Mapping[str, QueryTerm]:
    terms = {stem: QueryTerm(written, _REQUEST_WEIGHT) for stem, written in tokenize(query.request)}
    terms.update({stem: QueryTerm(written, _SOURCE_WEIGHT) for stem, written in tokenize(query.source)})
    return terms


def _is_pinned(offer: Offer, query: SelectionQuery) -> bool:
    return offer.card.id == query.model and query.revision in {"", offer.card.revision}


def _applies_to(avoid: Avoid, offer: Offer) -> bool:
    return avoid.model in {"", offer.card.id} and avoid.expert in {"", offer.card.expert}


def _reachable(offer: Offer, avoids: Sequence[Avoid]) -> Sequence[Replica]:
    """Replicas of an offer without those with open circuits."""
    matching = [avoid for avoid in avoids if _applies_to(avoid, offer)]
    open_circuits = {avoid.address for avoid in matching}
    return (
        () if "" in open_circuits else [replica for replica in offer.replicas if replica.address not in open_circuits]
    )


def _fails(offer: Offer, avoids: Sequence[Avoid]) -> bool:
    if offer.replicas:
        return not _reachable(offer, avoids)
    return any(_applies_to(avoid, offer) and not avoid.address for avoid in avoids)


def _chosen(task_offers: TaskOffers, ranked_model: Ranked, avoids: Sequence[Avoid], failing: bool) -> SelectedModel:
    offer = task_offers.offers[ranked_model.position]
    return SelectedModel(
        offer, _reachable(offer, avoids) or offer.replicas, ranked_model.score, ranked_model.reason, failing
    )


def _is_substitute(task_offers: TaskOffers, first: Ranked, candidate: Ranked) -> bool:
    """Whether a model may replace the first one.

    For tasks with fixed labels, models of one expert that match no term, while the first model clearly matches, are
    for another purpose, such as languages instead of sentiments.
    """
    spec = task_offers.spec
    own_labels = not _OWN_LABELS.isdisjoint(port.name for port in spec.outputs)
    chosen_labels = any(parameter.name == "candidate_labels" for parameter in spec.parameters)
    same_expert = task_offers.offers[first.position].card.expert == task_offers.offers[candidate.position].card.expert
    return (
        not own_labels
        or chosen_labels
        or not same_expert
        or first.fit < _CLEAR_FIT
        or candidate.fit > 0
        or candidate is first
    )


def _summary(chosen: Sequence[SelectedModel], admitted: int, query: SelectionQuery) -> str:
    first = chosen[0]
    if query.model:
        return f"{first.offer.card.id} is pinned"
    rank = "the only model for it" if admitted == 1 else f"first of {admitted}"
    return f"{first.offer.card.id}, {rank}: {first.reason}"


def _confidence(chosen: Sequence[SelectedModel]) -> float:
    if len(chosen) == 1:
        return 1.0
    return round(1.0 - 0.5 * math.exp(chosen[1].score - chosen[0].score), 3)

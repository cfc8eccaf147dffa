"""Applies the routing table to a selection: which models are allowed, which is first, and bonuses by score."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import blake2b

from services.selector.ranking import Bonus
from services.selector.routing_table import ModelName, Route, RoutingTable
from services.selector.task_offers import Offer

_FIRST_BONUS = 40.0
"""More than the sum of all ranking points, including the penalty of external models."""
_SCORED = 2.0
"""Difference between the worst and the best score; less than matching terms can add."""
_MIDDLE = 0.5
"""A score that adds nothing."""


def allowed(route: Route, offers: Sequence[Offer], admitted: Iterable[int]) -> Collection[int]:
    """Indices of the offers that may be selected where no model is pinned."""
    query = [name for name in (route.model, *route.listed) if name] if route.candidates else []
    return [
        position
        for position in admitted
        if not (route.shadow and _is(offers[position], route.shadow))
        and (not query or any(_is(offers[position], name) for name in query))
    ]


def leading_bonuses(route: Route, offers: Sequence[Offer], open_to: Collection[int], seed: str) -> Mapping[int, Bonus]:
    """Bonuses of the offers of the model that is first, by index.

    Args:
        route: of the task.
        offers: of the task.
        open_to: indices of the offers that may be selected and have no open circuit.
        seed: decides between weights: equal seeds give equal choices, while the same models are offered.
    """
    offered = {name for name in (route.model, *route.weights) if name and _positions_of(name, offers, open_to)}
    if route.model in offered:
        reason = "first by the routing table"
        return {position: Bonus(_FIRST_BONUS, reason) for position in _positions_of(route.model, offers, open_to)}
    weights = {name: weight for name, weight in route.weights.items() if name in offered}
    if not weights:
        return {}
    selected = max(weights, key=lambda name: _draw(seed, name, weights[name]))
    reason = f"chosen for this run by its weight, {weights[selected]:g} of {sum(weights.values()):g}"
    return {position: Bonus(_FIRST_BONUS, reason) for position in _positions_of(selected, offers, open_to)}


def combine(first: Mapping[int, Bonus], second: Mapping[int, Bonus]) -> Mapping[int, Bonus]:
    """Adds bonuses; the reasons of the first argument come first."""
    combined = {
        position: Bonus(first[position].points + bonus.points, f"{first[position].reason}; {bonus.reason}")
        for position, bonus in second.items()
        if position in first
    }
    return {**second, **first, **combined}


def score_bonuses(table: RoutingTable, task: str, offers: Sequence[Offer]) -> Mapping[int, Bonus]:
    """Bonuses from the models' scores, by index."""
    scores = table.scores.get(task)
    if not scores:
        return {}
    return {
        position: Bonus(_SCORED * (scores[offer.card.id] - _MIDDLE), f"scored {scores[offer.card.id]:.2f}")
        for position, offer in enumerate(offers)
        if offer.card.id in scores
    }


def _positions_of(name: ModelName | None, offers: Sequence[Offer], positions: Iterable[int]) -> list[int]:
    return [position for position in positions if name and _is(offers[position], name)]


def _is(offer: Offer, name: ModelName) -> bool:
    return name.matches(offer.card.id, offer.card.revision)


def _draw(seed: str, name: ModelName, weight: float) -> float:
    """Weighted rendezvous hashing: the highest value wins, and removing a model moves only that model's share."""
    digest = blake2b(f"{seed}\0{name}".encode(), digest_size=8).digest()
    return -weight / math.log((int.from_bytes(digest) + 0.5) / 2**64)

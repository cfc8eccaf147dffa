"""What the routing table says where a model is to be chosen: who comes into question, who leads, who runs beside."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import blake2b

from services.selector.ranking import Favour
from services.selector.routing_table import Named, Route, Table
from services.selector.task_offers import Offer

_LEADS = 40.0
"""More than all that the ranking adds, and what it takes from what is outside."""
_SCORED = 2.0
"""Between the worst score and the best; less than words can add."""
_MIDDLE = 0.5
"""A score that is as good as none."""


def allowed(route: Route, offers: Sequence[Offer], admitted: Iterable[int]) -> Collection[int]:
    """Positions of those that may be chosen where nobody pins a model."""
    wanted = [name for name in (route.model, *route.listed) if name] if route.candidates else []
    return [
        position
        for position in admitted
        if not (route.shadow and _is(offers[position], route.shadow))
        and (not wanted or any(_is(offers[position], name) for name in wanted))
    ]


def led(route: Route, offers: Sequence[Offer], open_to: Collection[int], lot: str) -> Mapping[int, Favour]:
    """Those that go first, by position: one model, wherever it is offered.

    Args:
        route: what is laid down for the task.
        offers: of the task.
        open_to: positions of those that may be chosen and do not fail just now.
        lot: decides between weights: the same for the same lot, as long as the same models are there.
    """
    there = {name for name in (route.model, *route.weights) if name and _held(name, offers, open_to)}
    if route.model in there:
        reason = "first by the routing table"
        return {position: Favour(_LEADS, reason) for position in _held(route.model, offers, open_to)}
    weights = {name: weight for name, weight in route.weights.items() if name in there}
    if not weights:
        return {}
    drawn = max(weights, key=lambda name: _draw(lot, name, weights[name]))
    reason = f"drawn for this run by its weight, {weights[drawn]:g} of {sum(weights.values()):g}"
    return {position: Favour(_LEADS, reason) for position in _held(drawn, offers, open_to)}


def together(ours: Mapping[int, Favour], theirs: Mapping[int, Favour]) -> Mapping[int, Favour]:
    """Both; the reasons of the first come first."""
    both = {
        position: Favour(ours[position].points + favour.points, f"{ours[position].reason}; {favour.reason}")
        for position, favour in theirs.items()
        if position in ours
    }
    return {**theirs, **ours, **both}


def scored(table: Table, task: str, offers: Sequence[Offer]) -> Mapping[int, Favour]:
    """What the models' scores are worth, by position."""
    scores = table.scores.get(task)
    if not scores:
        return {}
    return {
        position: Favour(_SCORED * (scores[offer.card.id] - _MIDDLE), f"scored {scores[offer.card.id]:.2f}")
        for position, offer in enumerate(offers)
        if offer.card.id in scores
    }


def _held(name: Named | None, offers: Sequence[Offer], positions: Iterable[int]) -> list[int]:
    return [position for position in positions if name and _is(offers[position], name)]


def _is(offer: Offer, name: Named) -> bool:
    return name.means(offer.card.id, offer.card.revision)


def _draw(lot: str, name: Named, weight: float) -> float:
    """The highest wins: each of them does in its share of all lots, and one that goes takes nobody else's along."""
    digest = blake2b(f"{lot}\0{name}".encode(), digest_size=8).digest()
    return -weight / math.log((int.from_bytes(digest) + 0.5) / 2**64)

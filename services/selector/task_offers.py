"""The models of one task, over all experts: who has them, where, and in which order they stand."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from google.protobuf.duration_pb2 import Duration

from protos.hugginggpt.v1.model_pb2 import (
    MODEL_LOCATION_INTERNAL,
    MODEL_STATE_DORMANT,
    MODEL_STATE_FAILED,
    MODEL_STATE_LOADABLE,
    MODEL_STATE_READY,
    ModelCard,
)
from protos.hugginggpt.v1.task_pb2 import TaskSpec
from services.selector.ranking import Merits, Presence, Ranking
from services.selector.replica import Attention, Description, Replica
from services.selector.tokens import stems

_NEAREST = (Attention.ANSWERS, Attention.AWAY, Attention.ASLEEP)


class Seat(NamedTuple):
    """A replica as it was when the catalogue was put together."""

    replica: Replica
    description: Description
    attention: Attention
    tasks: frozenset[str]
    """Those it offers in the way the catalogue has them."""

    @property
    def expert(self) -> str:
        return self.description.reply.expert


@dataclass(frozen=True)
class Offer:
    """A commit of a model at an expert, and where it can be called."""

    card: ModelCard
    presence: Presence | None
    """None if it has failed."""
    replicas: tuple[Replica, ...]
    """Empty if its expert sleeps."""
    start_duration: Duration | None
    version: str = ""
    """Of the expert's program."""

    @cached_property
    def external(self) -> bool:
        """Only what says that it is inside the house is."""
        return self.card.location != MODEL_LOCATION_INTERNAL

    @cached_property
    def languages(self) -> frozenset[str]:
        return frozenset(primary(tag) for tag in self.card.languages)

    @cached_property
    def stems(self) -> frozenset[str]:
        """Of its name and of what it says that it does."""
        return stems(self.card.id, self.card.description)

    @property
    def median(self) -> float | None:
        """Seconds of one call; None until measured."""
        return self.card.p50.ToNanoseconds() / 1e9 if self.card.HasField("p50") else None

    @property
    def merits(self) -> Merits:
        card = self.card
        return Merits(
            stems=self.stems,
            presence=self.presence or Presence.AWAY,
            external=self.external,
            median=self.median,
            downloads=card.downloads,
            likes=card.likes,
            languages=self.languages,
        )


class Shelf:
    """All models of a task."""

    def __init__(self, spec: TaskSpec, seats: Sequence[Seat]) -> None:
        self.spec = spec
        offers = _offers(spec.name, seats)
        self.offers = tuple(offer for offer in offers if offer.presence)
        """Those that can run, in the order that settles a tie."""
        self.failed = tuple(offer for offer in offers if not offer.presence)

    @cached_property
    def ranking(self) -> Ranking:
        return Ranking([offer.merits for offer in self.offers])


def primary(tag: str) -> str:
    """The language of a BCP 47 tag, without script and region."""
    return tag.partition("-")[0].lower()


def _offers(task: str, seats: Sequence[Seat]) -> list[Offer]:
    holders: dict[tuple[str, str, str], list[tuple[Seat, ModelCard]]] = defaultdict(list)
    places: dict[tuple[str, str, str], int] = {}
    for seat in seats:
        for place, card in enumerate(seat.description.cards.get(task, ())):
            key = (seat.expert, card.id, card.revision)
            holders[key].append((seat, card))
            places[key] = min(place, places.get(key, place))
    ordered = sorted(holders, key=lambda key: (places[key], key))
    return [_offer(holders[key]) for key in ordered]


def _offer(holders: Sequence[tuple[Seat, ModelCard]]) -> Offer:
    """Puts together what the replicas of one expert say of one commit of a model."""
    working = [(seat, card) for seat, card in holders if card.state != MODEL_STATE_FAILED]
    if not working:
        seat, card = holders[0]
        return Offer(_shown(card, seat, MODEL_STATE_FAILED), None, (), None)
    attention = min({seat.attention for seat, _ in working}, key=_NEAREST.index)
    nearest = [(seat, card) for seat, card in working if seat.attention is attention]
    seat, card = min(nearest, key=lambda pair: pair[1].state != MODEL_STATE_READY)
    reply = seat.description.reply
    presence = _presence(attention, ready=card.state == MODEL_STATE_READY)
    shown = _shown(card, seat, _STATES[presence])
    if any(other.region != card.region for _, other in nearest):
        shown.region = ""  # a call may go to any of them
    return Offer(
        card=shown,
        presence=presence,
        replicas=tuple(dict.fromkeys(seat.replica for seat, _ in nearest if seat.replica.address)),
        start_duration=reply.start_duration if reply.HasField("start_duration") else None,
        version=reply.version,
    )


_STATES = {
    Presence.READY: MODEL_STATE_READY,
    Presence.LOADABLE: MODEL_STATE_LOADABLE,
    Presence.AWAY: MODEL_STATE_LOADABLE,
    Presence.DORMANT: MODEL_STATE_DORMANT,
}


def _presence(attention: Attention, *, ready: bool) -> Presence:
    if attention is Attention.ASLEEP:
        return Presence.DORMANT
    if attention is Attention.AWAY:
        return Presence.AWAY
    return Presence.READY if ready else Presence.LOADABLE


def _shown(card: ModelCard, seat: Seat, state: int) -> ModelCard:
    shown = ModelCard()
    shown.CopyFrom(card)
    shown.expert = seat.expert
    shown.state = state  # type: ignore[assignment]  # an enum's values are ints
    return shown

"""Offers of the models of one task, by all experts."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from google.protobuf.duration_pb2 import Duration

from protos.hugginggpt.v1.model_pb2 import (
    MODEL_LOCATION_INTERNAL,
    MODEL_METHOD_LLM,
    MODEL_METHOD_RULES,
    MODEL_STATE_DORMANT,
    MODEL_STATE_FAILED,
    MODEL_STATE_LOADABLE,
    MODEL_STATE_READY,
    ModelCard,
)
from protos.hugginggpt.v1.task_pb2 import TaskSpec
from services.selector.ranking import ModelFeatures, Ranking, Readiness, stems
from services.selector.replica import Description, Replica, ReplicaState

_NEAREST = (ReplicaState.REACHABLE, ReplicaState.UNREACHABLE, ReplicaState.DORMANT)


class ReplicaOffer(NamedTuple):
    """A replica, with its state and tasks when the view was built."""

    replica: Replica
    description: Description
    state: ReplicaState
    tasks: frozenset[str]
    """Tasks that it offers with the catalogue's specs."""

    @property
    def expert(self) -> str:
        return self.description.reply.expert


@dataclass(frozen=True)
class Offer:
    """A commit of a model at one expert, and its replicas."""

    card: ModelCard
    readiness: Readiness | None
    """None if it has failed."""
    replicas: tuple[Replica, ...]
    """Empty if its expert is dormant."""
    start_duration: Duration | None
    version: str = ""
    """Version of the expert's program."""

    @cached_property
    def external(self) -> bool:
        """Whether it is not stated to be internal."""
        return self.card.location != MODEL_LOCATION_INTERNAL

    @property
    def is_llm(self) -> bool:
        """Whether it is the configured LLM, by prompt."""
        return self.card.method == MODEL_METHOD_LLM

    @cached_property
    def languages(self) -> frozenset[str]:
        return frozenset(primary(tag) for tag in self.card.languages)

    @cached_property
    def stems(self) -> frozenset[str]:
        """Stems of its name and description."""
        return stems(self.card.id, self.card.description)

    @property
    def median(self) -> float | None:
        """Median duration of a call in seconds; None: not measured."""
        return self.card.p50.ToNanoseconds() / 1e9 if self.card.HasField("p50") else None

    @property
    def features(self) -> ModelFeatures:
        card = self.card
        return ModelFeatures(
            stems=self.stems,
            readiness=self.readiness or Readiness.UNREACHABLE,
            external=self.external,
            median=self.median,
            downloads=card.downloads,
            likes=card.likes,
            languages=self.languages,
            is_llm=self.is_llm,
            is_rules=card.method == MODEL_METHOD_RULES,
            exceeds_memory=card.exceeds_memory,
        )


class TaskOffers:
    """All offers of one task."""

    def __init__(self, spec: TaskSpec, replica_offers: Sequence[ReplicaOffer]) -> None:
        self.spec = spec
        offers = _offers(spec.name, replica_offers)
        self.offers = tuple(offer for offer in offers if offer.readiness)
        """Offers that can run, in the order that resolves ties."""
        self.failed = tuple(offer for offer in offers if not offer.readiness)

    @cached_property
    def ranking(self) -> Ranking:
        return Ranking([offer.features for offer in self.offers])


def primary(tag: str) -> str:
    """Primary language of a BCP 47 tag, without script and region."""
    return tag.partition("-")[0].lower()


def _offers(task: str, replica_offers: Sequence[ReplicaOffer]) -> list[Offer]:
    holders: dict[tuple[str, str, str], list[tuple[ReplicaOffer, ModelCard]]] = defaultdict(list)
    positions: dict[tuple[str, str, str], int] = {}
    for replica_offer in replica_offers:
        for position, card in enumerate(replica_offer.description.cards.get(task, ())):
            key = (replica_offer.expert, card.id, card.revision)
            holders[key].append((replica_offer, card))
            positions[key] = min(position, positions.get(key, position))
    ordered = sorted(holders, key=lambda key: (positions[key], key))
    return [_offer(holders[key]) for key in ordered]


def _offer(holders: Sequence[tuple[ReplicaOffer, ModelCard]]) -> Offer:
    """Merges the cards of one commit of a model from the replicas of one expert."""
    working = [(replica_offer, card) for replica_offer, card in holders if card.state != MODEL_STATE_FAILED]
    if not working:
        replica_offer, card = holders[0]
        return Offer(_with_state(card, replica_offer, MODEL_STATE_FAILED), None, (), None)
    state = min({replica_offer.state for replica_offer, _ in working}, key=_NEAREST.index)
    nearest = [(replica_offer, card) for replica_offer, card in working if replica_offer.state is state]
    replica_offer, card = min(nearest, key=lambda pair: pair[1].state != MODEL_STATE_READY)
    reply = replica_offer.description.reply
    readiness = _presence(state, ready=card.state == MODEL_STATE_READY)
    merged = _with_state(card, replica_offer, _STATES[readiness])
    if any(other.region != card.region for _, other in nearest):
        merged.region = ""  # a call may go to any of them
    return Offer(
        card=merged,
        readiness=readiness,
        replicas=tuple(
            dict.fromkeys(replica_offer.replica for replica_offer, _ in nearest if replica_offer.replica.address)
        ),
        start_duration=reply.start_duration if reply.HasField("start_duration") else None,
        version=reply.version,
    )


_STATES = {
    Readiness.READY: MODEL_STATE_READY,
    Readiness.LOADABLE: MODEL_STATE_LOADABLE,
    Readiness.UNREACHABLE: MODEL_STATE_LOADABLE,
    Readiness.DORMANT: MODEL_STATE_DORMANT,
}


def _presence(state: ReplicaState, *, ready: bool) -> Readiness:
    if state is ReplicaState.DORMANT:
        return Readiness.DORMANT
    if state is ReplicaState.UNREACHABLE:
        return Readiness.UNREACHABLE
    return Readiness.READY if ready else Readiness.LOADABLE


def _with_state(card: ModelCard, replica_offer: ReplicaOffer, state: int) -> ModelCard:
    merged = ModelCard()
    merged.CopyFrom(card)
    merged.expert = replica_offer.expert
    merged.state = state  # type: ignore[assignment]  # an enum's values are ints
    return merged

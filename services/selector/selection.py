"""Result of a selection: models in the order of preference, and how they were selected."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from protos.hugginggpt.internal.v1 import selector_pb2
from protos.hugginggpt.v1 import plan_pb2
from protos.hugginggpt.v1.model_pb2 import (
    CANDIDATE_ROLE_FALLBACK,
    CANDIDATE_ROLE_PRIMARY,
    CANDIDATE_ROLE_SHADOW,
    MODEL_LOCATION_EXTERNAL,
    MODEL_LOCATION_INTERNAL,
    Candidate,
    CandidateRole,
)
from protos.hugginggpt.v1.plan_pb2 import Decision
from protos.hugginggpt.v1.task_pb2 import TaskSpec
from services.llm.client import Usage
from services.selector.query import Mode
from services.selector.replica import Replica
from services.selector.task_offers import Offer


class Controller(StrEnum):
    """What made a selection."""

    PINNED = "pinned"
    ROUTED = "routed"
    """The deployment's routing table."""
    RANK = "rank"
    LLM = "llm"


@dataclass(frozen=True)
class SelectedModel:
    """A selected model."""

    offer: Offer
    replicas: Sequence[Replica]
    """Replicas to call, without those with open circuits."""
    score: float
    """Score of the ranking."""
    reason: str
    failing: bool


@dataclass(frozen=True)
class Selection:
    """Selected models in the order of preference, at least one."""

    spec: TaskSpec
    chosen: Sequence[SelectedModel]
    reason: str
    confidence: float
    """0: not estimated."""
    mode: Mode
    controller: Controller = Controller.RANK
    shadow: SelectedModel | None = None
    """Runs in addition to the first model, for comparison."""
    llm_model: str = ""
    """The LLM that was called; empty: none."""
    fell_back_because: str = ""
    usage: Usage | None = None
    version: str = ""
    """Version of the selection prompt."""

    def to_proto(self) -> selector_pb2.SelectResponse:
        """Converts the selection; the first candidate is the primary one."""
        return selector_pb2.SelectResponse(
            candidates=[_candidate(chosen, role) for chosen, role in _roles(self)],
            decision=Decision(
                controller=plan_pb2.Controller.Value(f"CONTROLLER_{self.controller.upper()}"),
                llm_model=self.llm_model,
                reason=self.reason,
                confidence=self.confidence,
                fell_back_because=self.fell_back_because,
                usage=self.usage.to_proto() if self.usage else None,
                version=self.version,
            ),
            spec=self.spec,
        )


def _roles(selection: Selection) -> Iterator[tuple[SelectedModel, "CandidateRole.ValueType"]]:
    first, *fallbacks = selection.chosen
    yield first, CANDIDATE_ROLE_PRIMARY
    for fallback in fallbacks:
        yield fallback, CANDIDATE_ROLE_FALLBACK
    if selection.shadow:
        yield selection.shadow, CANDIDATE_ROLE_SHADOW


def _candidate(chosen: SelectedModel, role: "CandidateRole.ValueType") -> selector_pb2.SelectedCandidate:
    offer = chosen.offer
    candidate = Candidate(
        model_id=offer.card.id,
        revision=offer.card.revision,
        expert=offer.card.expert,
        role=role,
        score=chosen.score,
        reason=chosen.reason,
        location=MODEL_LOCATION_EXTERNAL if offer.external else MODEL_LOCATION_INTERNAL,
        dormant=not offer.replicas,
        start_duration=offer.start_duration,
        expert_version=offer.version,
    )
    endpoints = [replica.endpoint(offer.card.id) for replica in chosen.replicas]
    return selector_pb2.SelectedCandidate(candidate=candidate, endpoints=endpoints)

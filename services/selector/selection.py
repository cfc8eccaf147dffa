"""A selection: the query, with the requirements on the model, and the result, with models in order of preference."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Self

from protos.hugginggpt.internal.v1 import selector_pb2
from protos.hugginggpt.v1 import plan_pb2
from protos.hugginggpt.v1.model_pb2 import (
    CANDIDATE_ROLE_FALLBACK,
    CANDIDATE_ROLE_PRIMARY,
    CANDIDATE_ROLE_SHADOW,
    INFERENCE_MODE_HYBRID,
    INFERENCE_MODE_LOCAL,
    INFERENCE_MODE_REMOTE,
    MODEL_LOCATION_EXTERNAL,
    MODEL_LOCATION_INTERNAL,
    Candidate,
    CandidateRole,
)
from protos.hugginggpt.v1.plan_pb2 import Decision
from protos.hugginggpt.v1.task_pb2 import Task, TaskSpec
from services.common import call_context
from services.common.errors import InvalidRequest
from services.llm.client import Usage
from services.selector.replica import Replica
from services.selector.task_offers import Offer, primary

_TAG_LENGTHS = (2, 3)


@dataclass(frozen=True)
class Constraints:
    """Requirements on the models of a task; empty fields do not constrain.

    Args:
        licenses: in lower case.
        languages: primary language tags; a model must support all of them.
        max_parameter_count: 0: no limit.
        allowed: model IDs.
        regions: in lower case; a model must run in one of them, or in a part of one.
    """

    licenses: frozenset[str] = frozenset()
    languages: frozenset[str] = frozenset()
    max_parameter_count: int = 0
    allowed: frozenset[str] = frozenset()
    regions: frozenset[str] = frozenset()

    def admit(self, offer: Offer, home: str) -> bool:
        """Whether an offer satisfies all constraints.

        Args:
            offer: of a model.
            home: region of the deployment's own machines; empty: unknown.
        """
        card = offer.card
        return (
            (not self.licenses or card.license.lower() in self.licenses)
            and (not self.languages or not offer.languages or self.languages <= offer.languages)
            and (not self.max_parameter_count or 0 < card.parameter_count <= self.max_parameter_count)
            and (not self.allowed or card.id in self.allowed)
            and (not self.regions or self._is_in_region(card.region or ("" if offer.external else home)))
        )

    def _is_in_region(self, region: str) -> bool:
        """Whether a region is one of the allowed ones, or a part of one, as "eu-central-1" is of "eu"."""
        parts = region.lower().split("-")
        return any("-".join(parts[:length]) in self.regions for length in range(1, len(parts) + 1))

    def __str__(self) -> str:
        parts = (
            ("licence", ", ".join(sorted(self.licenses))),
            ("language", ", ".join(sorted(self.languages))),
            ("parameters at most", str(self.max_parameter_count or "")),
            ("one of", ", ".join(sorted(self.allowed))),
            ("region", ", ".join(sorted(self.regions))),
        )
        return "; ".join(f"{name} {value}" for name, value in parts if value)


class Mode(StrEnum):
    """Allowed locations of models."""

    LOCAL = "local"
    HYBRID = "hybrid"
    REMOTE = "remote"


@dataclass(frozen=True)
class Avoid:
    """A circuit that is open; empty fields match anything."""

    model: str = ""
    expert: str = ""
    address: str = ""


@dataclass(frozen=True)
class SelectionQuery:
    """A task that needs a model."""

    task: str
    source: str = ""
    """Text of the request from which the task was planned."""
    request: str = ""
    languages: frozenset[str] = frozenset()
    """Primary language tags among its parameters."""
    model: str = ""
    """ID of the pinned model; empty: none."""
    revision: str = ""
    mode: Mode | None = None
    """None: the deployment's default."""
    allows_external: bool = False
    """Whether the data policy allows external models."""
    avoid: Sequence[Avoid] = ()
    constraints: Constraints = field(default_factory=Constraints)
    limit: int = 0
    """Number of models; 0: the default."""
    seed: str = ""
    """Seed of the weighted choice: equal seeds give equal choices."""

    @classmethod
    def from_proto(cls, request: selector_pb2.SelectRequest, *, allows_external: bool) -> Self:
        """Converts a request.

        Raises:
            InvalidRequest: the task's parameters are not a JSON object.
        """
        task, constraints = request.task, request.constraints
        return cls(
            task=task.task,
            source=f"{task.source} {_instruction(task)}",
            request=request.request,
            languages=languages_of(_parameters(task)),
            model=task.pinned_model,
            revision=task.pinned_revision,
            mode=_MODES.get(request.inference_mode),
            allows_external=allows_external,
            avoid=[Avoid(avoid.model_id, avoid.expert, avoid.address) for avoid in request.avoid],
            constraints=Constraints(
                licenses=frozenset(license_.lower() for license_ in constraints.licenses),
                languages=frozenset(map(primary, constraints.languages)),
                max_parameter_count=constraints.max_parameter_count,
                allowed=frozenset(constraints.allowed),
                regions=frozenset(region.lower() for region in constraints.regions),
            ),
            limit=request.limit,
            seed=call_context.current().run_id,
        )


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

    @property
    def shortest_queue(self) -> int:
        """Length of the shortest queue of its replicas; 0 without replicas."""
        return min((replica.load.waiting + replica.load.running for replica in self.replicas), default=0)


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


# ---------------------------------------------------------------- conversion of queries


_MODES = {INFERENCE_MODE_LOCAL: Mode.LOCAL, INFERENCE_MODE_HYBRID: Mode.HYBRID, INFERENCE_MODE_REMOTE: Mode.REMOTE}


def languages_of(parameters: Mapping[str, object]) -> frozenset[str]:
    """Primary language tags among a task's parameters; languages given by name are left to the ranking's terms."""
    values = (parameters.get(name) for name in ("language", "source_language", "target_language"))
    tags = (primary(value) for value in values if isinstance(value, str))
    return frozenset(tag for tag in tags if tag.isalpha() and len(tag) in _TAG_LENGTHS)


def _instruction(task: Task) -> str:
    """Instruction text of the task, if it has one."""
    return task.arguments["instruction"].value.text if "instruction" in task.arguments else ""


def _parameters(task: Task) -> Mapping[str, object]:
    try:
        parameters = json.loads(task.parameters_json or "{}")
    except ValueError:
        parameters = None
    if not isinstance(parameters, dict):
        raise InvalidRequest("the task's parameters are not a JSON object", remedy="send a JSON object, or nothing")
    return parameters


# ---------------------------------------------------------------- conversion of results


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

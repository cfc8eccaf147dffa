"""Selection query: a task, and the requirements on its model."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Self

from protos.hugginggpt.internal.v1 import selector_pb2
from protos.hugginggpt.v1.model_pb2 import INFERENCE_MODE_HYBRID, INFERENCE_MODE_LOCAL, INFERENCE_MODE_REMOTE
from protos.hugginggpt.v1.task_pb2 import Task
from services.common import call_context
from services.common.errors import InvalidRequest
from services.selector.task_offers import Offer, primary


@dataclass(frozen=True)
class Constraints:
    """Empty fields do not constrain.

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


_TAG_LENGTHS = (2, 3)


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


_MODES = {INFERENCE_MODE_LOCAL: Mode.LOCAL, INFERENCE_MODE_HYBRID: Mode.HYBRID, INFERENCE_MODE_REMOTE: Mode.REMOTE}

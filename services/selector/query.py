"""Selection query: a task, and the requirements on its model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

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


def languages_of(parameters: Mapping[str, object]) -> frozenset[str]:
    """Primary language tags among a task's parameters; languages given by name are left to the ranking's terms."""
    values = (parameters.get(name) for name in ("language", "source_language", "target_language"))
    tags = (primary(value) for value in values if isinstance(value, str))
    return frozenset(tag for tag in tags if tag.isalpha() and len(tag) in _TAG_LENGTHS)

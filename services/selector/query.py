"""Selection query: a task, and the requirements on its model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from services.selector.constraints import Constraints
from services.selector.task_offers import primary

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

"""A task that needs a model, and what is asked of the model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from services.selector.constraints import Constraints
from services.selector.task_offers import primary

_TAG_LENGTHS = (2, 3)


class Mode(StrEnum):
    """Where the models may be."""

    LOCAL = "local"
    HYBRID = "hybrid"
    REMOTE = "remote"


@dataclass(frozen=True)
class Avoid:
    """What has been failing; empty fields stand for any."""

    model: str = ""
    expert: str = ""
    address: str = ""


@dataclass(frozen=True)
class Wanted:
    """A task that needs a model."""

    task: str
    source: str = ""
    """The words it came from."""
    request: str = ""
    languages: frozenset[str] = frozenset()
    """Primary tags among its parameters."""
    model: str = ""
    """The only one that may run it."""
    revision: str = ""
    mode: Mode | None = None
    """None: the deployment's."""
    may_leave: bool = False
    """Bytes may go to models outside the house."""
    avoid: Sequence[Avoid] = ()
    constraints: Constraints = field(default_factory=Constraints)
    limit: int = 0
    """0: the deployment's."""
    lot: str = ""
    """Where weights decide: the same for the same lot."""


def languages_of(parameters: Mapping[str, object]) -> frozenset[str]:
    """The primary tags among a task's parameters; a language given by name is left to the words."""
    values = (parameters.get(name) for name in ("language", "source_language", "target_language"))
    tags = (primary(value) for value in values if isinstance(value, str))
    return frozenset(tag for tag in tags if tag.isalpha() and len(tag) in _TAG_LENGTHS)

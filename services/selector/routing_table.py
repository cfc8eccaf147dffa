"""The routing table of a deployment: what its operator has laid down about models, task by task."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from services.common import config_file

SETTING = "SELECTOR_ROUTES"


@dataclass(frozen=True)
class Named:
    """A model, at any commit where none is named."""

    id: str
    revision: str = ""

    def means(self, model: str, revision: str) -> bool:
        return self.id == model and self.revision in {"", revision}

    def __str__(self) -> str:
        return f"{self.id}@{self.revision}" if self.revision else self.id


def named(text: Any) -> Any:
    """A name as people write it: model, or model@revision."""
    if isinstance(text, Named):
        return text
    if not isinstance(text, str) or not text.strip("@ "):
        raise ValueError("name a model, or model@revision")
    model, at, revision = text.rpartition("@")
    return Named(model, revision) if at and model else Named(text)


Model = Annotated[Named, BeforeValidator(named)]


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class Candidate(_Entry):
    """A model that comes into question."""

    model: Model
    weight: float = Field(0.0, ge=0, allow_inf_nan=False)
    """Its share of the runs for which it is asked first; 0: only where those with a weight fail."""


def _candidate(written: Any) -> Any:
    return {"model": written} if isinstance(written, str) else written


class Route(_Entry):
    """What is laid down for one task."""

    model: Model | None = None
    """Asked first, while it is there."""
    candidates: tuple[Annotated[Candidate, BeforeValidator(_candidate)], ...] = ()
    """Only those are chosen; empty: all that are not forbidden. A run may still pin another one."""
    forbidden: tuple[Model, ...] = ()
    """Never used, not even where a run pins them."""
    shadow: Model | None = None
    """Runs beside the one chosen, for comparison; its results are not used."""

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.model and self.weights:
            raise ValueError("either a model is always first or weights spread the runs; leave one of both out")
        for what, model in (("the model", self.model), ("the shadow", self.shadow)):
            if model and model in self.forbidden:
                raise ValueError(f"{what} {model} is forbidden, too")
        if self.shadow and self.shadow in {self.model, *self.listed}:
            raise ValueError(f"the shadow {self.shadow} is no shadow if it may be chosen, too")
        if twice := next((model for model in self.listed if self.listed.count(model) > 1), None):
            raise ValueError(f"{twice} is a candidate twice")
        return self

    @property
    def listed(self) -> list[Named]:
        return [candidate.model for candidate in self.candidates]

    @property
    def weights(self) -> Mapping[Named, float]:
        """Of those that have one."""
        return {candidate.model: candidate.weight for candidate in self.candidates if candidate.weight}

    def names(self) -> Iterator[Named]:
        """Every model that it names."""
        yield from filter(None, (self.model, self.shadow))
        yield from self.listed
        yield from self.forbidden


NOTHING = Route()
"""Where nothing is laid down."""

_Score = Annotated[float, Field(ge=0, le=1)]


class _Scores(_Entry):
    format: Literal["hugginggpt/scores/1"]
    tasks: Mapping[str, Mapping[str, _Score]]


class _File(_Entry):
    format: Literal["hugginggpt/routes/1"]
    tasks: Mapping[str, Route] = Field(default_factory=dict)
    forbidden: tuple[Model, ...] = ()
    """Whatever the task."""
    scores: str = ""
    """A file that compare --save-scores has written; its path begins where this file is."""


@dataclass(frozen=True)
class Table:
    """What is laid down for all tasks.

    Args:
        routes: by task.
        forbidden: models that are used for no task.
        scores: how good models were found to be, from 0 to 1, by task and id.
    """

    routes: Mapping[str, Route] = field(default_factory=dict)
    forbidden: tuple[Named, ...] = ()
    scores: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Whether anything is."""
        return bool(self.routes or self.forbidden or self.scores)

    @property
    def digest(self) -> str:
        return blake2b(repr(self).encode(), digest_size=8).hexdigest() if self else ""

    def route(self, task: str) -> Route:
        return self.routes.get(task, NOTHING)

    def forbids(self, task: str, model: str, revision: str) -> bool:
        return any(name.means(model, revision) for name in (*self.forbidden, *self.route(task).forbidden))


def read(path: Path) -> Table:
    """The table in a file, and the scores that it names.

    Raises:
        FailedPrecondition: with the line of what is wrong, and what would help.
    """
    file = config_file.read(path, _File, SETTING)
    scores = config_file.read(path.parent / file.scores, _Scores, SETTING).tasks if file.scores else {}
    return Table(file.tasks, file.forbidden, scores)

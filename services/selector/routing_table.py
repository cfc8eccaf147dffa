"""The operator's routing table: which models are first, allowed, forbidden or shadows, by task."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from services.common import config_file

SETTING = "SELECTOR_ROUTES"


@dataclass(frozen=True)
class ModelName:
    """A model, at any commit unless one is named."""

    id: str
    revision: str = ""

    def matches(self, model: str, revision: str) -> bool:
        return self.id == model and self.revision in {"", revision}

    def __str__(self) -> str:
        return f"{self.id}@{self.revision}" if self.revision else self.id


def named(text: Any) -> Any:
    """Parses a name: model, or model@revision."""
    if isinstance(text, ModelName):
        return text
    if not isinstance(text, str) or not text.strip("@ "):
        raise ValueError("name a model, or model@revision")
    model, at, revision = text.rpartition("@")
    return ModelName(model, revision) if at and model else ModelName(text)


Model = Annotated[ModelName, BeforeValidator(named)]


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class Candidate(_Entry):
    """A model that may be selected."""

    model: Model
    weight: float = Field(0.0, ge=0, allow_inf_nan=False)
    """Share of the runs for which it is first; 0: only a fallback of those with a weight."""


def _candidate(written: Any) -> Any:
    return {"model": written} if isinstance(written, str) else written


class Route(_Entry):
    """Rules of one task."""

    model: Model | None = None
    """First while it is offered."""
    candidates: tuple[Annotated[Candidate, BeforeValidator(_candidate)], ...] = ()
    """Only these models are selected; empty: all that are not forbidden. A run may still pin another model."""
    forbidden: tuple[Model, ...] = ()
    """Never used, not even if a run pins them."""
    shadow: Model | None = None
    """Runs in addition to the selected model, for comparison; its results are not used."""

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
    def listed(self) -> list[ModelName]:
        return [candidate.model for candidate in self.candidates]

    @property
    def weights(self) -> Mapping[ModelName, float]:
        """Weights of the candidates that have one."""
        return {candidate.model: candidate.weight for candidate in self.candidates if candidate.weight}

    def names(self) -> Iterator[ModelName]:
        """All models that the route names."""
        yield from filter(None, (self.model, self.shadow))
        yield from self.listed
        yield from self.forbidden


NOTHING = Route()
"""The route of tasks without rules."""

_Score = Annotated[float, Field(ge=0, le=1)]


class _Scores(_Entry):
    format: Literal["hugginggpt/scores/1"]
    tasks: Mapping[str, Mapping[str, _Score]]


class _File(_Entry):
    format: Literal["hugginggpt/routes/1"]
    tasks: Mapping[str, Route] = Field(default_factory=dict)
    forbidden: tuple[Model, ...] = ()
    """For all tasks."""
    scores: str = ""
    """Path, relative to this file, of a file written by compare --save-scores."""


@dataclass(frozen=True)
class RoutingTable:
    """Rules of all tasks.

    Args:
        routes: by task.
        forbidden: models that are used for no task.
        scores: measured quality of models, from 0 to 1, by task and ID.
    """

    routes: Mapping[str, Route] = field(default_factory=dict)
    forbidden: tuple[ModelName, ...] = ()
    scores: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Whether there is any rule."""
        return bool(self.routes or self.forbidden or self.scores)

    @property
    def digest(self) -> str:
        return blake2b(repr(self).encode(), digest_size=8).hexdigest() if self else ""

    def route(self, task: str) -> Route:
        return self.routes.get(task, NOTHING)

    def forbids(self, task: str, model: str, revision: str) -> bool:
        return any(name.matches(model, revision) for name in (*self.forbidden, *self.route(task).forbidden))


def read(path: Path) -> RoutingTable:
    """Reads the table from a file, and the scores file that it names.

    Raises:
        FailedPrecondition: the file is invalid; the message names the line, the remedy a correction.
    """
    file = config_file.read(path, _File, SETTING)
    scores = config_file.read(path.parent / file.scores, _Scores, SETTING).tasks if file.scores else {}
    return RoutingTable(file.tasks, file.forbidden, scores)

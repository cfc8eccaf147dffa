"""The operator's routing table: models that are first, allowed, forbidden or shadows by task, and their scores."""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from services.common import config_file
from services.selector.ranking import Bonus
from services.selector.task_offers import Offer

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


_FIRST_BONUS = 40.0
"""More than the sum of all ranking points, including the penalty of external models."""
_SCORED = 2.0
"""Difference between the worst and the best score; less than matching terms can add."""
_MIDDLE = 0.5
"""A score that adds nothing."""


def allowed(route: Route, offers: Sequence[Offer], admitted: Iterable[int]) -> Collection[int]:
    """Indices of the offers that may be selected where no model is pinned."""
    query = [name for name in (route.model, *route.listed) if name] if route.candidates else []
    return [
        position
        for position in admitted
        if not (route.shadow and _is(offers[position], route.shadow))
        and (not query or any(_is(offers[position], name) for name in query))
    ]


def leading_bonuses(route: Route, offers: Sequence[Offer], open_to: Collection[int], seed: str) -> Mapping[int, Bonus]:
    """Bonuses of the offers of the model that is first, by index.

    Args:
        route: of the task.
        offers: of the task.
        open_to: indices of the offers that may be selected and have no open circuit.
        seed: decides between weights: equal seeds give equal choices, while the same models are offered.
    """
    offered = {name for name in (route.model, *route.weights) if name and _positions_of(name, offers, open_to)}
    if route.model in offered:
        reason = "first by the routing table"
        return {position: Bonus(_FIRST_BONUS, reason) for position in _positions_of(route.model, offers, open_to)}
    weights = {name: weight for name, weight in route.weights.items() if name in offered}
    if not weights:
        return {}
    selected = max(weights, key=lambda name: _draw(seed, name, weights[name]))
    reason = f"chosen for this run by its weight, {weights[selected]:g} of {sum(weights.values()):g}"
    return {position: Bonus(_FIRST_BONUS, reason) for position in _positions_of(selected, offers, open_to)}


def combine(first: Mapping[int, Bonus], second: Mapping[int, Bonus]) -> Mapping[int, Bonus]:
    """Adds bonuses; the reasons of the first argument come first."""
    combined = {
        position: Bonus(first[position].points + bonus.points, f"{first[position].reason}; {bonus.reason}")
        for position, bonus in second.items()
        if position in first
    }
    return {**second, **first, **combined}


def score_bonuses(table: RoutingTable, task: str, offers: Sequence[Offer]) -> Mapping[int, Bonus]:
    """Bonuses from the models' scores, by index."""
    scores = table.scores.get(task)
    if not scores:
        return {}
    return {
        position: Bonus(_SCORED * (scores[offer.card.id] - _MIDDLE), f"scored {scores[offer.card.id]:.2f}")
        for position, offer in enumerate(offers)
        if offer.card.id in scores
    }


def _positions_of(name: ModelName | None, offers: Sequence[Offer], positions: Iterable[int]) -> list[int]:
    return [position for position in positions if name and _is(offers[position], name)]


def _is(offer: Offer, name: ModelName) -> bool:
    return name.matches(offer.card.id, offer.card.revision)


def _draw(seed: str, name: ModelName, weight: float) -> float:
    """Weighted rendezvous hashing: the highest value wins, and removing a model moves only that model's share."""
    digest = blake2b(f"{seed}\0{name}".encode(), digest_size=8).digest()
    return -weight / math.log((int.from_bytes(digest) + 0.5) / 2**64)

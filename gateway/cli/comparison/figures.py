"""What trials come to: how often models agree, how often they are right, how long they take, what they cost."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean, median

from gateway.cli.comparison.similarity import correctness, likeness
from gateway.cli.comparison.trials import Contestant, Trial

SAME = 1.0

Row = Sequence[Trial]
"""What each model made of a file."""


@dataclass(frozen=True)
class Agreement:
    """Between two answers, or an answer and a label, over files."""

    files: int
    """That could be compared."""
    same: int
    likeness: float | None
    """Mean, from 0 to 1; None where nothing could be compared."""

    @property
    def share(self) -> float | None:
        """Of files with the same answer."""
        return self.same / self.files if self.files else None


@dataclass(frozen=True)
class Figures:
    """Of one model."""

    answered: int
    failed: int
    score: Agreement
    """Against the labels; a failure is as wrong as can be."""
    median_seconds: float | None
    cost: float
    input_tokens: int
    output_tokens: int


def figures(rows: Sequence[Row], labels: Sequence[str | None], place: int) -> Figures:
    """Of the model at a place.

    Args:
        rows: of all files.
        labels: what is right, for each file; None: nobody said.
        place: among the models.
    """
    mine = [row[place] for row in rows]
    seconds = [trial.seconds for trial in mine if trial.seconds is not None]
    return Figures(
        answered=sum(trial.answer is not None for trial in mine),
        failed=sum(trial.answer is None for trial in mine),
        score=_agreement([right(trial, label) for trial, label in zip(mine, labels, strict=True) if label is not None]),
        median_seconds=median(seconds) if seconds else None,
        cost=sum(trial.cost for trial in mine),
        input_tokens=sum(trial.input_tokens for trial in mine),
        output_tokens=sum(trial.output_tokens for trial in mine),
    )


def agreements(rows: Sequence[Row], models: Sequence[Contestant]) -> Mapping[tuple[Contestant, Contestant], Agreement]:
    """Of every two models, over the files that both answered."""
    pairs = combinations(range(len(models)), 2)
    return {
        (models[one], models[other]): _agreement([like(row[one], row[other]) for row in rows]) for one, other in pairs
    }


def agreed(row: Row) -> bool | None:
    """Whether all that answered say the same; None if fewer than two can be compared."""
    known = [found for one, other in combinations(row, 2) if (found := like(one, other)) is not None]
    return all(found == SAME for found in known) if known else None


def like(one: Trial, other: Trial) -> float | None:
    """None unless both answered, in ways that can be compared."""
    return likeness(one.answer.value, other.answer.value) if one.answer and other.answer else None


def right(trial: Trial, label: str) -> float | None:
    """How right an answer is; a failure is not."""
    return correctness(trial.answer, label) if trial.answer else 0.0


def _agreement(found: Sequence[float | None]) -> Agreement:
    known = [each for each in found if each is not None]
    return Agreement(len(known), sum(each == SAME for each in known), fmean(known) if known else None)

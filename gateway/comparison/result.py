"""Result of a comparison: agreement, score, duration and cost of models."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean, median
from typing import Any

from gateway.client import Artifact
from gateway.comparison.similarity import correctness, similarity
from gateway.comparison.trials import ComparedModel, Trial

SAME = 1.0

Row = Sequence[Trial]
"""Trials of all models with one file."""


@dataclass(frozen=True)
class Agreement:
    """Agreement of two models, or of a model and the labels, over all files."""

    files: int
    """Number of files that could be compared."""
    same: int
    similarity: float | None
    """Mean similarity from 0 to 1; None if no file could be compared."""

    @property
    def share(self) -> float | None:
        """Share of files with the same answer."""
        return self.same / self.files if self.files else None


@dataclass(frozen=True)
class Figures:
    """Statistics of one model."""

    answered: int
    failed: int
    score: Agreement
    """Agreement with the labels; a failed trial has similarity 0."""
    median_seconds: float | None
    cost: float
    input_tokens: int
    output_tokens: int


def figures(rows: Sequence[Row], labels: Sequence[str | None], index: int) -> Figures:
    """Computes the statistics of one model.

    Args:
        rows: trials of all files.
        labels: expected answer of each file; None if there is none.
        index: index of the model.
    """
    trials = [row[index] for row in rows]
    seconds = [trial.seconds for trial in trials if trial.seconds is not None]
    return Figures(
        answered=sum(trial.answer is not None for trial in trials),
        failed=sum(trial.answer is None for trial in trials),
        score=_summarize(
            [correctness_of(trial, label) for trial, label in zip(trials, labels, strict=True) if label is not None]
        ),
        median_seconds=median(seconds) if seconds else None,
        cost=sum(trial.cost for trial in trials),
        input_tokens=sum(trial.input_tokens for trial in trials),
        output_tokens=sum(trial.output_tokens for trial in trials),
    )


def agreements(
    rows: Sequence[Row], models: Sequence[ComparedModel]
) -> Mapping[tuple[ComparedModel, ComparedModel], Agreement]:
    """Computes the agreement of every two models over the files that both answered."""
    pairs = combinations(range(len(models)), 2)
    return {
        (models[one], models[other]): _summarize([similarity_of(row[one], row[other]) for row in rows])
        for one, other in pairs
    }


def is_unanimous(row: Row) -> bool | None:
    """Whether all answers are the same; None if fewer than two can be compared."""
    similarities = [found for one, other in combinations(row, 2) if (found := similarity_of(one, other)) is not None]
    return all(found == SAME for found in similarities) if similarities else None


def similarity_of(one: Trial, other: Trial) -> float | None:
    """Similarity of two answers from 0 to 1; None unless both exist and are comparable."""
    return similarity(one.answer.value, other.answer.value) if one.answer and other.answer else None


def correctness_of(trial: Trial, label: str) -> float | None:
    """Similarity of an answer to its label; 0 for a failed trial."""
    return correctness(trial.answer, label) if trial.answer else 0.0


def _summarize(found: Sequence[float | None]) -> Agreement:
    known = [each for each in found if each is not None]
    return Agreement(len(known), sum(each == SAME for each in known), fmean(known) if known else None)


@dataclass(frozen=True)
class Comparison:
    """Result of a comparison.

    Args:
        task: name of the task.
        models: compared models.
        files: names of the files.
        labels: expected answer of each file; None if there is none.
        rows: trials of all models, by file.
    """

    task: str
    models: Sequence[ComparedModel]
    files: Sequence[str]
    labels: Sequence[str | None]
    rows: Sequence[Row]

    @property
    def is_labelled(self) -> bool:
        return any(label is not None for label in self.labels)

    def figures(self) -> Mapping[ComparedModel, Figures]:
        return {model: figures(self.rows, self.labels, index) for index, model in enumerate(self.models)}

    def agreements(self) -> Mapping[tuple[ComparedModel, ComparedModel], Agreement]:
        return agreements(self.rows, self.models)

    def scores(self) -> Mapping[str, float]:
        """Mean similarity to the labels, by the id of each model that could be compared with them."""
        similarities = {model.id: each.score.similarity for model, each in self.figures().items()}
        return {model: score for model, score in similarities.items() if score is not None}

    @property
    def unanimity(self) -> Sequence[bool | None]:
        """Whether all answers are the same, by file; None if fewer than two can be compared."""
        return [is_unanimous(row) for row in self.rows]

    @property
    def is_complete(self) -> bool:
        return all(trial.answer for row in self.rows for trial in row)

    def report(self) -> dict[str, Any]:
        """The output of compare --json."""
        return {
            "task": self.task,
            "models": [
                {**_model(model), **_figures(each, labelled=self.is_labelled)} for model, each in self.figures().items()
            ],
            "agreement": [
                {"models": [str(model) for model in pair], **_agreement(each)}
                for pair, each in self.agreements().items()
            ],
            "files": [
                {"file": file, "label": label, "agreed": agreed, "results": list(map(_trial, self.models, row))}
                for file, label, agreed, row in zip(self.files, self.labels, self.unanimity, self.rows, strict=True)
            ],
        }


def _model(model: ComparedModel) -> dict[str, Any]:
    return {"model": model.id, "revision": model.revision or None}


def _figures(each: Figures, *, labelled: bool) -> dict[str, Any]:
    return {
        "answered": each.answered,
        "failed": each.failed,
        "score": _agreement(each.score) if labelled else None,
        "median_seconds": each.median_seconds,
        "cost": each.cost,
        "input_tokens": each.input_tokens,
        "output_tokens": each.output_tokens,
    }


def _agreement(each: Agreement) -> dict[str, Any]:
    return {"files": each.files, "same": each.same, "share": each.share, "likeness": each.similarity}


def _trial(model: ComparedModel, trial: Trial) -> dict[str, Any]:
    return {
        "model": model.id,
        "revision": trial.revision or None,
        "expert": trial.expert or None,
        "answer": trial.answer.shown if trial.answer else None,
        "outputs": {port: _output(value) for port, value in trial.outputs.items()},
        "error": trial.error or None,
        "seconds": trial.seconds,
        "cost": trial.cost,
        "input_tokens": trial.input_tokens,
        "output_tokens": trial.output_tokens,
        "run_id": trial.run_id,
    }


def _output(value: Any) -> Any:
    return {"artifact": value.model_dump(mode="json")} if isinstance(value, Artifact) else value

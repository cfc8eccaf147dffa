"""Five-fold cross-validation: each fifth of TaskBench's requests is planned with weights trained on the others."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from sklearn.model_selection import KFold

from services.planner.embedded.learned.weights import Weights, read, write
from services.planner.embedded.planning import Embedded
from services.planner.plan import Draft
from services.planner.request import Request
from services.planner.task_spec import Catalogue, standard_specs
from tests.eval.lines import Line
from tests.eval.lines import read as read_lines
from tests.eval.planners import Outcome, Planner, outcomes
from tests.eval.scoring import scores
from tests.eval.tools import catalogue, spelling
from tests.eval.training.__main__ import PROCESSES, intents
from tests.eval.training.examples import Example, examples
from tests.eval.training.learning import learned

FOLDS = 5
ADDITIONAL_TRAINING = Path(__file__).with_name("data") / "training.jsonl"
"""Additional training data, which is not scored here."""


async def figures(lines: Sequence[Line], *, quiet: bool = True) -> dict[str, Any]:
    """Scores over all lines, each planned with weights that were not trained on it."""
    written, training = spelling(lines), read_lines(ADDITIONAL_TRAINING)
    names = intents([*lines, *training])
    labelled, additional = examples(lines, names), examples(training, names)
    results: list[Outcome | None] = [None] * len(lines)
    console = Console(stderr=True, quiet=quiet)
    for fold, (seen, unseen) in enumerate(KFold(FOLDS, shuffle=True, random_state=0).split(lines), start=1):
        console.print(f"training and planning, fold {fold} of {FOLDS}")
        planner = _planner([labelled[i] for i in seen], additional, names)
        planned = await outcomes(planner, [lines[i] for i in unseen], catalogue(written), quiet=quiet)
        for i, outcome in zip(unseen, planned, strict=True):
            results[i] = outcome
    return scores(lines, [outcome for outcome in results if outcome], written)


def _planner(seen: Sequence[Example], additional: Sequence[Example], names: Sequence[str]) -> Planner:
    embedded = Embedded(standard_specs(), _as_shipped(learned([*seen, *additional], names, jobs=PROCESSES)))

    async def plan(request: Request, offered: Catalogue) -> Draft:
        return embedded.plan(request, offered)

    return Planner(plan)


def _as_shipped(trained_weights: Weights) -> Weights:
    """The weights with the precision of the planner's weights file."""
    return read(write(trained_weights))

"""Scores of the planner's confidence: calibration, confident errors, and abstention."""

from collections.abc import Sequence
from typing import Any

from services.planner.plan import Draft, NoteKind
from tests.eval import arguments
from tests.eval.comparison import Compared
from tests.eval.metrics import percent

SURE = 0.7
"""Lowest confidence of a plan that counts as sure."""

BINS = 10
_SHOWN = 20
_EXPECTED = {"clarify": NoteKind.CLARIFY, "unmapped": NoteKind.UNMAPPED, "chat": NoteKind.CHAT}
_DOUBTS = {NoteKind.CLARIFY, NoteKind.UNMAPPED}


def scores(comparisons: Sequence[Compared]) -> dict[str, Any]:
    """Numbers of sure and wrong plans, calibration error, and quality of abstention."""
    planned = [compared for compared in comparisons if compared.draft.tasks and compared.answer]
    sure = [compared for compared in planned if is_sure(compared.draft)]
    wrong = [compared.line.id for compared in sure if not compared.right]
    return {
        "sure": len(sure),
        "wrong_but_sure": len(wrong),
        "wrong_but_sure_ids": wrong[:_SHOWN],
        "wrong_arguments_but_sure": sum(compared.right and arguments.is_wrong(compared) for compared in sure),
        "calibration_error": calibration_error(
            [(compared.draft.decision.confidence, compared.right) for compared in planned]
        ),
        "abstention": _abstention(comparisons),
    }


def is_sure(draft: Draft) -> bool:
    """Whether a plan has a high confidence and no note of doubt."""
    doubtful = any(note.kind in _DOUBTS for note in draft.notes)
    return draft.decision.confidence >= SURE and not doubtful


def calibration_error(plans: Sequence[tuple[float, bool]]) -> float | None:
    """Expected calibration error over ten equal bins, from 0 to 1; None without plans.

    Args:
        plans: confidence of each, and whether it is right.
    """
    bins: list[list[tuple[float, bool]]] = [[] for _ in range(BINS)]
    for confidence, right in plans:
        bins[min(int(confidence * BINS), BINS - 1)].append((confidence, right))
    gaps = (abs(sum(confidence - right for confidence, right in compared)) for compared in bins)
    return round(sum(gaps) / len(plans), 4) if plans else None


def _abstention(comparisons: Sequence[Compared]) -> dict[str, Any]:
    """Requests that should not be planned: percentages without a sure plan, and with the right note."""
    unplannable = [compared for compared in comparisons if compared.line.expect != "plan"]
    plannable = [compared for compared in comparisons if compared.line.expect == "plan"]
    abstained = [not compared.draft.tasks or not is_sure(compared.draft) or compared.right for compared in unplannable]
    named = [
        any(note.kind is _EXPECTED[compared.line.expect] for note in compared.draft.notes) for compared in unplannable
    ]
    return {
        "n": len(unplannable),
        "abstained": percent(sum(abstained), len(abstained)),
        "right_note": percent(sum(named), len(named)),
        "abstained_without_need": percent(sum(not compared.draft.tasks for compared in plannable), len(plannable)),
    }

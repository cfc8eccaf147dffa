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


def scores(everything: Sequence[Compared]) -> dict[str, Any]:
    """Numbers of sure and wrong plans, calibration error, and quality of abstention."""
    planned = [one for one in everything if one.draft.tasks and one.answer]
    sure = [one for one in planned if is_sure(one.draft)]
    wrong = [one.line.id for one in sure if not one.right]
    return {
        "sure": len(sure),
        "wrong_but_sure": len(wrong),
        "wrong_but_sure_ids": wrong[:_SHOWN],
        "wrong_arguments_but_sure": sum(one.right and arguments.wrong(one) for one in sure),
        "calibration_error": calibration_error([(one.draft.decision.confidence, one.right) for one in planned]),
        "abstention": _abstention(everything),
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
    gaps = (abs(sum(confidence - right for confidence, right in one)) for one in bins)
    return round(sum(gaps) / len(plans), 4) if plans else None


def _abstention(everything: Sequence[Compared]) -> dict[str, Any]:
    """Requests that should not be planned: percentages without a sure plan, and with the right note."""
    unplannable = [one for one in everything if one.line.expect != "plan"]
    plannable = [one for one in everything if one.line.expect == "plan"]
    abstained = [not one.draft.tasks or not is_sure(one.draft) or one.right for one in unplannable]
    named = [any(note.kind is _EXPECTED[one.line.expect] for note in one.draft.notes) for one in unplannable]
    return {
        "n": len(unplannable),
        "abstained": percent(sum(abstained), len(abstained)),
        "right_note": percent(sum(named), len(named)),
        "abstained_without_need": percent(sum(not one.draft.tasks for one in plannable), len(plannable)),
    }

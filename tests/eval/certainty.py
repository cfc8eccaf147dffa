"""Whether the planner knows what it does not know."""

from collections.abc import Sequence
from typing import Any

from services.planner.plan import Draft, NoteKind
from tests.eval import arguments
from tests.eval.comparing import Compared
from tests.eval.metrics import percent

SURE = 0.7
"""From this confidence on a plan passes for a sure one."""

BINS = 10
_SHOWN = 20
_EXPECTED = {"clarify": NoteKind.CLARIFY, "unmapped": NoteKind.UNMAPPED, "chat": NoteKind.CHAT}
_DOUBTS = {NoteKind.CLARIFY, NoteKind.UNMAPPED}


def scores(everything: Sequence[Compared]) -> dict[str, Any]:
    """How many plans were sure and wrong, how far confidence is from being right, how often it abstains well."""
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
    """Whether a plan is given without a doubt."""
    doubtful = any(note.kind in _DOUBTS for note in draft.notes)
    return draft.decision.confidence >= SURE and not doubtful


def calibration_error(told: Sequence[tuple[float, bool]]) -> float | None:
    """How far confidence is from the share of right plans, over ten equal bins, weighted by plans; 0 to 1."""
    bins: list[list[tuple[float, bool]]] = [[] for _ in range(BINS)]
    for confidence, right in told:
        bins[min(int(confidence * BINS), BINS - 1)].append((confidence, right))
    gaps = (abs(sum(confidence - right for confidence, right in one)) for one in bins)
    return round(sum(gaps) / len(told), 4) if told else None


def _abstention(everything: Sequence[Compared]) -> dict[str, Any]:
    """Of requests that should not be planned: how many were not, or with doubts, and with the right note; percent."""
    unplannable = [one for one in everything if one.line.expect != "plan"]
    plannable = [one for one in everything if one.line.expect == "plan"]
    kept = [not one.draft.tasks or not is_sure(one.draft) or one.right for one in unplannable]
    named = [any(note.kind is _EXPECTED[one.line.expect] for note in one.draft.notes) for one in unplannable]
    return {
        "n": len(unplannable),
        "abstained": percent(sum(kept), len(kept)),
        "right_note": percent(sum(named), len(named)),
        "abstained_without_need": percent(sum(not one.draft.tasks for one in plannable), len(plannable)),
    }

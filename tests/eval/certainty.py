"""Whether the planner knows what it does not know."""

from collections.abc import Sequence
from typing import Any

from services.planner.plan import Draft, NoteKind
from tests.eval.lines import Graph, Line
from tests.eval.metrics import percent

SURE = 0.7
"""From this confidence on a plan passes for a sure one."""

BINS = 10
_SHOWN = 20
_EXPECTED = {"clarify": NoteKind.CLARIFY, "unmapped": NoteKind.UNMAPPED, "chat": NoteKind.CHAT}
_DOUBTS = {NoteKind.CLARIFY, NoteKind.UNMAPPED}


def scores(lines: Sequence[Line], drafts: Sequence[Draft], graphs: Sequence[Graph]) -> dict[str, Any]:
    """How many plans were sure and wrong, how far confidence is from being right, how often it abstains well."""
    plans = list(zip(lines, drafts, graphs, strict=True))
    sure = [(line, graph) for line, draft, graph in plans if draft.tasks and line.graph and is_sure(draft)]
    wrong = [line.id for line, graph in sure if line.graph and not graph.same(line.graph)]
    told = [
        (draft.decision.confidence, graph.same(line.graph))
        for line, draft, graph in plans
        if draft.tasks and line.graph
    ]
    return {
        "sure": len(sure),
        "wrong_but_sure": len(wrong),
        "wrong_but_sure_ids": wrong[:_SHOWN],
        "calibration_error": calibration_error(told),
        "abstention": _abstention(lines, drafts),
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


def _abstention(lines: Sequence[Line], drafts: Sequence[Draft]) -> dict[str, Any]:
    """Of requests that should not be planned: how many were not, or with doubts, and with the right note; %."""
    unplannable = [(line, draft) for line, draft in zip(lines, drafts, strict=True) if line.expect != "plan"]
    plannable = [draft for line, draft in zip(lines, drafts, strict=True) if line.expect == "plan"]
    kept = [not draft.tasks or not is_sure(draft) for _, draft in unplannable]
    named = [any(note.kind is _EXPECTED[line.expect] for note in draft.notes) for line, draft in unplannable]
    return {
        "n": len(unplannable),
        "abstained": percent(sum(kept), len(kept)),
        "right_note": percent(sum(named), len(named)),
        "abstained_without_need": percent(sum(not draft.tasks for draft in plannable), len(plannable)),
    }

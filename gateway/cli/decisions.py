"""Describes which component planned a run, chose a model or wrote the answer, and why."""

from collections.abc import Mapping
from typing import Any

Decision = Mapping[str, Any]
"""A Decision of a run event; empty if the event has none."""

_PLANNERS = {"llm": "the LLM {}", "embedded": "the embedded planner", "supplied": "the client"}
_WRITERS = {"llm": "written by the LLM {}", "composed": "composed from the results"}
_CHOOSERS = {"llm": "the LLM {}", "rank": "rank", "pinned": "the request", "routed": "the routing table"}


def describe_planner(decision: Decision, *, llm_planned_first: bool = False) -> str:
    """Describes the planner.

    Args:
        decision: decision of the completed plan.
        llm_planned_first: an LLM had planned tasks before the embedded planner took over.
    """
    if not decision.get("controller"):
        return str(decision.get("reason", ""))
    planner = _named(_PLANNERS, decision)
    before = f"first by the LLM {_model(decision)}, then " if llm_planned_first else ""
    return f"planned {before}by {planner}{_reason(decision)}"


def describe_answer_writer(decision: Decision) -> str:
    """Describes what wrote the answer; empty if no LLM was configured for it."""
    return f"answer {_named(_WRITERS, decision)}{_reason(decision)}" if _is_reported(decision) else ""


def describe_choice(decision: Decision) -> str:
    """Describes what chose the model; empty if no LLM was configured for it."""
    return f"chosen by {_named(_CHOOSERS, decision)}{_reason(decision)}" if _is_reported(decision) else ""


def _is_reported(decision: Decision) -> bool:
    return decision.get("controller") == "llm" or bool(decision.get("fell_back_because"))


def _named(names: Mapping[str, str], decision: Decision) -> str:
    controller = decision["controller"]
    return names.get(controller, controller).format(_model(decision))


def _model(decision: Decision) -> str:
    return str(decision.get("llm_model", ""))


def _reason(decision: Decision) -> str:
    because = decision.get("fell_back_because")
    return f": {because}" if because else ""

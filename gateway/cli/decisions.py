"""Who planned, chose and answered, and why not somebody else: a line each."""

from collections.abc import Mapping
from typing import Any

Decision = Mapping[str, Any]
"""As events have it; empty if nobody said."""

_PLANNERS = {"llm": "the LLM {}", "embedded": "the embedded planner", "supplied": "whoever supplied it"}
_WRITERS = {"llm": "written by the LLM {}", "composed": "composed from the results"}
_CHOOSERS = {"llm": "the LLM {}", "rank": "rank", "pinned": "the request", "routed": "the routing table"}


def of_plan(decision: Decision, *, begun: bool = False) -> str:
    """Who planned.

    Args:
        decision: with which the plan ended.
        begun: an LLM had planned tasks when somebody else took over.
    """
    if not decision.get("controller"):
        return str(decision.get("reason", ""))
    who = _named(_PLANNERS, decision)
    before = f"first by the LLM {_model(decision)}, then " if begun else ""
    return f"planned {before}by {who}{_why(decision)}"


def of_answer(decision: Decision) -> str:
    """Who wrote the answer; nothing where no LLM was to."""
    return f"answer {_named(_WRITERS, decision)}{_why(decision)}" if _worth_telling(decision) else ""


def of_choice(decision: Decision) -> str:
    """Who chose a model; nothing where no LLM was to."""
    return f"chosen by {_named(_CHOOSERS, decision)}{_why(decision)}" if _worth_telling(decision) else ""


def _worth_telling(decision: Decision) -> bool:
    return decision.get("controller") == "llm" or bool(decision.get("fell_back_because"))


def _named(names: Mapping[str, str], decision: Decision) -> str:
    controller = decision["controller"]
    return names.get(controller, controller).format(_model(decision))


def _model(decision: Decision) -> str:
    return str(decision.get("llm_model", ""))


def _why(decision: Decision) -> str:
    because = decision.get("fell_back_because")
    return f": {because}" if because else ""

"""The LLM planner without fallback, and an ablation of its demonstrations."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from services.llm.client import LLM
from services.llm.settings import LlmSettings
from services.planner.llm.demonstrations import COUNT, VARIETY
from services.planner.llm.planner import LLMPlanner
from services.planner.llm.prompt import PlanPromptBuilder
from services.planner.plan import Draft, Note, Task
from services.planner.request import Request
from services.planner.task_spec import Catalogue
from tests.eval.lines import Line
from tests.eval.planners import Planner, outcomes
from tests.eval.scoring import scores
from tests.eval.tools import catalogue, spelling

COUNTS = (0, 1, 2, 4, 8)
LOW, HIGH = 0.0, 0.8
"""Variety of the demonstrations: the most similar ones only, or diverse ones."""

_SHOWN = ("node_f1", "edge_f1", "exact", "p50_ms", "p95_ms")


class NoEndpoint(Exception):
    """No LLM is configured; the message has the remedy."""


@asynccontextmanager
async def by_llm(*, count: int = COUNT, variety: float = VARIETY) -> AsyncIterator[Planner]:
    """The LLM planner without the embedded one as fallback: a request that it cannot plan is a failure.

    Raises:
        NoEndpoint: no LLM is configured.
    """
    settings = LlmSettings.of("planner")
    if settings.base_url is None:
        raise NoEndpoint("no LLM is configured: set LLM_BASE_URL and LLM_MODEL, and LLM_API_KEY if it is required")
    async with LLM.open(settings, role="planner") as llm:
        controller = LLMPlanner(llm, PlanPromptBuilder(count=count, variety=variety))

        async def plan(request: Request, catalogue: Catalogue) -> Draft:
            steps: list[Task | Note] = []

            async def append(step: Task | Note) -> None:
                steps.append(step)

            decision = await controller.plan(request, catalogue, append)
            tasks = tuple(step for step in steps if isinstance(step, Task))
            return Draft(tasks, tuple(step for step in steps if isinstance(step, Note)), decision)

        yield Planner(plan, settings.concurrency)


async def ablation(lines: Sequence[Line], *, quiet: bool) -> list[dict[str, Any]]:
    """Scores by number of demonstrations, with similar and with diverse ones."""
    rows = []
    for count in COUNTS:
        for variety in (LOW, HIGH) if count > 1 else (LOW,):
            async with by_llm(count=count, variety=variety) as planner:
                found = await outcomes(planner, lines, catalogue(spelling(lines)), quiet=quiet)
            figures = scores(lines, found, spelling(lines))
            shown = {key: figures[key] for key in _SHOWN}
            rows.append({"count": count, "variety": variety, **shown, "failures": len(figures["failures"])})
    return rows

"""The planner that asks an LLM, and how much its demonstrations do."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from services.llm.client import LLM
from services.llm.settings import LlmSettings
from services.planner.llm.demonstrations import COUNT, VARIETY
from services.planner.llm.planner import ByLlm
from services.planner.llm.prompt import Prompting
from services.planner.plan import Catalogue, Draft, Note, Task
from services.planner.request import Request
from tests.eval.lines import Line
from tests.eval.planners import Planner, outcomes
from tests.eval.scoring import scores
from tests.eval.tools import catalogue, spelling

COUNTS = (0, 1, 2, 4, 8)
LOW, HIGH = 0.0, 0.8
"""The most similar demonstrations, and demonstrations that differ."""

_SHOWN = ("node_f1", "edge_f1", "exact", "p50_ms", "p95_ms")


class NoEndpoint(Exception):
    """There is no LLM to ask; the message has the remedy."""


@asynccontextmanager
async def by_llm(*, count: int = COUNT, variety: float = VARIETY) -> AsyncIterator[Planner]:
    """The LLM alone, not the house: where it gives up, the request has failed, and nothing falls back.

    Raises:
        NoEndpoint: none is set.
    """
    settings = LlmSettings.of("planner")
    if settings.base_url is None:
        raise NoEndpoint("no LLM is configured: set LLM_BASE_URL and LLM_MODEL, and LLM_API_KEY where it wants one")
    async with LLM.opened(settings, role="planner") as llm:
        controller = ByLlm(llm, Prompting(count=count, variety=variety))

        async def plan(asked: Request, catalogue: Catalogue) -> Draft:
            told: list[Task | Note] = []

            async def tell(step: Task | Note) -> None:
                told.append(step)

            decision = await controller.plan(asked, catalogue, tell)
            tasks = tuple(step for step in told if isinstance(step, Task))
            return Draft(tasks, tuple(step for step in told if isinstance(step, Note)), decision)

        yield Planner(plan, settings.concurrency)


async def ablation(lines: Sequence[Line], *, quiet: bool) -> list[dict[str, Any]]:
    """Figures for every number of demonstrations, alike and varied; up to one there is nothing to vary."""
    rows = []
    for count in COUNTS:
        for variety in (LOW, HIGH) if count > 1 else (LOW,):
            async with by_llm(count=count, variety=variety) as planner:
                found = await outcomes(planner, lines, catalogue(spelling(lines)), quiet=quiet)
            figures = scores(lines, found, spelling(lines))
            shown = {key: figures[key] for key in _SHOWN}
            rows.append({"count": count, "variety": variety, **shown, "failures": len(figures["failures"])})
    return rows

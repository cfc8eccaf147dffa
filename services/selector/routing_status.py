"""Reports the routing table with the names in it that no expert offers."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from difflib import get_close_matches
from functools import partial

import structlog

from protos.hugginggpt.v1.model_pb2 import Route as RouteReport
from protos.hugginggpt.v1.model_pb2 import RoutedModel
from services.common.supervision import supervise
from services.selector.catalog import ExpertCatalog
from services.selector.catalog_view import CatalogView
from services.selector.routing_table import SETTING, ModelName, Route, RoutingTable

log = structlog.get_logger(__name__)

SETTLED_SECONDS = 10.0
"""Pause after a change of the catalogue, until starting experts have probably registered."""


def routes(table: RoutingTable, view: CatalogView, task: str = "") -> list[RouteReport]:
    """The routes by task, beginning with the rules for all tasks.

    Args:
        table: the deployment's.
        view: the current catalogue.
        task: only this task; empty: all.
    """
    general = (
        [RouteReport(forbidden=map(_model, table.forbidden), problems=_unoffered_forbidden(table, view))]
        if table.forbidden
        else []
    )
    query = [task] if task else sorted({*table.routes, *table.scores})
    named = [name for name in query if name in table.routes or name in table.scores]
    return general + [_route_report(name, table, view) for name in named]


def problems(table: RoutingTable, view: CatalogView) -> list[str]:
    """All names in the table that no expert offers now."""
    return [problem for route in routes(table, view) for problem in route.problems]


@asynccontextmanager
async def watching(
    table: RoutingTable, catalog: ExpertCatalog, settled_seconds: float = SETTLED_SECONDS
) -> AsyncIterator[None]:
    """Logs names that no expert offers, each once while it stays so, until the block exits."""
    if not table:
        yield
        return
    log.info("routing table loaded", tasks=sorted(table.routes), digest=table.digest)
    checking = supervise(partial(_watch, table, catalog, settled_seconds), name="routing table check")
    task = asyncio.create_task(checking, name="routes")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _watch(table: RoutingTable, catalog: ExpertCatalog, settled_seconds: float) -> None:
    revision, logged = "", set[str]()
    while news := await catalog.wait_for_revision(revision):
        await asyncio.sleep(settled_seconds)
        revision, found = news, problems(table, catalog.view)
        for problem in found:
            if problem not in logged:
                log.warning(
                    "routing table names an unknown model or task", problem=problem, remedy=f"correct {SETTING}"
                )
        logged = set(found)


def _route_report(task: str, table: RoutingTable, view: CatalogView) -> RouteReport:
    route = table.route(task)
    return RouteReport(
        task=task,
        model=_model(route.model) if route.model else None,
        candidates=[_model(candidate.model, candidate.weight) for candidate in route.candidates],
        forbidden=map(_model, route.forbidden),
        shadow=_model(route.shadow) if route.shadow else None,
        scores=table.scores.get(task, {}),
        problems=_missing(task, route, view),
    )


def _model(name: ModelName, weight: float = 0.0) -> RoutedModel:
    return RoutedModel(id=name.id, revision=name.revision, weight=weight)


def _missing(task: str, route: Route, view: CatalogView) -> Iterator[str]:
    task_offers = view.offers_of(task)
    if task_offers is None:
        yield f"no expert offers {task} now{_similar(task, view.tasks)}"
        return
    offered = {(offer.card.id, offer.card.revision) for offer in (*task_offers.offers, *task_offers.failed)}
    for name in dict.fromkeys(route.names()):
        if not any(name.matches(*model) for model in offered):
            yield f"no expert offers {name} for {task} now{_other_revisions(name, offered)}"


def _unoffered_forbidden(table: RoutingTable, view: CatalogView) -> Iterator[str]:
    """Models that are forbidden for all tasks and offered for none."""
    offered = {(card.id, card.revision) for card in view.models_of("")}
    for name in table.forbidden:
        if not any(name.matches(*model) for model in offered):
            yield f"no expert offers {name} now{_other_revisions(name, offered)}"


def _other_revisions(name: ModelName, offered: set[tuple[str, str]]) -> str:
    revisions = sorted(revision or "unnamed" for model, revision in offered if model == name.id)
    return (
        f"; it is offered at {', '.join(revisions)}"
        if revisions
        else _similar(name.id, {model for model, _ in offered})
    )


def _similar(name: str, others: Iterable[str]) -> str:
    similar = get_close_matches(name, others, n=1)
    return f"; did you mean {similar[0]}?" if similar else ""

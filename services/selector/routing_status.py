"""The routing table as it is told: beside the catalogue, with the names in it that nothing goes by."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from difflib import get_close_matches
from functools import partial

import structlog

from protos.hugginggpt.v1.model_pb2 import Route as Told
from protos.hugginggpt.v1.model_pb2 import RoutedModel
from services.common.supervision import supervise
from services.selector.catalog import Catalog
from services.selector.catalog_view import View
from services.selector.routing_table import SETTING, Named, Route, Table

log = structlog.get_logger(__name__)

SETTLED_SECONDS = 10.0
"""After a change, until experts that are starting have most likely come."""


def routes(table: Table, view: View, task: str = "") -> list[Told]:
    """What is laid down, by task; first what is for any.

    Args:
        table: the deployment's.
        view: what there is now.
        task: only this one; empty: all.
    """
    general = [Told(forbidden=map(_model, table.forbidden), problems=_nowhere(table, view))] if table.forbidden else []
    wanted = [task] if task else sorted({*table.routes, *table.scores})
    named = [name for name in wanted if name in table.routes or name in table.scores]
    return general + [_told(name, table, view) for name in named]


def problems(table: Table, view: View) -> list[str]:
    """Every name in the table that nothing goes by now."""
    return [problem for route in routes(table, view) for problem in route.problems]


@asynccontextmanager
async def watching(table: Table, catalog: Catalog, settled_seconds: float = SETTLED_SECONDS) -> AsyncIterator[None]:
    """Logs names that nothing goes by, each once as long as it stays so, until the block exits."""
    if not table:
        yield
        return
    log.info("models are routed", tasks=sorted(table.routes), digest=table.digest)
    checking = supervise(partial(_watch, table, catalog, settled_seconds), name="routing table check")
    task = asyncio.create_task(checking, name="routes")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _watch(table: Table, catalog: Catalog, settled_seconds: float) -> None:
    revision, told = "", set[str]()
    while news := await catalog.beyond(revision):
        await asyncio.sleep(settled_seconds)
        revision, found = news, problems(table, catalog.view)
        for problem in found:
            if problem not in told:
                log.warning("the routing table names what is not there", problem=problem, remedy=f"correct {SETTING}")
        told = set(found)


def _told(task: str, table: Table, view: View) -> Told:
    route = table.route(task)
    return Told(
        task=task,
        model=_model(route.model) if route.model else None,
        candidates=[_model(each.model, each.weight) for each in route.candidates],
        forbidden=map(_model, route.forbidden),
        shadow=_model(route.shadow) if route.shadow else None,
        scores=table.scores.get(task, {}),
        problems=_missing(task, route, view),
    )


def _model(name: Named, weight: float = 0.0) -> RoutedModel:
    return RoutedModel(id=name.id, revision=name.revision, weight=weight)


def _missing(task: str, route: Route, view: View) -> Iterator[str]:
    shelf = view.shelf(task)
    if shelf is None:
        yield f"no expert offers {task} now{_like(task, view.tasks)}"
        return
    there = {(offer.card.id, offer.card.revision) for offer in (*shelf.offers, *shelf.failed)}
    for name in dict.fromkeys(route.names()):
        if not any(name.means(*model) for model in there):
            yield f"no expert offers {name} for {task} now{_other(name, there)}"


def _nowhere(table: Table, view: View) -> Iterator[str]:
    """Models that are forbidden for any task, and are offered for none."""
    there = {(card.id, card.revision) for card in view.models_of("")}
    for name in table.forbidden:
        if not any(name.means(*model) for model in there):
            yield f"no expert offers {name} now{_other(name, there)}"


def _other(name: Named, there: set[tuple[str, str]]) -> str:
    revisions = sorted(revision or "unnamed" for model, revision in there if model == name.id)
    return f"; it is there at {', '.join(revisions)}" if revisions else _like(name.id, {model for model, _ in there})


def _like(name: str, others: Iterable[str]) -> str:
    near = get_close_matches(name, others, n=1)
    return f"; there is {near[0]}" if near else ""

"""Runs the selector as a process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from pathlib import Path

from protos.hugginggpt.internal.v1 import selector_pb2 as pb
from protos.hugginggpt.internal.v1 import selector_pb2_grpc as rpc
from protos.hugginggpt.tasks import standard_tasks
from services.common.artifacts import ArtifactStore
from services.common.server import RunningServer, run, serving
from services.llm.client import LLM
from services.selector.address_sources import parse
from services.selector.catalog import ExpertCatalog
from services.selector.discovery import Discovery, PollIntervals
from services.selector.dormant_experts import STORE_KIND, DescriptionStore, PreconfiguredExperts
from services.selector.expert_administration import ExpertRemoval
from services.selector.llm_selector import LlmSelector
from services.selector.routing_status import watching
from services.selector.routing_table import RoutingTable, read
from services.selector.selector import Selector
from services.selector.servicer import SelectorServicer
from services.selector.settings import Settings

SERVICE = pb.DESCRIPTOR.services_by_name["SelectorService"]


@asynccontextmanager
async def selector(settings: Settings, intervals: PollIntervals = PollIntervals()) -> AsyncIterator[RunningServer]:  # noqa: B008  # frozen
    """Serves the selector, once the first experts were polled.

    Args:
        settings: of the process.
        intervals: of the polls.
    """
    standard = standard_tasks()
    table = read(Path(settings.routes)) if settings.routes else RoutingTable()
    catalog = ExpertCatalog(standard, forget_seconds=settings.forget_seconds, table=table)
    store = ArtifactStore.open(settings.artifacts_url).key_values(STORE_KIND)
    descriptions = DescriptionStore(store, catalog)
    discovery = Discovery(parse(settings.experts), catalog, intervals)
    ranking_selector = Selector(catalog, standard, settings.inference_mode, settings.region, table)
    async with _open_llm_selector(settings, ranking_selector) as llm_selector:
        servicer = SelectorServicer(
            catalog, ranking_selector, ExpertRemoval(catalog, discovery, descriptions), llm_selector, table
        )
        register = partial(rpc.add_SelectorServiceServicer_to_server, servicer)
        async with (
            descriptions.running(),
            PreconfiguredExperts(Path(settings.expert_descriptions), catalog).running()
            if settings.expert_descriptions
            else nullcontext(),
            discovery.running(),
            watching(table, catalog),
            serving(
                register,
                SERVICE,
                listen=settings.listen,
                drain_seconds=settings.drain_seconds,
                connection_seconds=settings.connection_seconds,
                health_listen=settings.health_listen,
            ) as running,
        ):
            try:
                yield running
            finally:
                catalog.close()  # ends the watches, for which draining would wait


@asynccontextmanager
async def _open_llm_selector(settings: Settings, ranking_selector: Selector) -> AsyncIterator[LlmSelector | None]:
    """Opens the selector that calls an LLM; None without an endpoint."""
    if not settings.llm.base_url:
        yield None
        return
    async with LLM.open(settings.llm, role="selector") as llm:
        yield LlmSelector(llm, ranking_selector, described=settings.described)


if __name__ == "__main__":
    run("selector", selector, Settings)

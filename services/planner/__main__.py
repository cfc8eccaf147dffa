"""Opens the planner."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from protos.hugginggpt.v1 import planner_pb2 as pb
from protos.hugginggpt.v1 import planner_pb2_grpc as rpc
from services.planner.catalog import Catalog, standard_specs
from services.planner.embedded.planning import Embedded
from services.planner.planner import Planner
from services.planner.servicer import PlannerServicer
from services.planner.settings import Settings
from services.runtime.channel import connect
from services.runtime.server import Serving, run, serving

SERVICE = pb.DESCRIPTOR.services_by_name["PlannerService"]


@asynccontextmanager
async def planner(settings: Settings) -> AsyncIterator[Serving]:
    """Serves plans within the block."""
    async with connect(settings.selector) as channel, Catalog.following(channel) as catalog:
        servicer = PlannerServicer(Planner(catalog, Embedded(standard_specs())))
        register = partial(rpc.add_PlannerServiceServicer_to_server, servicer)
        async with serving(register, SERVICE, listen=settings.listen, drain_seconds=settings.drain_seconds) as running:
            yield running


if __name__ == "__main__":
    run("planner", planner, Settings())

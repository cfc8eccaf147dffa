"""The orchestrator as a process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from protos.hugginggpt.v1 import orchestrator_pb2 as pb
from protos.hugginggpt.v1 import orchestrator_pb2_grpc as rpc
from protos.hugginggpt.v1.planner_pb2_grpc import PlannerServiceStub
from protos.hugginggpt.v1.responder_pb2_grpc import ResponderServiceStub
from protos.hugginggpt.v1.selector_pb2_grpc import SelectorServiceStub
from services.orchestrator.attempts import Attempts
from services.orchestrator.journal import Journal
from services.orchestrator.pipeline import Pipeline
from services.orchestrator.runs import Runs, owner_name
from services.orchestrator.servicer import OrchestratorServicer
from services.orchestrator.settings import Settings
from services.orchestrator.tables import MIGRATIONS, SCHEMA
from services.runtime import database
from services.runtime.channel import connect
from services.runtime.server import Serving, run, serving


@asynccontextmanager
async def orchestrator(settings: Settings) -> AsyncIterator[Serving]:
    """The orchestrator's server, with all it stands on."""
    async with (
        connect(settings.planner) as planner,
        connect(settings.selector) as selector,
        connect(settings.responder) as responder,
        database.opened(settings.journal, SCHEMA, MIGRATIONS) as kept,
        Attempts(
            SelectorServiceStub(selector),
            attempt_seconds=settings.attempt_seconds,
            calls_at_once=256,
            calls_per_expert=32,
            calls_per_run=settings.tasks_at_once,
        ) as attempts,
    ):
        journal = Journal(kept, owner_name(), settings.lease_seconds)
        pipeline = Pipeline(
            PlannerServiceStub(planner),
            SelectorServiceStub(selector),
            ResponderServiceStub(responder),
            attempts,
            tasks_at_once=settings.tasks_at_once,
        )
        async with Runs(
            journal,
            pipeline,
            max_runs=settings.max_runs,
            run_seconds=settings.run_seconds,
            lease_seconds=settings.lease_seconds,
        ) as runs:
            register = partial(rpc.add_OrchestratorServiceServicer_to_server, OrchestratorServicer(runs))
            service = pb.DESCRIPTOR.services_by_name["OrchestratorService"]
            async with serving(
                register, service, listen=settings.listen, drain_seconds=settings.drain_seconds
            ) as running:
                yield running


if __name__ == "__main__":
    run("orchestrator", orchestrator, Settings())

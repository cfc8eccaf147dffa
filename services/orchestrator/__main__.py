"""The orchestrator as a process."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from protos.hugginggpt.v1 import orchestrator_pb2 as pb
from protos.hugginggpt.v1 import orchestrator_pb2_grpc as rpc
from protos.hugginggpt.v1.planner_pb2_grpc import PlannerServiceStub
from protos.hugginggpt.v1.responder_pb2_grpc import ResponderServiceStub
from protos.hugginggpt.v1.selector_pb2_grpc import SelectorServiceStub
from services.orchestrator.calling.attempts import Attempts
from services.orchestrator.execution import Means
from services.orchestrator.forwarding import Forwarding
from services.orchestrator.journal import Journal
from services.orchestrator.journal.holds import Holds
from services.orchestrator.journal.retention import Retention
from services.orchestrator.journal.tables import MIGRATIONS, SCHEMA
from services.orchestrator.memory import Memory
from services.orchestrator.ownership import owner_name
from services.orchestrator.pipeline import Pipeline
from services.orchestrator.runs import Runs
from services.orchestrator.selections import Selections
from services.orchestrator.servicer import OrchestratorServicer
from services.orchestrator.settings import Settings
from services.runtime import database
from services.runtime.artifacts import ArtifactStore
from services.runtime.channel import connect
from services.runtime.server import Serving, run, serving

if TYPE_CHECKING:  # this name exists for type checkers only
    from protos.hugginggpt.v1.selector_pb2_grpc import SelectorServiceAsyncStub


@asynccontextmanager
async def orchestrator(settings: Settings) -> AsyncIterator[Serving]:
    """The orchestrator's server, with all it stands on."""
    async with (
        connect(settings.planner) as planner,
        connect(settings.selector) as selecting,
        connect(settings.responder) as responder,
        database.opened(settings.journal, SCHEMA, MIGRATIONS) as kept,
    ):
        owner, store = owner_name(), ArtifactStore.open(settings.artifacts_url)
        journal = Journal(kept, owner, settings.lease_seconds, settings.own_address)
        selector = SelectorServiceStub(selecting)
        async with (
            Retention(kept, store, owner, settings.keep_seconds),
            _attempts(selector, settings) as attempts,
        ):
            means = Means(Selections(selector, attempts.avoid), attempts, Memory(journal, store))
            pipeline = Pipeline(PlannerServiceStub(planner), ResponderServiceStub(responder), means)
            async with _runs(journal, pipeline, settings) as runs, _served(runs, Holds(kept), settings) as running:
                yield running


def _served(runs: Runs, holds: Holds, settings: Settings) -> AbstractAsyncContextManager[Serving]:
    return serving(
        partial(rpc.add_OrchestratorServiceServicer_to_server, OrchestratorServicer(runs, holds)),
        pb.DESCRIPTOR.services_by_name["OrchestratorService"],
        listen=settings.listen,
        drain_seconds=settings.drain_seconds,
        closing=runs.hand_over,
        health_listen=settings.health_listen,
    )


def _attempts(selector: "SelectorServiceAsyncStub", settings: Settings) -> Attempts:
    return Attempts(
        selector,
        attempt_seconds=settings.attempt_seconds,
        calls_at_once=settings.calls_at_once,
        calls_per_expert=settings.calls_per_expert,
        calls_per_run=settings.calls_per_run,
    )


def _runs(journal: Journal, pipeline: Pipeline, settings: Settings) -> Runs:
    return Runs(
        journal,
        pipeline,
        Forwarding(settings.own_address),
        max_runs=settings.max_runs,
        max_bytes=settings.max_bytes,
        run_seconds=settings.run_seconds,
        lease_seconds=settings.lease_seconds,
    )


if __name__ == "__main__":
    run("orchestrator", orchestrator, Settings())

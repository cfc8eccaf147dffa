"""The orchestrator as a process."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from protos.hugginggpt.internal.v1 import orchestrator_pb2 as pb
from protos.hugginggpt.internal.v1 import orchestrator_pb2_grpc as rpc
from protos.hugginggpt.internal.v1.planner_pb2_grpc import PlannerServiceStub
from protos.hugginggpt.internal.v1.responder_pb2_grpc import ResponderServiceStub
from protos.hugginggpt.internal.v1.selector_pb2_grpc import SelectorServiceStub
from services.common import database
from services.common.artifacts import ArtifactStore
from services.common.channel import connect
from services.common.peer_health import monitor_peers
from services.common.server import RunningServer, ShutdownHook, run, serving
from services.orchestrator.batches.runner import Means as Driving
from services.orchestrator.batches.service import Batches
from services.orchestrator.batches.slots import Places
from services.orchestrator.experts.client import Attempts
from services.orchestrator.experts.dormant import Sleepers
from services.orchestrator.journal import Journal
from services.orchestrator.journal.artifact_refs import Holds
from services.orchestrator.journal.batch_ends import BatchEnds
from services.orchestrator.journal.batch_removal import BatchRemoval
from services.orchestrator.journal.batches import KeptBatches
from services.orchestrator.journal.pipelines import KeptPipelines
from services.orchestrator.journal.retention import Retention
from services.orchestrator.journal.tables import MIGRATIONS, SCHEMA
from services.orchestrator.leases import owner_name
from services.orchestrator.pipelines.service import Pipelines
from services.orchestrator.pricing import Prices
from services.orchestrator.runs.candidate_cache import Catalogue
from services.orchestrator.runs.forwarding import Forwarding
from services.orchestrator.runs.result_cache import Memory
from services.orchestrator.runs.selection import Selections
from services.orchestrator.runs.service import Runs
from services.orchestrator.runs.task_executor import Means
from services.orchestrator.runs.workflow import Pipeline
from services.orchestrator.servicer import OrchestratorServicer
from services.orchestrator.settings import Settings

if TYPE_CHECKING:  # this name exists for type checkers only
    from protos.hugginggpt.internal.v1.selector_pb2_grpc import SelectorServiceAsyncStub


@asynccontextmanager
async def orchestrator(settings: Settings) -> AsyncIterator[RunningServer]:
    """The orchestrator's server, with all it stands on."""
    async with (
        connect(settings.planner) as planner,
        connect(settings.selector) as selecting,
        connect(settings.responder) as responder,
        database.open_database(settings.journal, SCHEMA, MIGRATIONS) as kept,
    ):
        owner, store = owner_name(), await ArtifactStore.open_when_available(settings.artifacts_url)
        journal = Journal(kept, owner, settings.lease_seconds, settings.own_address)
        selector = SelectorServiceStub(selecting)
        async with (
            monitor_peers(
                {
                    f"the planner at {settings.planner}": planner,
                    f"the selector at {settings.selector}": selecting,
                    f"the responder at {settings.responder}": responder,
                }
            ),
            Retention(kept, store, owner, settings.keep_seconds),
            Catalogue(Sleepers(selector)) as catalogue,
            _attempts(selector, settings) as attempts,
        ):
            selections = Selections(selector, attempts.avoid, catalogue)
            means = Means(selections, attempts, Memory(journal, store))
            stages = Pipeline(PlannerServiceStub(planner), ResponderServiceStub(responder), means)
            pipelines = Pipelines(KeptPipelines(kept), journal, selections, stages.check)
            batches = KeptBatches(kept, journal, owner, settings.lease_seconds)
            async with _runs(journal, stages, pipelines, settings) as runs:
                driving = Driving(batches, runs, pipelines, catalogue, _places(runs, settings), settings.run_seconds)
                async with Batches(driving, BatchRemoval(kept), settings.lease_seconds) as driven:
                    servicer = OrchestratorServicer(runs, Holds(kept), pipelines, driven, BatchEnds(kept))
                    async with _served(servicer, partial(_hand_over, driven, runs), settings) as running:
                        yield running


def _served(
    servicer: OrchestratorServicer, closing: ShutdownHook, settings: Settings
) -> AbstractAsyncContextManager[RunningServer]:
    return serving(
        partial(rpc.add_OrchestratorServiceServicer_to_server, servicer),
        pb.DESCRIPTOR.services_by_name["OrchestratorService"],
        listen=settings.listen,
        drain_seconds=settings.drain_seconds,
        connection_seconds=settings.connection_seconds,
        on_shutdown=closing,
        health_listen=settings.health_listen,
    )


async def _hand_over(batches: Batches, runs: Runs) -> None:
    await batches.hand_over()
    await runs.hand_over()


def _places(runs: Runs, settings: Settings) -> Places:
    admission = runs.admission
    return Places(settings.batch_items, lambda: admission.people, lambda: admission.crowded)


def _attempts(selector: "SelectorServiceAsyncStub", settings: Settings) -> Attempts:
    return Attempts(
        selector,
        attempt_seconds=settings.attempt_seconds,
        overload_seconds=settings.overload_seconds,
        calls_at_once=settings.calls_at_once,
        calls_per_expert=settings.calls_per_expert,
        calls_per_run=settings.calls_per_run,
        prices=Prices(settings.prices),
    )


def _runs(journal: Journal, stages: Pipeline, pipelines: Pipelines, settings: Settings) -> Runs:
    return Runs(
        journal,
        stages,
        Forwarding(settings.own_address),
        pipelines,
        max_runs=settings.max_runs,
        max_bytes=settings.max_bytes,
        run_seconds=settings.run_seconds,
        lease_seconds=settings.lease_seconds,
    )


if __name__ == "__main__":
    run("orchestrator", orchestrator, Settings)

"""Runs the orchestrator as a process."""

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
from services.orchestrator.batches.runner import BatchDependencies
from services.orchestrator.batches.service import BatchService
from services.orchestrator.batches.slots import BatchSlots
from services.orchestrator.experts.catalogue_watcher import CatalogueWatcher
from services.orchestrator.experts.client import ExpertClient
from services.orchestrator.journal import Journal
from services.orchestrator.journal.artifact_refs import ArtifactHolds
from services.orchestrator.journal.batch_ends import BatchEnds
from services.orchestrator.journal.batch_removal import BatchRemoval
from services.orchestrator.journal.batches import BatchStore
from services.orchestrator.journal.pipelines import PipelineStore
from services.orchestrator.journal.retention import Retention
from services.orchestrator.journal.tables import MIGRATIONS, SCHEMA
from services.orchestrator.leases import owner_name
from services.orchestrator.pipelines.builder import PipelineBuilder
from services.orchestrator.pipelines.service import PipelineService
from services.orchestrator.pricing import Prices
from services.orchestrator.runs.forwarding import CommandForwarder
from services.orchestrator.runs.result_cache import ResultCache
from services.orchestrator.runs.selection import CandidateCache, SelectorClient
from services.orchestrator.runs.service import RunService
from services.orchestrator.runs.task_executor import TaskDependencies
from services.orchestrator.runs.workflow import Workflow
from services.orchestrator.servicer import OrchestratorServicer
from services.orchestrator.settings import Settings

if TYPE_CHECKING:  # this name exists for type checkers only
    from protos.hugginggpt.internal.v1.selector_pb2_grpc import SelectorServiceAsyncStub


@asynccontextmanager
async def orchestrator(settings: Settings) -> AsyncIterator[RunningServer]:
    """Opens the orchestrator's dependencies and serves it."""
    async with (
        connect(settings.planner) as planner,
        connect(settings.selector) as selector_channel,
        connect(settings.responder) as responder,
        database.open_database(settings.journal, SCHEMA, MIGRATIONS) as journal_database,
    ):
        owner, store = owner_name(), await ArtifactStore.open_when_available(settings.artifacts_url)
        journal = Journal(journal_database, owner, settings.lease_seconds, settings.own_address)
        selector = SelectorServiceStub(selector_channel)
        async with (
            monitor_peers(
                {
                    f"the planner at {settings.planner}": planner,
                    f"the selector at {settings.selector}": selector_channel,
                    f"the responder at {settings.responder}": responder,
                }
            ),
            Retention(journal_database, store, owner, settings.keep_seconds),
            CandidateCache(CatalogueWatcher(selector)) as catalogue,
            _expert_client(selector, settings) as experts,
        ):
            selections = SelectorClient(selector, experts.health.avoid, catalogue)
            shared = TaskDependencies(selections, experts, ResultCache(journal, store))
            workflow = Workflow(PlannerServiceStub(planner), ResponderServiceStub(responder), shared)
            builder = PipelineBuilder(journal, selections, workflow.check)
            pipelines = PipelineService(PipelineStore(journal_database), builder)
            batches = BatchStore(journal_database, journal, owner, settings.lease_seconds)
            async with _run_service(journal, workflow, pipelines, settings) as runs:
                batch_dependencies = BatchDependencies(
                    batches, runs, pipelines, catalogue, _batch_slots(runs, settings), settings.run_seconds
                )
                removal = BatchRemoval(journal_database)
                async with BatchService(batch_dependencies, removal, settings.lease_seconds) as batch_service:
                    servicer = OrchestratorServicer(
                        runs, ArtifactHolds(journal_database), pipelines, batch_service, BatchEnds(journal_database)
                    )
                    async with _served(servicer, partial(_release_all, batch_service, runs), settings) as server:
                        yield server


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


async def _release_all(batches: BatchService, runs: RunService) -> None:
    await batches.release_all()
    await runs.release_all()


def _batch_slots(runs: RunService, settings: Settings) -> BatchSlots:
    admission = runs.admission
    return BatchSlots(settings.batch_items, lambda: admission.has_interactive_runs, lambda: admission.is_memory_low)


def _expert_client(selector: "SelectorServiceAsyncStub", settings: Settings) -> ExpertClient:
    return ExpertClient(
        selector,
        attempt_seconds=settings.attempt_seconds,
        overload_seconds=settings.overload_seconds,
        calls_at_once=settings.calls_at_once,
        calls_per_expert=settings.calls_per_expert,
        calls_per_run=settings.calls_per_run,
        prices=Prices(settings.prices),
    )


def _run_service(journal: Journal, workflow: Workflow, pipelines: PipelineService, settings: Settings) -> RunService:
    return RunService(
        journal,
        workflow,
        CommandForwarder(settings.own_address),
        pipelines,
        max_runs=settings.max_runs,
        max_bytes=settings.max_bytes,
        run_seconds=settings.run_seconds,
        lease_seconds=settings.lease_seconds,
    )


if __name__ == "__main__":
    run("orchestrator", orchestrator, Settings)

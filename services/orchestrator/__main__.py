"""Runs the orchestrator as a process."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from protos.hugginggpt.internal.v1 import orchestrator_pb2 as pb
from protos.hugginggpt.internal.v1 import orchestrator_pb2_grpc as rpc
from protos.hugginggpt.internal.v1.planner_pb2_grpc import PlannerServiceStub
from protos.hugginggpt.internal.v1.responder_pb2_grpc import ResponderServiceStub
from protos.hugginggpt.internal.v1.selector_pb2_grpc import SelectorServiceStub
from services.common.artifacts import ArtifactStore
from services.common.channel import connect
from services.common.database import open_database
from services.common.peer_health import monitor_peers
from services.common.server import RunningServer, run, serving
from services.orchestrator.batches.ingest import BatchIngest
from services.orchestrator.batches.lease_source import BatchLeaseSource
from services.orchestrator.batches.runner import BatchDependencies, BatchExecutor
from services.orchestrator.batches.service import BatchService
from services.orchestrator.batches.slots import BatchSlots
from services.orchestrator.experts.catalogue_watcher import CatalogueWatcher
from services.orchestrator.experts.client import ExpertClient
from services.orchestrator.experts.replies import Prices
from services.orchestrator.journal import Journal
from services.orchestrator.journal.artifacts import ArtifactHolds
from services.orchestrator.journal.batches import BatchStore, EndedBatches
from services.orchestrator.journal.pipelines import PipelineStore
from services.orchestrator.journal.retention import BatchRemoval, Retention
from services.orchestrator.journal.schema import MIGRATIONS, SCHEMA
from services.orchestrator.leases import LeaseManager, owner_name
from services.orchestrator.notifier import ChangeNotifier
from services.orchestrator.pipelines.builder import PipelineBuilder
from services.orchestrator.pipelines.service import PipelineService
from services.orchestrator.runs.executor import RunExecutor
from services.orchestrator.runs.lease_source import RunLeaseSource
from services.orchestrator.runs.planner_client import PlannerClient
from services.orchestrator.runs.responder_client import ResponderClient
from services.orchestrator.runs.run_limiter import RunLimiter
from services.orchestrator.runs.run_log import RunLog
from services.orchestrator.runs.selector_client import CandidateCache, SelectorClient
from services.orchestrator.runs.service import CommandForwarder, RunService
from services.orchestrator.runs.task_executor import ResultCache, TaskDependencies
from services.orchestrator.servicer import OrchestratorServicer
from services.orchestrator.settings import Settings


@asynccontextmanager
async def orchestrator(settings: Settings) -> AsyncIterator[RunningServer]:
    """Opens the orchestrator's dependencies and serves it."""
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context

        planner_channel = await enter(connect(settings.planner))
        selector_channel = await enter(connect(settings.selector))
        responder_channel = await enter(connect(settings.responder))
        database = await enter(open_database(settings.journal, SCHEMA, MIGRATIONS, settings.database_connections))
        store = await ArtifactStore.open_when_available(settings.artifacts_url)
        peers = {
            f"the planner at {settings.planner}": planner_channel,
            f"the selector at {settings.selector}": selector_channel,
            f"the responder at {settings.responder}": responder_channel,
        }
        await enter(monitor_peers(peers))

        owner = owner_name()
        journal = Journal(database, owner, settings.lease_seconds, settings.own_address)
        await enter(Retention(database, store, owner, settings.keep_seconds))

        selector_stub = SelectorServiceStub(selector_channel)
        watcher = await enter(CatalogueWatcher(selector_stub))
        catalogue = await enter(CandidateCache(watcher))
        experts = await enter(
            ExpertClient(
                watcher,
                attempt_seconds=settings.attempt_seconds,
                overload_seconds=settings.overload_seconds,
                calls_at_once=settings.calls_at_once,
                calls_per_expert=settings.calls_per_expert,
                calls_per_run=settings.calls_per_run,
                prices=Prices(settings.prices),
            )
        )
        selector = SelectorClient(selector_stub, experts.health.avoid, catalogue)
        planner = PlannerClient(PlannerServiceStub(planner_channel))
        responder = ResponderClient(ResponderServiceStub(responder_channel))
        builder = PipelineBuilder(journal, selector, planner.check)
        pipelines = PipelineService(PipelineStore(database), builder)

        active_runs: dict[str, RunLog] = {}
        notifier = ChangeNotifier()
        limiter = RunLimiter(active_runs, max_runs=settings.max_runs, max_bytes=settings.max_bytes)
        tasks = TaskDependencies(selector, experts, ResultCache(journal, store))
        run_leases = LeaseManager(
            RunLeaseSource(journal, limiter, notifier),
            RunExecutor(journal, planner, tasks, responder),
            active_runs,
            lease_seconds=settings.lease_seconds,
        )
        runs = await enter(
            RunService(
                journal=journal,
                leases=run_leases,
                limiter=limiter,
                notifier=notifier,
                planner=planner,
                pipelines=pipelines,
                forwarder=CommandForwarder(settings.own_address),
                run_seconds=settings.run_seconds,
            )
        )

        batch_store = BatchStore(database, journal, owner, settings.lease_seconds)
        slots = BatchSlots(settings.batch_items, limiter.has_interactive_runs, limiter.is_memory_low)
        shared = BatchDependencies(batch_store, runs, pipelines, catalogue, notifier, slots, settings.run_seconds)
        batch_leases = LeaseManager(
            BatchLeaseSource(batch_store, notifier, shared.blocked),
            BatchExecutor(shared),
            {},
            lease_seconds=settings.lease_seconds,
        )
        removal = BatchRemoval(database)
        ingest = BatchIngest(batch_store, removal, pipelines)
        batches = await enter(BatchService(shared, batch_leases, ingest, removal))

        servicer = OrchestratorServicer(runs, ArtifactHolds(database), pipelines, batches, EndedBatches(database))
        server = serving(
            partial(rpc.add_OrchestratorServiceServicer_to_server, servicer),
            pb.DESCRIPTOR.services_by_name["OrchestratorService"],
            listen=settings.listen,
            drain_seconds=settings.drain_seconds,
            connection_seconds=settings.connection_seconds,
            on_shutdown=partial(_release_all, batches, runs),
            health_listen=settings.health_listen,
        )
        yield await enter(server)


async def _release_all(batches: BatchService, runs: RunService) -> None:
    await batches.release_all()
    await runs.release_all()


if __name__ == "__main__":
    run("orchestrator", orchestrator, Settings)

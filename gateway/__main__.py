"""Gateway process: HTTP and gRPC servers."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version

from fastapi import FastAPI

from gateway.access_control import access_control
from gateway.auth.identity import CallerFactory
from gateway.core.batch_items import ItemPreparer
from gateway.core.batches import BatchOperations
from gateway.core.catalog import Catalog
from gateway.core.conversations import ConversationOperations
from gateway.core.file_references import FileResolver, UrlFetcher
from gateway.core.files import FileService, deleting_expired
from gateway.core.pipelines import PipelineOperations
from gateway.core.runs import RunOperations
from gateway.core.validation import RequestValidator
from gateway.database import gateway_store
from gateway.grpc.interceptors import CallLog
from gateway.grpc.servicer import GatewayServicer, PipelineServices
from gateway.http.app import create_app
from gateway.http.artifact_routes import ArtifactRoutes
from gateway.http.batch_routes import BatchRoutes
from gateway.http.catalog_routes import CatalogRoutes
from gateway.http.file_routes import FileRoutes
from gateway.http.health_routes import HealthRoutes
from gateway.http.pipeline_routes import PipelineRoutes
from gateway.http.request_context import RequestContextMiddleware
from gateway.http.run_request import RunRequestReader
from gateway.http.run_routes import ConversationRoutes, RecordRoutes, RunRoutes
from gateway.http.server import bind_listener, require_loopback, serve_http
from gateway.http.webhook_routes import WebhookRoutes
from gateway.mcp.resources import Resources
from gateway.mcp.server import McpServer
from gateway.mcp.single_task_tools import SingleTasks
from gateway.mcp.tool_definitions import ExposedTasks
from gateway.mcp.tool_handlers import ToolContext, ToolHandlers
from gateway.mcp.upload_routes import UploadRoutes
from gateway.mcp.upload_tokens import UploadTokens
from gateway.openai.batch_store import BatchStore
from gateway.openai.batches import BatchWorker, Endpoints, OpenAIBatchRoutes
from gateway.openai.chat import ChatRoutes
from gateway.openai.controllers import ModelRoutes
from gateway.openai.messages import MessageParts
from gateway.openai.responses import ResponseRoutes
from gateway.openai.run_adapter import RunAdapter
from gateway.openai.task_routes import TaskRoutes
from gateway.provenance.verification import Verifier
from gateway.settings import Settings
from gateway.web.site_files import Site, UnknownAddressMiddleware
from gateway.webhooks.delivery import DeliveryWorker
from gateway.webhooks.registry import Webhooks
from protos.hugginggpt.internal.v1.orchestrator_pb2_grpc import OrchestratorServiceStub
from protos.hugginggpt.internal.v1.selector_pb2_grpc import SelectorServiceStub
from protos.hugginggpt.v1 import gateway_pb2 as pb
from protos.hugginggpt.v1 import gateway_pb2_grpc as rpc
from protos.hugginggpt.v1.caller_pb2 import DataPolicy
from services.common.artifacts import ArtifactStore
from services.common.channel import connect
from services.common.http_fetch.addresses import AllowList
from services.common.http_fetch.ssrf_guard import SsrfGuard
from services.common.peer_health import monitor_peers
from services.common.server import RunningServer, bind_public, run, serving


@dataclass(frozen=True)
class Gateway:
    """The running HTTP application and gRPC server."""

    app: FastAPI
    http_port: int
    grpc: RunningServer


@asynccontextmanager
async def gateway(settings: Settings) -> AsyncIterator[Gateway]:
    """Runs both servers and everything they depend on until the block exits.

    Raises:
        InvalidRequest: without authentication, a listen address is not a loopback address.
        Unavailable: an address is in use, or the artifact store cannot be opened.
    """
    if settings.authentication == "none":
        for listen in (settings.listen, settings.http_listen):
            require_loopback(listen)
    store = await ArtifactStore.open_when_available(settings.artifacts_url)
    callers = CallerFactory(DataPolicy.Value(f"DATA_POLICY_{settings.data_policy.upper()}"))
    guard = SsrfGuard(AllowList.parse(settings.fetch_allow), internal_only=not settings.fetch_urls)
    url_fetcher = UrlFetcher(store, guard if settings.fetch_urls else None, settings.files_bytes)
    with bind_listener(settings.http_listen) as listener:
        async with (
            gateway_store(settings.database, settings.database_connections) as database,
            connect(settings.orchestrator) as orchestrator,
            connect(settings.selector) as selector,
            access_control(settings, callers, database, OrchestratorServiceStub(orchestrator)) as access,
        ):
            runs = RunOperations(OrchestratorServiceStub(orchestrator), access.quotas, access.audit)
            catalog = Catalog(SelectorServiceStub(selector), settings.selector)
            validator = RequestValidator(store)
            pipelines = PipelineOperations(OrchestratorServiceStub(orchestrator), validator, access.audit)
            batches = BatchOperations(OrchestratorServiceStub(orchestrator), access.quotas, access.audit)
            backends = {"the orchestrator": orchestrator, "the selector": selector}
            files = FileService(database, runs, access.audit)
            artifact_routes = ArtifactRoutes(store, settings.upload_bytes, presign=settings.presign)
            file_resolver = FileResolver(store, files, url_fetcher, settings.files_bytes)
            items = ItemPreparer(validator, file_resolver)
            openai = RunAdapter(runs, validator, MessageParts(store, file_resolver))
            media = TaskRoutes(openai, catalog, store, settings.upload_bytes)
            endpoints = Endpoints(ChatRoutes(openai), ResponseRoutes(openai), media)
            openai_batches = BatchStore(database)
            upload_tokens = UploadTokens(database, access.authenticator)
            tasks = SingleTasks(catalog, file_resolver)
            context = ToolContext(runs, validator, file_resolver, tasks, upload_tokens, callers, settings.upload_bytes)
            handlers = ToolHandlers(context, ExposedTasks(settings.mcp_tasks))
            mcp = McpServer(version("hugginggpt"), handlers, Resources(runs, store, files))
            site = Site.packaged()
            routes = (
                RunRoutes(
                    runs, pipelines, RunRequestReader(store, file_resolver, settings.files_bytes), validator, callers
                ),
                artifact_routes,
                FileRoutes(files, store, artifact_routes, settings.upload_bytes),
                ConversationRoutes(ConversationOperations(runs)),
                PipelineRoutes(pipelines),
                BatchRoutes(batches, pipelines, runs, validator, items, callers=callers),
                RecordRoutes(runs, Verifier(runs, catalog, store)),
                CatalogRoutes(catalog, access.audit),
                endpoints.chat,
                endpoints.responses,
                endpoints.media,
                OpenAIBatchRoutes(openai_batches, files, openai),
                ModelRoutes(),
                WebhookRoutes(Webhooks(database, guard)),
                mcp,
                UploadRoutes(upload_tokens, files, store, callers, access.quotas, upload_bytes=settings.upload_bytes),
                HealthRoutes(version("hugginggpt"), backends),
                site,
            )
            app = create_app(version("hugginggpt"), [each.router() for each in routes])
            port = listener.getsockname()[1]
            http = UnknownAddressMiddleware(access.http(app, port), app, site)
            servicer = GatewayServicer(
                runs,
                PipelineServices(pipelines, batches, items),
                validator,
                catalog,
                store=store,
                callers=callers,
                files_bytes=settings.files_bytes,
                upload_bytes=settings.upload_bytes,
            )
            register = partial(rpc.add_GatewayServiceServicer_to_server, servicer)
            service = pb.DESCRIPTOR.services_by_name["GatewayService"]
            async with (
                monitor_peers(
                    {
                        f"the orchestrator at {settings.orchestrator}": orchestrator,
                        f"the selector at {settings.selector}": selector,
                    }
                ),
                deleting_expired(files),
                DeliveryWorker(database, guard).running(),
                BatchWorker(openai_batches, files, store, openai, endpoints).running(),
                mcp.running(),
                serve_http(
                    RequestContextMiddleware(http, callers, tls_in_front=settings.tls_in_front),
                    listener,
                    settings.drain_seconds,
                    settings.shown,
                ) as stop_http,
                serving(
                    register,
                    service,
                    listen=settings.listen,
                    drain_seconds=settings.drain_seconds,
                    connection_seconds=settings.connection_seconds,
                    exclusive=True,
                    health_listen=settings.health_listen,
                    bind=bind_public(settings.shown),
                    interceptors=[CallLog(), access.grpc()],
                ) as running,
            ):
                try:
                    yield Gateway(app, port, running)
                finally:
                    await running.health.enter_graceful_shutdown()
                    stop_http()  # so that both servers drain at the same time
                    runs.stop()
                    batches.stop()


if __name__ == "__main__":
    run("gateway", gateway, Settings)

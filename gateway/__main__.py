"""The gateway as a process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version

from fastapi import FastAPI

from gateway.access import calls, http
from gateway.access.caller import Callers
from gateway.access.gate import OpenGate
from gateway.access.origin import OriginGuard
from gateway.admission import Admission
from gateway.app import application
from gateway.catalogue import Catalogue, CatalogueRoutes
from gateway.door import Door
from gateway.downloads import Downloads
from gateway.health import Health
from gateway.intake import Intake
from gateway.listening import bound, refuse_strangers, serving_http
from gateway.rest import RunRoutes
from gateway.runs import Runs
from gateway.servicer import GatewayServicer
from gateway.settings import Settings
from gateway.store import gateway_store
from protos.hugginggpt.v1 import gateway_pb2 as pb
from protos.hugginggpt.v1 import gateway_pb2_grpc as rpc
from protos.hugginggpt.v1.orchestrator_pb2_grpc import OrchestratorServiceStub
from protos.hugginggpt.v1.selector_pb2_grpc import SelectorServiceStub
from protos.hugginggpt.v1.types_pb2 import DataPolicy
from services.runtime.artifacts import ArtifactStore
from services.runtime.channel import connect
from services.runtime.server import Serving, run, serving, showing


@dataclass(frozen=True)
class Gateway:
    """Both doors, open."""

    app: FastAPI
    http_port: int
    grpc: Serving


@asynccontextmanager
async def gateway(settings: Settings) -> AsyncIterator[Gateway]:
    """Both servers, with all they stand on.

    Raises:
        InvalidRequest: an address is not on this machine's loopback.
        Unavailable: an address is taken, or the artifact store cannot be opened.
    """
    for listen in (settings.listen, settings.http_listen):
        refuse_strangers(listen)
    store = ArtifactStore.open(settings.artifacts_url)
    callers = Callers(DataPolicy.Value(f"DATA_POLICY_{settings.data_policy.upper()}"))
    with bound(settings.http_listen) as listener:
        async with (
            gateway_store(settings.database),
            connect(settings.orchestrator) as orchestrator,
            connect(settings.selector) as selector,
        ):
            runs = Runs(OrchestratorServiceStub(orchestrator))
            catalogue = Catalogue(SelectorServiceStub(selector))
            admission = Admission(store)
            backends = {"the orchestrator": orchestrator, "the selector": selector}
            routes = (
                RunRoutes(runs, Intake(store, settings.files_bytes), admission, callers),
                Downloads(store),
                CatalogueRoutes(catalogue),
                Health(version("hugginggpt"), backends),
            )
            app = application(version("hugginggpt"), [each.router() for each in routes])
            port, gate = listener.getsockname()[1], OpenGate()
            known = http.Identified(app, gate, callers)
            servicer = GatewayServicer(
                runs,
                admission,
                catalogue,
                store,
                callers,
                files_bytes=settings.files_bytes,
                upload_bytes=settings.upload_bytes,
            )
            register = partial(rpc.add_GatewayServiceServicer_to_server, servicer)
            service = pb.DESCRIPTOR.services_by_name["GatewayService"]
            async with (
                serving(
                    register,
                    service,
                    listen=settings.listen,
                    drain_seconds=settings.drain_seconds,
                    exclusive=True,
                    health_listen=settings.health_listen,
                    bind=showing(settings.shown),
                    interceptors=[calls.Identified(gate)],
                ) as running,
                serving_http(Door(OriginGuard(known, port), callers), listener, settings.drain_seconds, settings.shown),
            ):
                try:
                    yield Gateway(app, port, running)
                finally:
                    runs.stop()


if __name__ == "__main__":
    run("gateway", gateway, Settings())

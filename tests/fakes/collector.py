"""OTLP collectors: one that accepts everything, one that never answers, and an unused address."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2_grpc import (
    MetricsServiceServicer,
    add_MetricsServiceServicer_to_server,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span

Named = asyncio.Queue[tuple[str, str]]
"""Pairs of a service and the name of a span or metric."""

OFTEN = {"OTEL_BSP_SCHEDULE_DELAY": "10", "OTEL_METRIC_EXPORT_INTERVAL": "50"}
"""Settings that export telemetry many times a second."""


@dataclass(frozen=True)
class Collected:
    """Received telemetry."""

    endpoint: str
    spans: Named = field(default_factory=asyncio.Queue)
    metrics: Named = field(default_factory=asyncio.Queue)
    complete_spans: list[tuple[str, Span]] = field(default_factory=list)
    """Pairs of a service and a span."""
    sent: list[bytes] = field(default_factory=list)
    """Export requests in the order of arrival."""

    @property
    def settings(self) -> Mapping[str, str]:
        """Settings with which a process exports to this collector at short intervals."""
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": self.endpoint, **OFTEN}


class _Traces(TraceServiceServicer):
    def __init__(self, collected: Collected) -> None:
        self._collected = collected

    async def Export(self, request: ExportTraceServiceRequest, context: Any) -> ExportTraceServiceResponse:
        self._collected.sent.append(request.SerializeToString())
        for of in request.resource_spans:
            for span in (span for scope in of.scope_spans for span in scope.spans):
                self._collected.complete_spans.append((_service(of.resource), span))
                self._collected.spans.put_nowait((_service(of.resource), span.name))
        return ExportTraceServiceResponse()


class _Metrics(MetricsServiceServicer):
    def __init__(self, collected: Collected) -> None:
        self._collected = collected

    async def Export(self, request: ExportMetricsServiceRequest, context: Any) -> ExportMetricsServiceResponse:
        self._collected.sent.append(request.SerializeToString())
        for of in request.resource_metrics:
            for metric in (metric for scope in of.scope_metrics for metric in scope.metrics):
                self._collected.metrics.put_nowait((_service(of.resource), metric.name))
        return ExportMetricsServiceResponse()


@asynccontextmanager
async def collecting() -> AsyncIterator[Collected]:
    """Runs a collector for spans and metrics with OTLP over gRPC."""
    server = grpc.aio.server()
    collected = Collected(f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}")
    add_TraceServiceServicer_to_server(_Traces(collected), server)  # type: ignore[no-untyped-call]
    add_MetricsServiceServicer_to_server(_Metrics(collected), server)  # type: ignore[no-untyped-call]
    await server.start()
    try:
        yield collected
    finally:
        await server.stop(0)


@contextmanager
def silent() -> Iterator[str]:
    """An endpoint that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@contextmanager
def refusing() -> Iterator[str]:
    """An endpoint without a listener."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"


def _service(resource: Any) -> str:
    (name,) = [each.value.string_value for each in resource.attributes if each.key == "service.name"]
    return str(name)

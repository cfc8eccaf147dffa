"""Traces: begun only where an endpoint is set, and costing nothing where none is."""

from typing import TYPE_CHECKING

import grpc
import structlog
from opentelemetry import trace

from services.common import metrics, telemetry_shutdown

if TYPE_CHECKING:
    from services.common.rpc_telemetry import Traces

log = structlog.get_logger(__name__)


def begin(service: str, endpoint: str) -> None:
    """Sends the spans of this process to an endpoint that speaks OTLP over gRPC; the OTEL_ variables say how.

    They leave by a bounded queue and a thread of their own: an endpoint that is slow or away costs spans, nothing else.

    Args:
        service: whose spans they are.
        endpoint: http://host:port; empty sends nothing.
    """
    if not endpoint:
        return
    try:
        # Loaded only here: they are not needed, nor the second there, where nothing is traced.
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

        from services.common.rpc_telemetry import Traces  # noqa: PLC0415

        traces = Traces(resource=Resource.create({"service.name": service}), shutdown_on_exit=False)
        traces.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
    except ImportError as error:
        remedy = "pip install 'hugginggpt[telemetry]', or unset OTEL_EXPORTER_OTLP_ENDPOINT"
        log.error("traces are not sent: the exporter is not installed", missing=error.name, remedy=remedy)  # noqa: TRY400  # the trace says nothing more
    except (RuntimeError, ValueError) as error:
        log.error("traces are not sent", error=str(error), remedy="correct the OTEL_ variables")  # noqa: TRY400  # likewise
    else:
        trace.set_tracer_provider(traces)
        log.info("sending traces", endpoint=endpoint)


def end() -> None:
    """Sends what is still there, for two seconds at most."""
    if traces := current():
        telemetry_shutdown.flushed(traces.shutdown)


def current() -> "Traces | None":
    """The traces of this process, if there are any."""
    provider = trace.get_tracer_provider()
    if isinstance(provider, trace.ProxyTracerProvider):
        return None
    from services.common.rpc_telemetry import Traces  # noqa: PLC0415  # as above

    return provider if isinstance(provider, Traces) else None


def carrying(channel: grpc.aio.Channel) -> grpc.aio.Channel:
    """The channel, whose calls are spans and carry the trace on, if there are traces."""
    if not (traces := current()):
        return channel
    from services.common.rpc_telemetry import observe  # noqa: PLC0415  # as above

    return observe(channel, traces)


def interceptors() -> "list[grpc.aio.ServerInterceptor]":
    """What a server needs so that its calls are traced and measured: nothing, if neither is wanted."""
    traces = current()
    if not traces and not metrics.exposing():
        return []
    from services.common.rpc_telemetry import Observing  # noqa: PLC0415  # as above

    return [Observing(traces)]

"""Metrics of a process: served to Prometheus, exported to a collector by OTLP, or both.

Attribute values are bounded: a run, caller, file or user-provided text must never be one.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

import structlog

from services.common.errors import Unavailable
from services.common.tracing import run_for_limited_time

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import MetricReader

log = structlog.get_logger(__name__)

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 180, 600)
"""Upper bounds of the buckets of all durations: from a journal write to a long run."""

_LAST_PORT = 65_535

WsgiApp = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


@asynccontextmanager
async def exporting(service: str, listen: str, endpoint: str = "") -> AsyncIterator[int]:
    """Serves GET /metrics in Prometheus's text format and exports by OTLP within the block; yields the bound port.

    Without `listen` and `endpoint`, instruments cost nothing.

    Args:
        service: the service.name in target_info.
        listen: host:port of the HTTP server; port 0 takes any free one; empty opens none.
        endpoint: http://host:port of a collector that speaks OTLP over gRPC; empty exports nothing, and so does
            OTEL_METRICS_EXPORTER=none. The interval is OTEL_METRIC_EXPORT_INTERVAL, by default one minute.

    Raises:
        Unavailable: the address is invalid or in use.
    """
    endpoint = "" if os.environ.get("OTEL_METRICS_EXPORTER") == "none" else endpoint
    if listen or endpoint:
        _set_up(service, endpoint)
    if not listen:
        yield 0
        return
    from prometheus_client import start_http_server  # noqa: PLC0415  # not needed without `listen`

    try:
        host, port = _address(listen)
        server, thread = start_http_server(port, host)
    except (OSError, ValueError) as error:
        remedy = "set METRICS_LISTEN to a free host:port, one per process; port 0 takes any"
        raise Unavailable(f"cannot serve metrics on {listen}: {error}", remedy=remedy) from error
    server.set_app(_only_metrics(server.get_app()))
    log.info("metrics", port=server.server_port)
    try:
        yield server.server_port
    finally:
        await asyncio.to_thread(server.shutdown)
        server.server_close()
        thread.join()


def is_enabled() -> bool:
    """Whether this process records metrics."""
    return _set_up.cache_info().currsize > 0


def shutdown() -> None:
    """Exports what was recorded since the last export, for at most SHUTDOWN_SECONDS."""
    if is_enabled():
        from opentelemetry import metrics  # noqa: PLC0415  # loaded already

        run_for_limited_time(metrics.get_meter_provider().shutdown)  # type: ignore[attr-defined]  # set by _set_up


def _address(listen: str) -> tuple[str, int]:
    """Host and port. Raises ValueError for anything else."""
    host, _, port = listen.rpartition(":")
    if not 0 <= int(port) <= _LAST_PORT:
        raise ValueError(f"a port is a number up to {_LAST_PORT}")
    return host.strip("[]"), int(port)


def _only_metrics(app: Any) -> WsgiApp:
    """prometheus_client's application, restricted to the path /metrics: it answers on every path."""

    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["PATH_INFO"] == "/metrics":
            response: Iterable[bytes] = app(environ, start_response)
            return response
        start_response("404 Not Found", [("Content-Type", "text/plain")])
        return [b"GET /metrics\n"]

    return answer


@cache
def _set_up(service: str, endpoint: str) -> "MeterProvider":
    """Installs the process's meter provider, also for instruments that exist already."""
    # Imported only here: the SDK takes 70 ms and 3 MB, which processes without metrics do not need.
    from opentelemetry import metrics  # noqa: PLC0415
    from opentelemetry.exporter.prometheus import PrometheusMetricReader  # noqa: PLC0415
    from opentelemetry.sdk.metrics import AlwaysOffExemplarFilter, Histogram, MeterProvider  # noqa: PLC0415
    from opentelemetry.sdk.metrics.view import ExplicitBucketHistogramAggregation, View  # noqa: PLC0415
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415

    buckets = ExplicitBucketHistogramAggregation(SECONDS)
    provider = MeterProvider(
        [PrometheusMetricReader(scope_info_enabled=False), *_otlp_readers(endpoint)],
        Resource.create({"service.name": service}),
        exemplar_filter=AlwaysOffExemplarFilter(),  # Prometheus's text format cannot express exemplars
        shutdown_on_exit=False,
        views=[View(instrument_type=Histogram, instrument_unit="s", aggregation=buckets)],
    )
    metrics.set_meter_provider(provider)
    return provider


def _otlp_readers(endpoint: str) -> "list[MetricReader]":
    """A reader that exports periodically in a thread of its own; none if there is no endpoint or the exporter fails."""
    if not endpoint:
        return []
    try:
        # Imported only here because processes without OTLP do not need the exporter.
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter  # noqa: PLC0415
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader  # noqa: PLC0415

        reader = PeriodicExportingMetricReader(OTLPMetricExporter(endpoint=endpoint))
    except ImportError as error:
        remedy = "pip install 'hugginggpt[telemetry]', or set OTEL_METRICS_EXPORTER=none"
        log.error("metrics export is off: the exporter is not installed", missing=error.name, remedy=remedy)  # noqa: TRY400  # the traceback adds nothing
        return []
    except (RuntimeError, ValueError) as error:
        log.error("metrics export is off: invalid settings", error=str(error), remedy="correct the OTEL_ variables")  # noqa: TRY400  # the traceback adds nothing
        return []
    log.info("exporting metrics", endpoint=endpoint)
    return [reader]

"""Metrics: what the instruments of a process have counted, for Prometheus to fetch, and sent to a collector by OTLP.

Each where it is set up. Labels are bounded: no run, no caller, no file and nothing that somebody wrote is one.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING

import structlog

from services.common import telemetry_shutdown
from services.common.errors import Unavailable

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import MetricReader

log = structlog.get_logger(__name__)

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 180, 600)
"""Upper bounds of the buckets of all that is measured in seconds: from a write of the journal to a long run."""

_REQUEST_SECONDS = 5.0
_LAST_PORT = 65_535

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def exposed(service: str, listen: str, endpoint: str = "") -> AsyncIterator[int]:
    """Answers GET /metrics in Prometheus' text format while the block lasts; yields the port.

    Args:
        service: whose metrics they are; stands in target_info.
        listen: host:port, port 0 for any free one; empty opens nothing.
        endpoint: http://host:port that speaks OTLP over gRPC, where they are sent every minute, or as
            OTEL_METRIC_EXPORT_INTERVAL says; empty, and OTEL_METRICS_EXPORTER=none, send nothing. Without both
            instruments cost nothing.

    Raises:
        Unavailable: the address cannot be listened on.
    """
    endpoint = "" if os.environ.get("OTEL_METRICS_EXPORTER") == "none" else endpoint
    if listen or endpoint:
        _begun(service, endpoint)
    if not listen:
        yield 0
        return
    try:
        server = await asyncio.start_server(_answering(_text), *_address(listen))
    except (OSError, ValueError) as error:
        remedy = "set METRICS_LISTEN to a free host:port, one per process; port 0 takes any"
        raise Unavailable(f"metrics cannot be served on {listen}: {error}", remedy=remedy) from error
    async with server:
        bound: int = server.sockets[0].getsockname()[1]
        log.info("metrics", port=bound)
        yield bound


def _address(listen: str) -> tuple[str, int]:
    """Raises ValueError if that is none; uvloop takes any number, and counts on from 0 after the last port."""
    host, _, port = listen.rpartition(":")
    if not 0 <= int(port) <= _LAST_PORT:
        raise ValueError(f"a port is a number up to {_LAST_PORT}")
    return host.strip("[]"), int(port)


def exposing() -> bool:
    """Whether this process keeps metrics."""
    return _begun.cache_info().currsize > 0


def end() -> None:
    """Sends what was counted since it was sent last, for two seconds at most."""
    if exposing():
        from opentelemetry import metrics  # noqa: PLC0415  # loaded by now

        telemetry_shutdown.flushed(metrics.get_meter_provider().shutdown)  # type: ignore[attr-defined]  # it is ours


def _text() -> bytes:
    from prometheus_client import REGISTRY, generate_latest  # noqa: PLC0415  # loaded by now

    return generate_latest(REGISTRY)


@cache
def _begun(service: str, endpoint: str) -> "MeterProvider":
    """Makes the instruments of this process real, those made before included."""
    # Loaded only here: 70 ms and 3 MB, not needed where nobody fetches metrics.
    from opentelemetry import metrics  # noqa: PLC0415
    from opentelemetry.exporter.prometheus import PrometheusMetricReader  # noqa: PLC0415
    from opentelemetry.sdk.metrics import AlwaysOffExemplarFilter, Histogram, MeterProvider  # noqa: PLC0415
    from opentelemetry.sdk.metrics.view import ExplicitBucketHistogramAggregation, View  # noqa: PLC0415
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415

    buckets = ExplicitBucketHistogramAggregation(SECONDS)
    provider = MeterProvider(
        [PrometheusMetricReader(scope_info_enabled=False), *_sending(endpoint)],
        Resource.create({"service.name": service}),
        exemplar_filter=AlwaysOffExemplarFilter(),  # the text format has no place for them
        shutdown_on_exit=False,
        views=[View(instrument_type=Histogram, instrument_unit="s", aggregation=buckets)],
    )
    metrics.set_meter_provider(provider)
    return provider


def _sending(endpoint: str) -> "list[MetricReader]":
    """What sends all there is now and then, by a thread of its own: an endpoint that is slow or away costs nothing."""
    if not endpoint:
        return []
    try:
        # Loaded only here, as above.
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter  # noqa: PLC0415
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader  # noqa: PLC0415

        reader = PeriodicExportingMetricReader(OTLPMetricExporter(endpoint=endpoint))
    except ImportError as error:
        remedy = "pip install 'hugginggpt[telemetry]', or set OTEL_METRICS_EXPORTER=none"
        log.error("metrics are not sent: the exporter is not installed", missing=error.name, remedy=remedy)  # noqa: TRY400  # the trace says nothing more
        return []
    except (RuntimeError, ValueError) as error:
        log.error("metrics are not sent", error=str(error), remedy="correct the OTEL_ variables")  # noqa: TRY400  # likewise
        return []
    log.info("sending metrics", endpoint=endpoint)
    return [reader]


def _answering(text: Callable[[], bytes]) -> Answer:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_REQUEST_SECONDS):
                request = (await reader.readuntil(b"\r\n\r\n")).split(maxsplit=2)
                found = request[:1] == [b"GET"] and request[1].partition(b"?")[0] == b"/metrics"
                body = text() if found else b"GET /metrics\n"
                writer.write(_head(HTTPStatus.OK if found else HTTPStatus.NOT_FOUND, len(body)) + body)
                await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            log.debug("a request for metrics broke off")
        finally:
            writer.close()

    return answer


def _head(status: HTTPStatus, length: int) -> bytes:
    return (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
        f"Content-Length: {length}\r\nConnection: close\r\n\r\n"
    ).encode()

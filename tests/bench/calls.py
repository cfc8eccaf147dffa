"""CPU time of telemetry per call, for client and server together: python -m tests.bench.calls ENDPOINT.

Prints, as a JSON list of rounds, CPU microseconds of one call without and with telemetry, and of one span. Spans are
exported to the endpoint and metrics are exposed, so the cost of their export is included.
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import grpc
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from services.common import logging, metrics, tracing
from services.common.rpc_telemetry import RecordTracerProvider, TelemetryInterceptor, TracedChannel

SERVICE, METHOD = "bench.Service", "Call"
CALLS, ROUNDS = 400, 15

Workload = Callable[[int], Awaitable[None]]


async def main(endpoint: str) -> None:
    logging.setup("bench", level="WARNING")
    sampled, unsampled = (
        RecordTracerProvider(shutdown_on_exit=False),
        RecordTracerProvider(sampler=ALWAYS_OFF, shutdown_on_exit=False),
    )
    sampled.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
    trace.set_tracer_provider(sampled)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(metrics.exporting("bench", "127.0.0.1:0"))
        works: dict[str, Workload] = {
            "bare": await _calls(stack, None, observed=False),
            "metrics": await _calls(stack, None),
            "unsampled": await _calls(stack, unsampled),
            "traced": await _calls(stack, sampled),
            "span": _spans,
        }
        rounds = [{name: await _cpu_us(work) for name, work in works.items()} for _ in range(ROUNDS + 1)]
    sampled.shutdown()
    print(json.dumps(rounds[1:]))


async def _cpu_us(work: Workload) -> float:
    """CPU microseconds of one repetition."""
    started = time.process_time()
    await work(CALLS)
    return 1e6 * (time.process_time() - started) / CALLS


async def _calls(stack: AsyncExitStack, traces: RecordTracerProvider | None, *, observed: bool = True) -> Workload:
    """Starts an echo server, and returns a function that makes a number of calls to it."""
    server = grpc.aio.server(interceptors=[TelemetryInterceptor(traces)] if observed else [])
    handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(_echo)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    stack.push_async_callback(server.stop, None)
    channel = await stack.enter_async_context(grpc.aio.insecure_channel(f"127.0.0.1:{port}"))
    if traces:
        TracedChannel(channel, traces)
    return partial(_repeat, channel.unary_unary(f"/{SERVICE}/{METHOD}"))


async def _echo(request: bytes, _: object) -> bytes:
    return request


async def _repeat(call: Callable[..., Awaitable[Any]], count: int) -> None:
    for _ in range(count):
        await call(b"", timeout=10)


async def _spans(count: int) -> None:
    for _ in range(count):
        with tracing.start_span("span", {"hugginggpt.run.id": "run", "hugginggpt.task.id": 1}):
            await asyncio.sleep(0)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))

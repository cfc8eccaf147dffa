"""What observing a call costs both its ends, as a program of its own: python -m tests.bench.calls ENDPOINT.

Prints microseconds of processor time of one call, bare and observed, and of a span of ours, in turns as JSON.
Spans are sent to the endpoint and metrics can be fetched, so what is spent on them later is counted, too.
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
CALLS, TURNS = 400, 15

Work = Callable[[int], Awaitable[None]]


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
        works: dict[str, Work] = {
            "bare": await _calls(stack, None, observed=False),
            "metrics": await _calls(stack, None),
            "unsampled": await _calls(stack, unsampled),
            "traced": await _calls(stack, sampled),
            "span": _spans,
        }
        turns = [{name: await _spent(work) for name, work in works.items()} for _ in range(TURNS + 1)]
    sampled.shutdown()
    print(json.dumps(turns[1:]))


async def _spent(work: Work) -> float:
    began = time.process_time()
    await work(CALLS)
    return 1e6 * (time.process_time() - began) / CALLS


async def _calls(stack: AsyncExitStack, traces: RecordTracerProvider | None, *, observed: bool = True) -> Work:
    """Calls of a server that gives back what it gets."""
    server = grpc.aio.server(interceptors=[TelemetryInterceptor(traces)] if observed else [])
    handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(_echo)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    stack.push_async_callback(server.stop, None)
    channel = await stack.enter_async_context(grpc.aio.insecure_channel(f"127.0.0.1:{port}"))
    if traces:
        TracedChannel(channel, traces)
    return partial(_called, channel.unary_unary(f"/{SERVICE}/{METHOD}"))


async def _echo(request: bytes, _: object) -> bytes:
    return request


async def _called(call: Callable[..., Awaitable[Any]], count: int) -> None:
    for _ in range(count):
        await call(b"", timeout=10)


async def _spans(count: int) -> None:
    for _ in range(count):
        with tracing.start_span("span", {"hugginggpt.run.id": "run", "hugginggpt.task.id": 1}):
            await asyncio.sleep(0)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))

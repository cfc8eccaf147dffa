"""CPU time of telemetry per call, span and run, also with an unreachable collector, and its delay of shutdown.

A run is of one task, through the five services, one process each, with PostgreSQL.
"""

import json
import os
import statistics
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import grpc

from tests.bench.load import connected_client, planned_run
from tests.bench.processes import printed, start_testbed
from tests.bench.rows import Row, gap, median
from tests.bench.separate_processes import Deployment, start_deployment
from tests.bench.service_processes import SERVICE_NAMES
from tests.bench.shapes import Script
from tests.fakes.collector import OFTEN, refusing, silent
from tests.support import postgres

MOST_US = 100
"""Target: additional CPU time per call."""

STOP_SECONDS = 8.0
"""Target: shutdown of a process whose collector does not accept spans."""

CALLERS, RUNS, ROUNDS = 8, 64, 12
SERVICES = tuple(f"opentelemetry.proto.collector.{kind}.v1.{kind.title()}Service" for kind in ("trace", "metrics"))
CALLED: Mapping[str, tuple[str, str]] = {
    "call_us": ("traced", "client and server span of a call, exported, and its metrics"),
    "call_unsampled_us": ("unsampled", "likewise, of a trace that is not sampled"),
    "call_metrics_us": ("metrics", "likewise, without traces"),
}
"""Key in the output of tests.bench.calls and note, by row name."""

Round = Mapping[str, float]


async def rows() -> list[Row]:
    return [*await _calls(), *await _runs(), await _shutdown()]


# ---------------------------------------------------------------- calls


async def _calls() -> list[Row]:
    async with collector() as endpoint:
        rounds: Sequence[Round] = json.loads(await printed("tests.bench.calls", endpoint))
    bare = median([values["bare"] for values in rounds])
    calls = [
        Row(f"telemetry.{name}", _increase(rounds, key), "µs", MOST_US, bare, note=f"additional CPU time: {note}")
        for name, (key, note) in CALLED.items()
    ]
    note = "CPU time of one span, such as a task's, with two attributes, exported"
    return [*calls, Row("telemetry.span_us", median([values["span"] for values in rounds]), "µs", MOST_US, note=note)]


# ---------------------------------------------------------------- runs


async def _runs() -> list[Row]:
    try:
        with postgres.running_postgres() as url:
            rounds = await _rounds(url)
    except RuntimeError as error:
        return [gap(f"telemetry.{name}", "ms", None, str(error)) for name in ("run_ms", "run_absent_ms")]
    plain = median([values["plain"] for values in rounds])
    traced = "additional CPU time of all five services for a run with all traces and metrics"
    traced = f"{traced}; {_spread(rounds, 'traced')}"
    absent = f"likewise, with an unreachable collector; {_spread(rounds, 'absent')}"
    return [
        Row("telemetry.run_ms", _increase(rounds, "traced"), "ms", plain, plain, traced),
        Row("telemetry.run_absent_ms", _increase(rounds, "absent"), "ms", plain, plain, absent),
    ]


async def _shutdown() -> Row:
    """The slower of two cases: a collector that does not answer, and one that refuses connections."""
    taken = dict[str, float]()
    for name, start_collector in (("silent", silent), ("unreachable", refusing)):
        with (
            TemporaryDirectory() as home,
            start_collector() as endpoint,
            environment(OTEL_EXPORTER_OTLP_ENDPOINT=endpoint, **OFTEN),
        ):
            async with start_testbed(Path(home)) as testbed:
                async with connected_client(testbed.orchestrator.address) as client:
                    await client.run(planned_run(Script("chain", 8)))
                started = time.perf_counter()
                testbed.orchestrator.terminate()
                await testbed.orchestrator.until_exited()
                taken[name] = time.perf_counter() - started
    name = max(taken, key=lambda each: taken[each])
    note = f"from SIGTERM to an orchestrator until it has exited, after a run of 8 tasks; its collector is {name}"
    return Row("telemetry.stop_s", round(taken[name], 2), "s", STOP_SECONDS, note=note)


async def _rounds(url: str) -> Sequence[Round]:
    """CPU milliseconds of all services per run; deployments alternate, so that a slow machine affects all of them."""
    with TemporaryDirectory() as home, refusing() as unreachable:
        async with collector() as reachable, AsyncExitStack() as stack:
            deployments = {"plain": await stack.enter_async_context(start_deployment(Path(home), url))}
            for name, endpoint in (("traced", reachable), ("absent", unreachable)):
                other = await stack.enter_async_context(postgres.new_database(url))
                with environment(OTEL_EXPORTER_OTLP_ENDPOINT=endpoint, METRICS_LISTEN="127.0.0.1:0"):
                    deployments[name] = await stack.enter_async_context(start_deployment(Path(home), other))
            rounds = []
            for number in range(ROUNDS + 1):
                order = list(deployments) if number % 2 else list(reversed(deployments))
                rounds.append({name: await _spent(deployments[name]) for name in order})
    return rounds[1:]


async def _spent(deployment: Deployment) -> float:
    spent = await deployment.spent(callers=CALLERS, runs=RUNS)
    return sum(spent[name] for name in SERVICE_NAMES)


# ---------------------------------------------------------------- both


def _increase(rounds: Sequence[Round], key: str) -> float:
    """Median difference from the measurement without telemetry in the same round."""
    base = "bare" if "bare" in rounds[0] else "plain"
    return median([values[key] - values[base] for values in rounds])


def _spread(rounds: Sequence[Round], key: str) -> str:
    low, _, high = statistics.quantiles([values[key] - values["plain"] for values in rounds], n=4)
    return f"half of {len(rounds)} rounds between {low:.1f} and {high:.1f}"


@asynccontextmanager
async def collector() -> AsyncIterator[str]:
    """An OTLP server that discards what it receives; yields its endpoint."""

    async def export(_: bytes, __: object) -> bytes:
        return b""

    handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(export)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(
        grpc.method_handlers_generic_handler(service, {"Export": handler}) for service in SERVICES
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        await server.stop(None)


@contextmanager
def environment(**settings: str) -> Iterator[None]:
    """Sets environment variables for processes started in the block."""
    os.environ.update(settings)
    try:
        yield
    finally:
        for name in settings:
            del os.environ[name]

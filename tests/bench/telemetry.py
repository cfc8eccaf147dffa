"""What it takes to see what happens: of a call, of a span, of a whole run, and of one whose collector is away.

A run is one of a single task through five services, a process each, beside PostgreSQL.
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

from tests.bench.load import calling, planned
from tests.bench.processes import printed, staged
from tests.bench.rows import Row, gap, median
from tests.bench.separate_processes import House, standing
from tests.bench.service_processes import ROOMS
from tests.bench.shapes import Script
from tests.fakes.collector import OFTEN, refusing, silent
from tests.support import postgres

MOST_US = 100
"""Of processor time that a call may take more."""

STOP_SECONDS = 8.0
"""That a process may take to stop whose collector takes nothing."""

CALLERS, RUNS, TURNS = 8, 64, 12
SERVICES = tuple(f"opentelemetry.proto.collector.{kind}.v1.{kind.title()}Service" for kind in ("trace", "metrics"))
CALLED: Mapping[str, tuple[str, str]] = {
    "call_us": ("traced", "both ends of a call, each a span that is sent, and its metrics"),
    "call_unsampled_us": ("unsampled", "likewise, of a trace that is not sampled"),
    "call_metrics_us": ("metrics", "likewise, without traces"),
}
"""The figure's name, what it was measured as, and what that is."""

Turn = Mapping[str, float]


async def rows() -> list[Row]:
    return [*await _of_calls(), *await _of_runs(), await _of_stopping()]


# ---------------------------------------------------------------- of calls


async def _of_calls() -> list[Row]:
    async with collector() as endpoint:
        turns: Sequence[Turn] = json.loads(await printed("tests.bench.calls", endpoint))
    bare = median([turn["bare"] for turn in turns])
    calls = [
        Row(f"telemetry.{name}", _more(turns, what), "µs", MOST_US, bare, note=f"of processor time more: {note}")
        for name, (what, note) in CALLED.items()
    ]
    note = "of processor time: a span of ours, such as a task's, with two attributes, and sent"
    return [*calls, Row("telemetry.span_us", median([turn["span"] for turn in turns]), "µs", MOST_US, note=note)]


# ---------------------------------------------------------------- of runs


async def _of_runs() -> list[Row]:
    try:
        with postgres.standing() as url:
            turns = await _turns(url)
    except RuntimeError as error:
        return [gap(f"telemetry.{name}", "ms", None, str(error)) for name in ("run_ms", "run_absent_ms")]
    plain = median([turn["plain"] for turn in turns])
    told = "of processor time that all five services take more for a run where all of it is traced and counted"
    return [
        Row("telemetry.run_ms", _more(turns, "told"), "ms", plain, plain, f"{told}; {_spread(turns, 'told')}"),
        Row(
            "telemetry.run_absent_ms",
            _more(turns, "absent"),
            "ms",
            plain,
            plain,
            f"likewise, and the collector is away; {_spread(turns, 'absent')}",
        ),
    ]


async def _of_stopping() -> Row:
    """The slower of two: with a collector that does not answer, and with one that cannot be reached."""
    taken = dict[str, float]()
    for name, collector_ in (("silent", silent), ("away", refusing)):
        with (
            TemporaryDirectory() as home,
            collector_() as endpoint,
            environment(OTEL_EXPORTER_OTLP_ENDPOINT=endpoint, **OFTEN),
        ):
            async with staged(Path(home)) as stage:
                async with calling(stage.orchestrator.address) as client:
                    await client.run(planned(Script("chain", 8)))
                started = time.perf_counter()
                stage.orchestrator.terminate()
                await stage.orchestrator.until_exited()
                taken[name] = time.perf_counter() - started
    name = max(taken, key=lambda each: taken[each])
    note = f"an orchestrator's SIGTERM until it has exited, after a run of 8 tasks, while its collector is {name}"
    return Row("telemetry.stop_s", round(taken[name], 2), "s", STOP_SECONDS, note=note)


async def _turns(url: str) -> Sequence[Turn]:
    """Milliseconds that a run takes of all services, turn by turn, so that a slow minute is everyone's."""
    with TemporaryDirectory() as home, refusing() as nowhere:
        async with collector() as endpoint, AsyncExitStack() as stack:
            houses = {"plain": await stack.enter_async_context(standing(Path(home), url))}
            for name, place in (("told", endpoint), ("absent", nowhere)):
                other = await stack.enter_async_context(postgres.fresh(url))
                with environment(OTEL_EXPORTER_OTLP_ENDPOINT=place, METRICS_LISTEN="127.0.0.1:0"):
                    houses[name] = await stack.enter_async_context(standing(Path(home), other))
            turns = []
            for number in range(TURNS + 1):
                order = list(houses) if number % 2 else list(reversed(houses))
                turns.append({name: await _spent(houses[name]) for name in order})
    return turns[1:]


async def _spent(house: House) -> float:
    spent = await house.spent(callers=CALLERS, runs=RUNS)
    return sum(spent[room] for room in ROOMS)


# ---------------------------------------------------------------- both


def _more(turns: Sequence[Turn], what: str) -> float:
    """The median of what it took more than it did without, in the same turn."""
    base = "bare" if "bare" in turns[0] else "plain"
    return median([turn[what] - turn[base] for turn in turns])


def _spread(turns: Sequence[Turn], what: str) -> str:
    low, _, high = statistics.quantiles([turn[what] - turn["plain"] for turn in turns], n=4)
    return f"half of {len(turns)} turns between {low:.1f} and {high:.1f}"


@asynccontextmanager
async def collector() -> AsyncIterator[str]:
    """Takes what is sent by OTLP, and throws it away."""

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
    """What is started in the block has these."""
    os.environ.update(settings)
    try:
        yield
    finally:
        for name in settings:
            del os.environ[name]

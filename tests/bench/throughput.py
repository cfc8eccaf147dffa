"""Runs per second of an orchestrator on two cores, which it shares with the scripted services and the client."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import astuple, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import grpc

from protos.hugginggpt.v1.expert_pb2 import InferRequest
from protos.hugginggpt.v1.run_pb2 import RUN_MODE_RESULTS, RUN_MODE_UNSPECIFIED
from services.common.channel import connect
from tests.bench.load import TIMEOUT_SECONDS, connected_client, per_second, supplied_run
from tests.bench.processes import Testbed, cores, start_testbed
from tests.bench.rows import Row, median
from tests.bench.shapes import NAMED, Script

CORES = 2
CALLERS = 64
RUNS = 300
ROUNDS = 5
RUNS_PER_SECOND = 150
DIAMOND = Script("diamond", 4)


@dataclass(frozen=True)
class Throughput:
    """Rate of runs, and CPU milliseconds of each process per run."""

    per_second: float
    orchestrator: float
    scripted: float
    client: float


async def rows() -> list[Row]:
    """Figures of many concurrent short runs."""
    with TemporaryDirectory() as home, cores(CORES):
        async with (
            start_testbed(Path(home)) as testbed,
            connected_client(testbed.orchestrator.address) as client,
            connect(testbed.scripted.address) as channel,
        ):
            floor = await _floor(channel)
            results = supplied_run(DIAMOND, RUN_MODE_RESULTS)
            answered = supplied_run(DIAMOND, RUN_MODE_UNSPECIFIED)
            bare = await _throughput(lambda: client.run(results), testbed)
            whole = await _throughput(lambda: client.run(answered), testbed)
    reference = round(floor / len(DIAMOND.graph))
    shared = f"{CALLERS} callers, {CORES} cores"
    return [
        Row(
            "throughput.diamond_runs_per_s",
            round(whole.per_second),
            "/s",
            RUNS_PER_SECOND,
            reference,
            f"4 no-op tasks and a response, {NAMED}, {shared}; reference: its 4 Infer calls alone, from one client",
            at_least=True,
        ),
        Row(
            "throughput.diamond_results_runs_per_s",
            round(bare.per_second),
            "/s",
            RUNS_PER_SECOND,
            reference,
            "likewise, without the response",
            at_least=True,
        ),
        Row(
            "throughput.cpu_per_run_ms",
            round(whole.orchestrator, 2),
            "ms",
            note=f"of the orchestrator; scripted services {whole.scripted:.2f} ms, client {whole.client:.2f} ms",
        ),
    ]


async def _floor(channel: grpc.aio.Channel) -> float:
    """Infer calls per second by one client that sends serialized messages."""
    call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary("/hugginggpt.v1.ExpertService/Infer")
    request = InferRequest(model="0").SerializeToString()
    return await per_second(
        lambda: call(request, timeout=TIMEOUT_SECONDS), callers=CALLERS, count=len(DIAMOND.graph) * RUNS
    )


async def _throughput(call: Callable[[], Awaitable[object]], testbed: Testbed) -> Throughput:
    """Medians of ROUNDS rounds, after a warm-up."""
    await per_second(call, callers=CALLERS, count=RUNS)
    rounds = [await _round(call, testbed) for _ in range(ROUNDS)]
    return Throughput(*(median(column) for column in zip(*map(astuple, rounds), strict=True)))


async def _round(call: Callable[[], Awaitable[object]], testbed: Testbed) -> Throughput:
    processes = (testbed.orchestrator, testbed.scripted)
    before = [*(process.cpu_seconds() for process in processes), time.process_time()]
    rate = await per_second(call, callers=CALLERS, count=RUNS)
    after = [*(process.cpu_seconds() for process in processes), time.process_time()]
    return Throughput(rate, *(1000 * (end - start) / RUNS for start, end in zip(before, after, strict=True)))

"""How many runs a second an orchestrator takes on two cores, which it shares with those it calls and those who ask."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import grpc

from protos.hugginggpt.v1.expert_pb2 import InferRequest
from protos.hugginggpt.v1.run_pb2 import RUN_MODE_RESULTS, RUN_MODE_UNSPECIFIED
from services.common.channel import connect
from tests.bench.load import PATIENCE_SECONDS, calling, per_second, supplied
from tests.bench.processes import Stage, cores, staged
from tests.bench.rows import Row, median
from tests.bench.shapes import NAMED, Script

CORES = 2
CALLERS = 64
RUNS = 300
ROUNDS = 5
RUNS_PER_SECOND = 150
DIAMOND = Script("diamond", 4)


@dataclass(frozen=True)
class Pace:
    """What a load came to; processor time in ms per run."""

    per_second: float
    orchestrator: float
    cast: float
    client: float


async def rows() -> list[Row]:
    """Figures of many short runs at once."""
    with TemporaryDirectory() as home, cores(CORES):
        async with (
            staged(Path(home)) as stage,
            calling(stage.orchestrator.address) as client,
            connect(stage.cast.address) as channel,
        ):
            floor = await _floor(channel)
            results, answered = supplied(DIAMOND, RUN_MODE_RESULTS), supplied(DIAMOND, RUN_MODE_UNSPECIFIED)
            bare = await _pace(lambda: client.run(results), stage)
            whole = await _pace(lambda: client.run(answered), stage)
    reference = round(floor / len(DIAMOND.graph))
    shared = f"{CALLERS} callers, {CORES} cores"
    return [
        Row(
            "throughput.diamond_runs_per_s",
            round(whole.per_second),
            "/s",
            RUNS_PER_SECOND,
            reference,
            f"4 no-op tasks and an answer, {NAMED}, {shared}; reference: its 4 Infer calls alone, from one client",
            at_least=True,
        ),
        Row(
            "throughput.diamond_results_runs_per_s",
            round(bare.per_second),
            "/s",
            RUNS_PER_SECOND,
            reference,
            "likewise, without the answer",
            at_least=True,
        ),
        Row(
            "throughput.cpu_per_run_ms",
            round(whole.orchestrator, 2),
            "ms",
            note=f"of the orchestrator; beside it the cast takes {whole.cast:.2f} ms, the client {whole.client:.2f} ms",
        ),
    ]


async def _floor(channel: grpc.aio.Channel) -> float:
    """Calls of the expert per second, from one client that sends bytes."""
    call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary("/hugginggpt.v1.ExpertService/Infer")
    nothing = InferRequest(model="0").SerializeToString()
    return await per_second(
        lambda: call(nothing, timeout=PATIENCE_SECONDS), callers=CALLERS, count=len(DIAMOND.graph) * RUNS
    )


async def _pace(call: Callable[[], Awaitable[object]], stage: Stage) -> Pace:
    await per_second(call, callers=CALLERS, count=RUNS)
    paces = [await _round(call, stage) for _ in range(ROUNDS)]
    columns = zip(*((pace.per_second, pace.orchestrator, pace.cast, pace.client) for pace in paces), strict=True)
    return Pace(*(median(column) for column in columns))


async def _round(call: Callable[[], Awaitable[object]], stage: Stage) -> Pace:
    processes = (stage.orchestrator, stage.cast)
    before = [*(process.cpu_seconds() for process in processes), time.process_time()]
    rate = await per_second(call, callers=CALLERS, count=RUNS)
    after = [*(process.cpu_seconds() for process in processes), time.process_time()]
    return Pace(rate, *(1000 * (then - now) / RUNS for now, then in zip(before, after, strict=True)))

"""Compares an expert, served by `python -m experts.<modality>`, with the best offline run of the same model."""

import asyncio
import json
import os
import statistics
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

import grpc

from protos.hugginggpt.v1.artifact_pb2 import Value
from services.common.artifacts import ArtifactStore
from tests.bench.batches.client import machine_load
from tests.bench.expert_callers import ExpertCaller, open_channel
from tests.bench.expert_models.files import input_folder
from tests.bench.expert_models.offline import Settings
from tests.bench.expert_models.workloads import Workload
from tests.bench.load import per_second, steady_rate
from tests.bench.processes import cores, service, stop

ROUNDS = 3
WARM_UP = 2
"""Calls of each caller before the rounds: the expert measures how long its batches take."""
SWEEP_SECONDS, ROUND_SECONDS = 300.0, 120.0


@dataclass(frozen=True)
class Load:
    """How the models are run.

    Attributes:
        device: "cpu" or a GPU.
        count: items in a round.
        callers: concurrent callers, each with one call at a time.
        batches: batch sizes of the offline run, from 1 on.
    """

    device: str
    count: int
    callers: int
    batches: Sequence[int]


@dataclass(frozen=True)
class Comparison:
    """Rates of alternating rounds.

    Attributes:
        settings: of the offline run.
        offline: its items per second in each round.
        served: calls per second in each round.
        cores: of the expert, and of the offline run.
        load: of both.
        busy: load of the machine before the rounds.
    """

    settings: Settings
    offline: Sequence[float]
    served: Sequence[float]
    cores: int
    load: Load
    busy: str

    @property
    def share(self) -> float:
        """Median of the rounds' ratios of served to offline."""
        return statistics.median(served / offline for served, offline in zip(self.served, self.offline, strict=True))

    @property
    def offline_rate(self) -> float:
        return statistics.median(self.offline)

    @property
    def served_rate(self) -> float:
        return statistics.median(self.served)


class Caller:
    """Calls an expert with each of several inputs in turn."""

    def __init__(self, callers: Sequence[ExpertCaller]) -> None:
        self._callers = cycle(callers)

    async def call(self) -> float:
        """Makes one call, and returns its seconds."""
        return await next(self._callers).call()

    async def run_open_loop(self, per_second: float, count: int) -> list[float]:
        """Seconds of calls with one input that start at random times with this mean rate."""
        return await next(self._callers).run_open_loop(per_second, count)


@dataclass(frozen=True)
class Contenders:
    """An expert and an offline run of the same model, both on all cores but the first, which the client has."""

    expert: Caller
    offline: Process
    settings: Settings
    load: Load
    cores: int

    async def compare(self) -> Comparison:
        """Alternates between them, so that a slow machine affects both."""
        offline, served, busy = list[float](), list[float](), machine_load()
        await per_second(self.expert.call, callers=self.load.callers, count=WARM_UP * self.load.callers)
        for _ in range(ROUNDS):
            offline.append(await self._offline_rate())
            served.append(await self.serve_round())
        return Comparison(self.settings, offline, served, self.cores, self.load, busy)

    async def serve_round(self) -> float:
        """Makes the calls of one round, and returns their rate while all callers are busy.

        An offline run has all of its items from the start; at the end of a round few calls would wait.
        """
        return await steady_rate(self.expert.call, callers=self.load.callers, count=self.load.count)

    async def _offline_rate(self) -> float:
        assert self.offline.stdin
        self.offline.stdin.write(b"\n")
        return float(await _line(self.offline, ROUND_SECONDS))


@asynccontextmanager
async def contenders(workload: Workload, models: Path, load: Load) -> AsyncIterator[Contenders]:
    """Starts the expert and the offline run of a workload.

    Args:
        workload: with the model.
        models: folder of checkpoints and inputs.
        load: of both.
    """
    store = (models / "artifacts").as_uri()
    os.environ.update(EXPERT_MODELS_URL=models.as_uri(), ARTIFACTS_URL=store, HF_HUB_OFFLINE="1")
    settings = {"devices": f"*={load.device}", "max_waiting": str(max(64, load.callers))}
    async with AsyncExitStack() as stack:
        with cores(first=1) as count:
            offline, found = await stack.enter_async_context(_offline(workload, models, load))
            expert = await stack.enter_async_context(
                service(f"experts.{workload.modality}", "EXPERT", models, **settings)
            )
        channel = await stack.enter_async_context(open_channel(expert.address))
        caller = await _caller(channel, workload, models, store)
        await caller.call()  # loads the model
        stack.enter_context(cores(1))
        yield Contenders(caller, offline, found, load, count)


@asynccontextmanager
async def _offline(workload: Workload, models: Path, load: Load) -> AsyncIterator[tuple[Process, Settings]]:
    """Starts the offline run, and yields it with its fastest settings."""
    checkpoint, inputs = models / workload.model, input_folder(models, workload)
    arguments = (workload.modality, checkpoint, inputs, load.device, load.count, ",".join(map(str, load.batches)))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.bench.expert_models.offline", *map(str, arguments)),
        stdin=PIPE,
        stdout=PIPE,
        stderr=DEVNULL,
    )
    try:
        yield process, Settings(**json.loads(await _line(process, SWEEP_SECONDS)))
    finally:
        await stop(process)


async def _line(process: Process, seconds: float) -> str:
    """The next line that a process prints.

    Raises:
        RuntimeError: it has exited.
    """
    assert process.stdout
    async with asyncio.timeout(seconds):
        line = await process.stdout.readline()
    if not line:
        raise RuntimeError("the offline run failed; python -m tests.bench.expert_models.offline shows its error")
    return line.decode()


async def _caller(channel: grpc.aio.Channel, workload: Workload, models: Path, store: str) -> Caller:
    artifacts, callers = ArtifactStore.open(store), list[ExpertCaller]()
    for file in sorted(input_folder(models, workload).iterdir()):
        content = file.read_bytes()
        if workload.media_type.startswith("text/"):
            value = Value(text=content.decode())
        else:
            artifact = await artifacts.put("default", content, media_type=workload.media_type, name=file.name)
            value = Value(artifact=artifact)
        callers.append(ExpertCaller(channel, workload.model, task=workload.task, inputs={workload.port: value}))
    return Caller(callers)

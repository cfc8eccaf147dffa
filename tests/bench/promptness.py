"""How soon the house acts on what changes: a cancel, a task that an LLM has written, an expert that comes."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import httpx

from protos.hugginggpt.internal.v1.planner_pb2 import PlanRequest
from protos.hugginggpt.internal.v1.planner_pb2_grpc import PlannerServiceStub
from protos.hugginggpt.v1.artifact_pb2 import Value
from protos.hugginggpt.v1.expert_pb2 import InferRequest
from protos.hugginggpt.v1.run_pb2 import ROLE_USER, Turn
from services.common.channel import connect
from tests.bench.endtoend.deployment import PACED
from tests.bench.endtoend.scripted_llm import CHARACTERS, ends, plan, request
from tests.bench.load import PATIENCE_SECONDS
from tests.bench.local_stack import TASK
from tests.bench.rows import Row, median
from tests.bench.service_processes import rooms
from tests.bench.shapes import TASK as WRITTEN_TASK
from tests.bench.shapes import Script
from tests.bench.telemetry import collector, environment
from tests.fakes import FakeExpert, Says, ScriptedLLM, card

if TYPE_CHECKING:
    from protos.hugginggpt.internal.v1.planner_pb2_grpc import PlannerServiceAsyncStub

CANCEL_MS, BRACE_MS, EXPERT_SECONDS = 50.0, 25.0, 10.0

CANCELS = 20
PLANS = 5
TOKENS_PER_SECOND = 40.0
"""Of an LLM that takes 25 ms for a token: its next one."""
WRITTEN = Script("chain", 5)
EXPERTS = 3
OTHER_TASK = "translation"
AGAIN_SECONDS = 0.05
ASKED = {"request": "Summarize: one two three.", "bypass_memo": True}


async def rows() -> list[Row]:
    return [await _cancel(), await _brace(), await _expert()]


# ---------------------------------------------------------------- a cancel


class _Busy:
    """Works until it is told to stop, and keeps when that was."""

    def __init__(self) -> None:
        self.begun = asyncio.Queue[None]()
        self.stopped = asyncio.Queue[float]()

    async def __call__(self, _: InferRequest) -> Mapping[str, Value]:
        self.begun.put_nowait(None)
        try:
            await asyncio.sleep(PATIENCE_SECONDS)
        finally:
            self.stopped.put_nowait(time.perf_counter())
        return {"text": Value(text="done")}


async def _cancel() -> Row:
    busy = _Busy()
    with TemporaryDirectory() as home:
        async with collector() as endpoint, FakeExpert("busy", [card("busy", TASK)], answer=busy).serving() as expert:
            with environment(OTEL_EXPORTER_OTLP_ENDPOINT=endpoint):
                async with rooms(Path(home), expert, {}) as (_, http), _client(http) as client:
                    taken = [1000 * await _cancelled(client, busy) for _ in range(CANCELS + 1)][1:]
    note = f"POST …/cancel until the expert's work stops, all of it traced; slowest of {CANCELS}: {max(taken):.0f} ms"
    return Row("cancel.expert_ms", median(taken), "ms", CANCEL_MS, note=note)


async def _cancelled(client: httpx.AsyncClient, busy: _Busy) -> float:
    """Seconds."""
    begun = (await client.post("/v1/runs", json=ASKED)).raise_for_status()
    async with asyncio.timeout(PATIENCE_SECONDS):
        await busy.begun.get()
        asked = time.perf_counter()
        (await client.post(f"{begun.headers['location']}/cancel")).raise_for_status()
        return await busy.stopped.get() - asked


# ---------------------------------------------------------------- a task that an LLM has written


async def _brace() -> Row:
    says = Says(plan(WRITTEN), tokens_per_second=TOKENS_PER_SECOND, chunk=CHARACTERS)
    taken = list[float]()
    offers = FakeExpert("paced", [card("paced", WRITTEN_TASK)], specs=[PACED])
    with TemporaryDirectory() as home:
        async with ScriptedLLM.serving(lambda _: says) as llm, offers.serving() as expert:
            told = {"llm_base_url": llm.base_url, "llm_model": "scripted", "llm_internal": "true"}
            async with (
                rooms(Path(home), expert, {"planner": told}) as (processes, _),
                connect(processes["planner"].address) as channel,
            ):
                await _waits(PlannerServiceStub(channel), llm, PLANS)
                for number in range(PLANS):
                    taken += await _waits(PlannerServiceStub(channel), llm, number)
    note = f"{len(taken)} tasks of an LLM of {TOKENS_PER_SECOND:g} tokens a second; slowest {1000 * max(taken):.0f} ms"
    return Row("plan.brace_to_task_ms", median([1000 * each for each in taken]), "ms", BRACE_MS, note=note)


async def _waits(planner: "PlannerServiceAsyncStub", llm: ScriptedLLM, number: int) -> Sequence[float]:
    """Seconds from sending the last brace of each task until the task comes out of the planner."""
    loop, came = asyncio.get_running_loop(), list[float]()
    llm.sent.clear()
    asked = PlanRequest(conversation=[Turn(role=ROLE_USER, text=request(WRITTEN, number))])
    async for event in planner.Plan(asked, timeout=PATIENCE_SECONDS, wait_for_ready=True):
        if event.HasField("task"):
            came.append(loop.time())
    reached = list(zip(accumulate(len(piece) for _, piece in llm.sent), llm.sent, strict=True))
    out = [next(sent for length, (sent, _) in reached if length >= end) for end in ends(plan(WRITTEN))]
    return [seen - sent for seen, sent in zip(came, out, strict=True)]


# ---------------------------------------------------------------- an expert that comes


async def _expert() -> Row:
    with TemporaryDirectory() as home:
        folder = Path(home) / "experts"
        folder.mkdir()
        async with (
            FakeExpert("there", [card("there", OTHER_TASK)]).serving() as expert,
            rooms(Path(home), expert, {"selector": {"experts": f"{expert},{folder}"}}) as (_, http),
            _client(http) as client,
        ):
            taken = [await _learnt(client, folder / "newer.address") for _ in range(EXPERTS)]
    note = f"an expert's address is written down, until a request that needs it is answered; slowest of {EXPERTS}"
    return Row("discovery.expert_s", round(max(taken), 2), "s", EXPERT_SECONDS, note=note)


async def _learnt(client: httpx.AsyncClient, file: Path) -> float:
    """Seconds; the expert is forgotten again in the end."""
    async with asyncio.timeout(PATIENCE_SECONDS), FakeExpert("newer", [card("newer", TASK)]).serving() as address:
        with _written(file, address):
            taken = await _until(client, answered=True)
        await _until(client, answered=False)
    return taken


@contextmanager
def _written(file: Path, address: str) -> Iterator[None]:
    file.write_text(f"{address}\n", encoding="utf-8")
    yield
    file.unlink()


async def _until(client: httpx.AsyncClient, *, answered: bool) -> float:
    """Seconds."""
    begun = time.perf_counter()
    while True:
        if await _answered(client) == answered:
            return time.perf_counter() - begun
        await asyncio.sleep(AGAIN_SECONDS)


async def _answered(client: httpx.AsyncClient) -> bool:
    run = (await client.post("/v1/runs", json=ASKED, headers={"Prefer": "wait=30"})).raise_for_status().json()
    return bool(run["state"] == "completed" and run.get("tasks"))


@asynccontextmanager
async def _client(http: str) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=f"http://{http}", timeout=PATIENCE_SECONDS) as client:
        yield client

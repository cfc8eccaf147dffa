"""Response times: to a cancel, to a task that an LLM has written, and to a new expert."""

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
from tests.bench.endtoend.deployment import DELAYED_TASK
from tests.bench.endtoend.scripted_llm import CHARACTERS, ends, plan, request
from tests.bench.load import TIMEOUT_SECONDS
from tests.bench.local_stack import TASK
from tests.bench.rows import Row, median
from tests.bench.service_processes import start_services
from tests.bench.shapes import TASK as WRITTEN_TASK
from tests.bench.shapes import Script
from tests.bench.telemetry import collector, environment
from tests.fakes import FakeExpert, ScriptedLLM, TextReply, card

if TYPE_CHECKING:
    from protos.hugginggpt.internal.v1.planner_pb2_grpc import PlannerServiceAsyncStub

CANCEL_MS, BRACE_MS, EXPERT_SECONDS = 50.0, 25.0, 10.0

CANCELS = 20
PLANS = 5
TOKENS_PER_SECOND = 40.0
"""The LLM writes one token in 25 ms; BRACE_MS allows one more token."""
WRITTEN = Script("chain", 5)
EXPERTS = 3
OTHER_TASK = "translation"
POLL_SECONDS = 0.05
RUN_BODY = {"request": "Summarize: one two three.", "bypass_memo": True}


async def rows() -> list[Row]:
    return [await _cancel(), await _brace(), await _expert()]


# ---------------------------------------------------------------- a cancel


class _EndlessTask:
    """An expert's task that runs until it is cancelled, and records when."""

    def __init__(self) -> None:
        self.started = asyncio.Queue[None]()
        self.stopped = asyncio.Queue[float]()

    async def __call__(self, _: InferRequest) -> Mapping[str, Value]:
        self.started.put_nowait(None)
        try:
            await asyncio.sleep(TIMEOUT_SECONDS)
        finally:
            self.stopped.put_nowait(time.perf_counter())
        return {"text": Value(text="done")}


async def _cancel() -> Row:
    task = _EndlessTask()
    with TemporaryDirectory() as home:
        async with collector() as endpoint, FakeExpert("busy", [card("busy", TASK)], answer=task).serving() as expert:
            with environment(OTEL_EXPORTER_OTLP_ENDPOINT=endpoint):
                async with start_services(Path(home), expert, {}) as (_, http), _client(http) as client:
                    taken = [1000 * await _cancelled(client, task) for _ in range(CANCELS + 1)][1:]
    note = f"POST …/cancel until the expert's task stops, with tracing; slowest of {CANCELS}: {max(taken):.0f} ms"
    return Row("cancel.expert_ms", median(taken), "ms", CANCEL_MS, note=note)


async def _cancelled(client: httpx.AsyncClient, task: _EndlessTask) -> float:
    """Starts and cancels a run, and returns the seconds until the expert's task stops."""
    run = (await client.post("/v1/runs", json=RUN_BODY)).raise_for_status()
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await task.started.get()
        requested = time.perf_counter()
        (await client.post(f"{run.headers['location']}/cancel")).raise_for_status()
        return await task.stopped.get() - requested


# ---------------------------------------------------------------- a task that an LLM has written


async def _brace() -> Row:
    reply = TextReply(plan(WRITTEN), tokens_per_second=TOKENS_PER_SECOND, chunk=CHARACTERS)
    taken = list[float]()
    delayed = FakeExpert("delayed", [card("delayed", WRITTEN_TASK)], specs=[DELAYED_TASK])
    with TemporaryDirectory() as home:
        async with ScriptedLLM.serving(lambda _: reply) as llm, delayed.serving() as expert:
            settings = {"llm_base_url": llm.base_url, "llm_model": "scripted", "llm_internal": "true"}
            async with (
                start_services(Path(home), expert, {"planner": settings}) as (processes, _),
                connect(processes["planner"].address) as channel,
            ):
                await _delays(PlannerServiceStub(channel), llm, PLANS)
                for number in range(PLANS):
                    taken += await _delays(PlannerServiceStub(channel), llm, number)
    note = f"{len(taken)} tasks of an LLM of {TOKENS_PER_SECOND:g} tokens a second; slowest {1000 * max(taken):.0f} ms"
    return Row("plan.brace_to_task_ms", median([1000 * each for each in taken]), "ms", BRACE_MS, note=note)


async def _delays(planner: "PlannerServiceAsyncStub", llm: ScriptedLLM, number: int) -> Sequence[float]:
    """Seconds from the moment the LLM sends the closing brace of each task until the planner emits the task."""
    loop, received = asyncio.get_running_loop(), list[float]()
    llm.sent.clear()
    message = PlanRequest(conversation=[Turn(role=ROLE_USER, text=request(WRITTEN, number))])
    async for event in planner.Plan(message, timeout=TIMEOUT_SECONDS, wait_for_ready=True):
        if event.HasField("task"):
            received.append(loop.time())
    lengths = list(zip(accumulate(len(piece) for _, piece in llm.sent), llm.sent, strict=True))
    closed = [next(sent for length, (sent, _) in lengths if length >= end) for end in ends(plan(WRITTEN))]
    return [emitted - sent for emitted, sent in zip(received, closed, strict=True)]


# ---------------------------------------------------------------- a new expert


async def _expert() -> Row:
    with TemporaryDirectory() as home:
        folder = Path(home) / "experts"
        folder.mkdir()
        async with (
            FakeExpert("existing", [card("existing", OTHER_TASK)]).serving() as expert,
            start_services(Path(home), expert, {"selector": {"experts": f"{expert},{folder}"}}) as (_, http),
            _client(http) as client,
        ):
            taken = [await _discovered(client, folder / "new.address") for _ in range(EXPERTS)]
    note = f"from writing an expert's address file until a request that needs it succeeds; slowest of {EXPERTS}"
    return Row("discovery.expert_s", round(max(taken), 2), "s", EXPERT_SECONDS, note=note)


async def _discovered(client: httpx.AsyncClient, file: Path) -> float:
    """Seconds until a new expert is used; afterwards it is removed again."""
    async with asyncio.timeout(TIMEOUT_SECONDS), FakeExpert("new", [card("new", TASK)]).serving() as address:
        with _address_file(file, address):
            taken = await _until(client, succeeds=True)
        await _until(client, succeeds=False)
    return taken


@contextmanager
def _address_file(file: Path, address: str) -> Iterator[None]:
    file.write_text(f"{address}\n", encoding="utf-8")
    yield
    file.unlink()


async def _until(client: httpx.AsyncClient, *, succeeds: bool) -> float:
    """Seconds until a run succeeds, or no longer does."""
    started = time.perf_counter()
    while True:
        if await _run_succeeds(client) == succeeds:
            return time.perf_counter() - started
        await asyncio.sleep(POLL_SECONDS)


async def _run_succeeds(client: httpx.AsyncClient) -> bool:
    run = (await client.post("/v1/runs", json=RUN_BODY, headers={"Prefer": "wait=30"})).raise_for_status().json()
    return bool(run["state"] == "completed" and run.get("tasks"))


@asynccontextmanager
async def _client(http: str) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=f"http://{http}", timeout=TIMEOUT_SECONDS) as client:
        yield client

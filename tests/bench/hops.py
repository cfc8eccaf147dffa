"""What each service of a house takes of a processor for one run, as in a cluster: a process each, beside PostgreSQL.

The request is planned, its model chosen and its answer composed without an LLM; the expert does nothing.
"""

import os
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import asyncpg
import grpc
import httpx

from services.ports import free
from tests import postgres
from tests.bench.batches.asking import loaded
from tests.bench.house import TASK
from tests.bench.load import per_second
from tests.bench.processes import Running, service
from tests.bench.rows import Row, gap, median
from tests.fakes import FakeExpert, card

RUNS, ROUNDS, CALLERS = 200, 5, 64
REQUEST = {"request": "Summarize: one two three.", "bypass_memo": True}
ROOMS = ("gateway", "planner", "selector", "orchestrator", "responder")
SERVICE = "opentelemetry.proto.collector.trace.v1.TraceService"


async def rows() -> list[Row]:
    """Figures of a run of one task through every service; none where PostgreSQL is not installed."""
    try:
        with postgres.standing() as url:
            turns = await _turns(url)
    except RuntimeError as error:
        return [gap(f"hops.{room}_ms", "ms", None, str(error)) for room in ROOMS]
    note = f"processor time for a run of one task, {CALLERS} callers; {loaded()}"
    plain = {name: median([one[name] for one, _ in turns]) for name in turns[0][0]}
    more = [sum(traced[room] - bare[room] for room in ROOMS) for bare, traced in turns]
    spread = f"what all five take more where every run is traced; by turns from {min(more):.1f} to {max(more):.1f} ms"
    return [
        *(Row(f"hops.{room}_ms", plain[room], "ms", note=note) for room in ROOMS),
        Row("hops.postgres_ms", plain["postgres"], "ms", note=f"likewise; {plain['commits']:g} commits a run"),
        Row("hops.kept_kb", plain["kept_kb"], "kB", note="what the database grows by for a run, indexes included"),
        Row("hops.tracing_ms", median(more), "ms", note=spread),
    ]


async def _turns(url: str) -> list[tuple[Mapping[str, float], Mapping[str, float]]]:
    """What a run takes without traces, and with them, by name; turn by turn, so that a slow minute is both's."""
    with TemporaryDirectory() as home:
        async with _collector() as endpoint, AsyncExitStack() as stack:
            plain = await stack.enter_async_context(_house(Path(home), url))
            other = await stack.enter_async_context(postgres.fresh(url))
            with _told(OTEL_EXPORTER_OTLP_ENDPOINT=endpoint):
                traced = await stack.enter_async_context(_house(Path(home), other))
            turns = [(await plain.spent(), await traced.spent()) for _ in range(ROUNDS + 1)]
    return turns[1:]


async def _asked(client: httpx.AsyncClient) -> None:
    answer = (await client.post("/v1/runs", json=REQUEST, headers={"Prefer": "wait=60"})).json()
    if answer.get("state") != "completed":
        raise RuntimeError(f"a run of the benchmark failed: {answer}")


@dataclass(frozen=True)
class _House:
    """The five services and the database they share."""

    rooms: Mapping[str, Running]
    http: str
    database: str

    async def spent(self) -> Mapping[str, float]:
        """What a run took of each process and of the database, over so many runs."""
        async with httpx.AsyncClient(base_url=f"http://{self.http}", timeout=60) as client:
            before = await self._used()
            await per_second(lambda: _asked(client), callers=CALLERS, count=RUNS)
            after = await self._used()
        return {name: (after[name] - before[name]) / RUNS for name in before}

    async def _used(self) -> dict[str, float]:
        """Milliseconds, commits and kilobytes since it all began."""
        postmaster, commits, size = await _database(self.database)
        used = {name: 1000 * running.cpu_seconds() for name, running in self.rooms.items()}
        return {**used, "postgres": 1000 * _family_seconds(postmaster), "commits": commits, "kept_kb": size / 1000}


@asynccontextmanager
async def _house(home: Path, url: str) -> AsyncIterator[_House]:
    """Stands once the task of an expert that does nothing can be asked for."""
    async with AsyncExitStack() as stack:

        async def start(module: str, **settings: str) -> Running:
            prefix = module.rpartition(".")[2].upper()
            return await stack.enter_async_context(service(module, prefix, home, **settings))

        expert = await stack.enter_async_context(FakeExpert("noop", [card("noop", TASK)]).serving())
        selector = await start("services.selector", experts=expert)
        planner = await start("services.planner", selector=selector.address)
        responder = await start("services.responder")
        peers = {"planner": planner.address, "selector": selector.address, "responder": responder.address}
        orchestrator = await start("services.orchestrator", journal=url, **peers)
        http = free("127.0.0.1:0", option="")
        doors = {"orchestrator": orchestrator.address, "selector": selector.address, "http_listen": http}
        gateway = await start("gateway", database=url, **doors)
        started = (gateway, planner, selector, orchestrator, responder)
        yield _House(dict(zip(ROOMS, started, strict=True)), http, url)


async def _database(url: str) -> tuple[int, int, int]:
    """Its first process, and how many commits and bytes it has seen so far."""
    connection = await asyncpg.connect(url)
    try:
        ((commits, size, backend),) = await connection.fetch(
            "SELECT xact_commit, pg_database_size(current_database()), pg_backend_pid() "
            "FROM pg_stat_database WHERE datname = current_database()"
        )
        return _parent(backend), commits, size
    finally:
        await connection.close()


def _family_seconds(first: int) -> float:
    """Processor time of a process, of those it began, and of those of them that have ended."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):  # processes come and go
            fields = _fields(stat)
            if int(stat.parent.name) == first:
                ticks += sum(int(field) for field in fields[11:15])
            elif int(fields[1]) == first:
                ticks += sum(int(field) for field in fields[11:13])
    return ticks / os.sysconf("SC_CLK_TCK")


def _parent(pid: int) -> int:
    return int(_fields(Path(f"/proc/{pid}/stat"))[1])


def _fields(stat: Path) -> list[str]:
    """From a process's state on, which is the third."""
    return stat.read_text(encoding="utf-8").rpartition(")")[2].split()


@asynccontextmanager
async def _collector() -> AsyncIterator[str]:
    """Takes spans by OTLP, and throws them away."""

    async def export(_: bytes, __: object) -> bytes:
        return b""

    handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(export)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {"Export": handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        await server.stop(None)


@contextmanager
def _told(**settings: str) -> Iterator[None]:
    """What is started in the block has them in its environment."""
    os.environ.update(settings)
    try:
        yield
    finally:
        for name in settings:
            del os.environ[name]

"""What each service of a house takes of a processor for one run, as in a cluster: a process each, beside PostgreSQL.

The request is planned, its model chosen and its answer composed without an LLM; the expert does nothing.
"""

import os
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import grpc
import httpx

from tests import postgres
from tests.bench.apart import ROOMS, House, standing
from tests.bench.batches.asking import loaded
from tests.bench.load import per_second
from tests.bench.rows import Row, gap, median

RUNS, ROUNDS, CALLERS = 200, 5, 64
REQUEST = {"request": "Summarize: one two three.", "bypass_memo": True}
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
            plain = await stack.enter_async_context(standing(Path(home), url))
            other = await stack.enter_async_context(postgres.fresh(url))
            with _told(OTEL_EXPORTER_OTLP_ENDPOINT=endpoint):
                traced = await stack.enter_async_context(standing(Path(home), other))
            turns = [(await _spent(plain), await _spent(traced)) for _ in range(ROUNDS + 1)]
    return turns[1:]


async def _asked(client: httpx.AsyncClient) -> None:
    answer = (await client.post("/v1/runs", json=REQUEST, headers={"Prefer": "wait=60"})).json()
    if answer.get("state") != "completed":
        raise RuntimeError(f"a run of the benchmark failed: {answer}")


async def _spent(house: House) -> Mapping[str, float]:
    """What a run took of each process and of the database, over so many runs."""
    async with httpx.AsyncClient(base_url=f"http://{house.http}", timeout=60) as client:
        before = await house.used()
        await per_second(lambda: _asked(client), callers=CALLERS, count=RUNS)
        after = await house.used()
    return {name: (after[name] - before[name]) / RUNS for name in before}


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

"""Closed-loop rate: callers that each wait for one run before they start the next; the highest rate possible."""

from contextlib import AsyncExitStack

from tests.bench.http_client import Connection, connected
from tests.bench.load import per_second
from tests.bench.open_loop.load_generator import REQUEST, WAIT_SECONDS
from tests.bench.separate_processes import Deployment

CALLERS, RUNS = 64, 400


async def closed_loop_rate(deployment: Deployment) -> float:
    """Runs per second of CALLERS callers."""
    async with AsyncExitStack() as stack:
        free = [await stack.enter_async_context(connected(deployment.port)) for _ in range(CALLERS)]
        return await per_second(lambda: _run(free), callers=CALLERS, count=RUNS)


async def _run(free: list[Connection]) -> None:
    connection = free.pop()
    await connection.post("/v1/runs", REQUEST, f"wait={WAIT_SECONDS}")
    free.append(connection)

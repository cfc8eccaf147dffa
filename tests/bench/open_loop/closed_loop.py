"""What callers get that each wait for one run before they ask for the next: what a house can do at most."""

from contextlib import AsyncExitStack

from tests.bench.http_client import Connection, connected
from tests.bench.load import per_second
from tests.bench.open_loop.load_generator import REQUEST, WAIT_SECONDS
from tests.bench.separate_processes import House

CALLERS, RUNS = 64, 400


async def pace(house: House) -> float:
    """Runs a second."""
    async with AsyncExitStack() as stack:
        free = [await stack.enter_async_context(connected(house.port)) for _ in range(CALLERS)]
        return await per_second(lambda: _ask(free), callers=CALLERS, count=RUNS)


async def _ask(free: list[Connection]) -> None:
    line = free.pop()
    await line.post("/v1/runs", REQUEST, f"wait={WAIT_SECONDS}")
    free.append(line)

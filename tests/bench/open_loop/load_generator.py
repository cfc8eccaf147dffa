"""Starts runs at a gateway at random times that do not depend on the replies.

Usage: python -m tests.bench.open_loop.load_generator PORT RATE SECONDS SEED.

It runs in a separate process, with higher priority where permitted, so that the load it generates does not suffer from
the load it causes. It prints its samples as JSON.
"""

import asyncio
import json
import os
import sys
import time
from contextlib import suppress
from dataclasses import asdict

from tests.bench.http_client import Connection, open_connection
from tests.bench.open_loop.samples import Point, Sample
from tests.bench.open_loop.schedule import poisson
from tests.bench.processes import printed

REQUEST = json.dumps({"request": "Summarize: one two three.", "bypass_memo": True}).encode()
WAIT_SECONDS = 60
NICENESS = -10
LEAD_SECONDS = 0.2
"""Delay of the schedule, so that the event loop runs before the first request is due."""


class LoadGenerator:
    """Sends each request on an idle connection, or on a new one."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._free: list[Connection] = []

    async def samples(self, moments: list[float]) -> list[Sample]:
        """Sends a request at each of these seconds from now, and returns once all are answered."""
        started, requests = time.perf_counter() + LEAD_SECONDS, list[asyncio.Task[Sample]]()
        for due in moments:
            await asyncio.sleep(started + due - time.perf_counter())
            requests.append(asyncio.create_task(self._run(started, due)))
        return list(await asyncio.gather(*requests))

    async def _run(self, started: float, due: float) -> Sample:
        sent = time.perf_counter() - started
        connection = self._free.pop() if self._free else await open_connection(self._port)
        answer = await connection.response("/v1/runs", REQUEST, f"wait={WAIT_SECONDS}")
        ended = time.perf_counter() - started
        self._free.append(connection)
        if answer.status == 429:
            return Sample(due, sent, ended, "refused", has_retry_after="retry-after" in answer.headers)
        run = json.loads(answer.body)
        if answer.status == 200 and run["state"] == "completed":
            return Sample(due, sent, ended)
        return Sample(due, sent, ended, "failed", failure=f"{answer.status} {run.get('code') or run['state']}")


async def offered(port: int, rate: float, seconds: float, seed: int) -> Point:
    """Offers runs at this rate to a gateway, from a load generator process.

    Raises:
        RuntimeError: the load generator failed.
    """
    samples = json.loads(await printed(__name__, port, rate, seconds, seed))
    return Point([Sample(**each) for each in samples], seconds)


async def main(port: int, rate: float, seconds: float, seed: int) -> None:
    with suppress(PermissionError):
        os.nice(NICENESS)
    samples = await LoadGenerator(port).samples(list(poisson(rate, seconds, seed)))
    print(json.dumps([asdict(sample) for sample in samples]))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])))

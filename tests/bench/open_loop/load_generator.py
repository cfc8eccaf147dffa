"""Starts runs at a gateway at random times that do not depend on the replies.

Usage: python -m tests.bench.open_loop.load_generator PORT RATE SECONDS SEED.

A process of its own, which comes first at the processor where it may: those who ask are not of the house. It prints its
samples as JSON.
"""

import asyncio
import json
import os
import sys
import time
from contextlib import suppress
from dataclasses import asdict

from tests.bench.http_client import Connection, opened
from tests.bench.open_loop.samples import Point, Sample
from tests.bench.open_loop.schedule import poisson
from tests.bench.processes import printed

REQUEST = json.dumps({"request": "Summarize: one two three.", "bypass_memo": True}).encode()
WAIT_SECONDS = 60
FIRST = -10
"""How nice it is to other processes."""
AHEAD_SECONDS = 0.2
"""Until the first can be due: the loop runs by then."""


class Generator:
    """Sends each request on a connection that is free, a new one if there is none."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._free: list[Connection] = []

    async def samples(self, moments: list[float]) -> list[Sample]:
        """Returns once all are answered."""
        begun, asked = time.perf_counter() + AHEAD_SECONDS, list[asyncio.Task[Sample]]()
        for due in moments:
            await asyncio.sleep(begun + due - time.perf_counter())
            asked.append(asyncio.create_task(self._ask(begun, due)))
        return list(await asyncio.gather(*asked))

    async def _ask(self, begun: float, due: float) -> Sample:
        sent = time.perf_counter() - begun
        line = self._free.pop() if self._free else await opened(self._port)
        answer = await line.answered("/v1/runs", REQUEST, f"wait={WAIT_SECONDS}")
        ended = time.perf_counter() - begun
        self._free.append(line)
        if answer.status == 429:
            return Sample(due, sent, ended, "refused", told="retry-after" in answer.headers)
        run = json.loads(answer.body)
        if answer.status == 200 and run["state"] == "completed":
            return Sample(due, sent, ended)
        return Sample(due, sent, ended, "failed", why=f"{answer.status} {run.get('code') or run['state']}")


async def offered(port: int, rate: float, seconds: float, seed: int) -> Point:
    """What a gateway makes of so many runs a second, asked for by another process.

    Raises:
        RuntimeError: that process ended badly.
    """
    samples = json.loads(await printed(__name__, port, rate, seconds, seed))
    return Point([Sample(**each) for each in samples], seconds)


async def main(port: int, rate: float, seconds: float, seed: int) -> None:
    with suppress(PermissionError):
        os.nice(FIRST)
    samples = await Generator(port).samples(list(poisson(rate, seconds, seed)))
    print(json.dumps([asdict(sample) for sample in samples]))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])))

"""Sends a mix of all kinds of requests to a gateway for a long time.

Usage: python -m tests.bench.open_loop.mixed_load PORT RATE SECONDS.

It prints as JSON how often each thing was asked, and how often what came was not what should have come, and why mostly.
"""

import asyncio
import json
import random
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from tests.bench.local_stack import TASK
from tests.bench.open_loop.schedule import poisson
from tests.bench.processes import printed
from tests.bench.separate_processes import WRONG

SEED = 9
PATIENCE_SECONDS = 60
WAIT = {"Prefer": f"wait={PATIENCE_SECONDS}"}
WORDS = "Summarize: one two three."
ITEMS = 5
TURNS = 8
"""So long a conversation goes on."""
SHARES = {"one": 50, "four": 15, "failing": 10, "follow": 10, "upload": 8, "cancelled": 5, "batch": 2}
"""Of a hundred requests."""


@dataclass(frozen=True)
class Mixed:
    """What became of it all."""

    asked: Mapping[str, int]
    """How often, by what."""
    wrong: Mapping[str, int]
    """By what was wrong."""


class Mix:
    """Each method asks for one thing, and says whether what came is what should have come."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http
        self._last, self._turns = "", 0

    async def one(self) -> bool:
        return await self._ends("completed", request=WORDS)

    async def four(self) -> bool:
        first = {"id": 1, "task": TASK, "arguments": {"text": "one two three"}}
        more = [{"id": each, "task": TASK, "arguments": {"text": {"task_id": 1, "output": "text"}}} for each in (2, 3)]
        last = {"id": 4, "task": TASK, "arguments": {"text": {"task_id": 2, "output": "text"}}}
        return await self._ends("completed", plan=[first, *more, last])

    async def failing(self) -> bool:
        return await self._ends("failed", plan=[{"id": 1, "task": TASK, "arguments": {"text": WRONG}}])

    async def follow(self) -> bool:
        """Goes on with a conversation, or begins the next."""
        parent = {"parent_run_id": self._last} if self._turns % TURNS else {}
        self._turns += 1
        run = await self._ran(request=WORDS, **parent)
        self._last = run["run_id"]
        return bool(run["state"] == "completed")

    async def upload(self) -> bool:
        """A file that nobody has sent before, and that is deleted in the end."""
        files = {"file": ("words.txt", random.randbytes(8_192).hex().encode(), "text/plain")}
        kept = (await self._http.post("/v1/files", files=files, data={"purpose": "user_data"})).json()
        argument = {"input": "words"}
        inputs = [{"name": "words", "file_id": kept["id"]}]
        done = await self._ends(
            "completed", plan=[{"id": 1, "task": TASK, "arguments": {"text": argument}}], inputs=inputs
        )
        return done and (await self._http.delete(f"/v1/files/{kept['id']}")).is_success

    async def cancelled(self) -> bool:
        """Goes away at the first word."""
        spec, headers = {"request": WORDS, "on_disconnect": "cancel"}, {"Accept": "text/event-stream"}
        async with self._http.stream("POST", "/v1/runs", json=spec, headers=headers) as reply:
            return any([bool(line) async for line in _first(reply)])

    async def batch(self) -> bool:
        items = [{"name": str(each), "inputs": [{"name": "note", "text": f"note {each}"}]} for each in range(ITEMS)]
        plan = [{"id": 1, "task": TASK, "arguments": {"text": {"input": "note"}}}]
        begun = await self._http.post("/v1/batches", json={"plan": plan, "items": items, "bypass_memo": True})
        async with self._http.stream("GET", f"{begun.headers['location']}/events") as reply:
            told = [line async for line in reply.aiter_lines() if line.startswith("data:")]
        return bool(json.loads(told[-1].removeprefix("data:"))["state"] == "completed")

    async def _ends(self, state: str, **spec: Any) -> bool:
        return bool((await self._ran(**spec))["state"] == state)

    async def _ran(self, **spec: Any) -> Any:
        reply = await self._http.post("/v1/runs", json={"bypass_memo": True, **spec}, headers=WAIT)
        return reply.raise_for_status().json()


async def _first(reply: httpx.Response) -> AsyncIterator[str]:
    async for line in reply.aiter_lines():
        yield line
        return


async def mixed(port: int, rate: float, seconds: float) -> Mixed:
    """What became of so many requests a second, asked for by another process.

    Raises:
        RuntimeError: that process ended badly.
    """
    return Mixed(**json.loads(await printed(__name__, port, rate, seconds)))


async def main(port: int, rate: float, seconds: float) -> None:
    asked, wrong, chance = Counter[str](), Counter[str](), random.Random(SEED)

    async def ask(kind: str, call: Callable[[], Awaitable[bool]]) -> None:
        try:
            if not await call():
                wrong[f"{kind} ended in another way"] += 1
        except httpx.HTTPStatusError as error:
            wrong[f"{kind} {error.response.status_code}"] += 1
        except (httpx.HTTPError, KeyError, IndexError, ValueError) as error:
            wrong[f"{kind} {error!r}"] += 1

    limits, begun = httpx.Limits(max_connections=None), time.perf_counter()
    async with (
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_SECONDS + 10, limits=limits) as http,
        asyncio.TaskGroup() as group,
    ):
        mix = Mix(http)
        for due in poisson(rate, seconds, SEED):
            await asyncio.sleep(begun + due - time.perf_counter())
            if time.perf_counter() - begun > seconds:
                break  # where the machine had no processor for this process, it asks for less, not for longer
            (kind,) = chance.choices(list(SHARES), list(SHARES.values()))
            asked[kind] += 1
            group.create_task(ask(kind, getattr(mix, kind)))
    print(json.dumps({"asked": asked, "wrong": wrong}))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])))

"""Sends a mix of all kinds of requests to a gateway for a long time.

Usage: python -m tests.bench.open_loop.mixed_load PORT RATE SECONDS.

It prints as JSON the numbers of requests by kind, and of wrong results by cause.
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
from tests.bench.separate_processes import REJECTED_TEXT

SEED = 9
TIMEOUT_SECONDS = 60
WAIT = {"Prefer": f"wait={TIMEOUT_SECONDS}"}
REQUEST_TEXT = "Summarize: one two three."
ITEMS = 5
TURNS = 8
"""Turns of a conversation."""
SHARES = {"one": 50, "four": 15, "failing": 10, "follow": 10, "upload": 8, "cancelled": 5, "batch": 2}
"""Number of each kind among a hundred requests."""


@dataclass(frozen=True)
class MixedResult:
    """Result of a mixed load.

    Attributes:
        requests: their number by kind.
        wrong: wrong results by cause.
    """

    requests: Mapping[str, int]
    wrong: Mapping[str, int]


class RequestMix:
    """Methods that each make one kind of request, and return whether its result was as expected.

    Args:
        http: client of the gateway.
    """

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http
        self._last, self._turns = "", 0

    async def one(self) -> bool:
        return await self._ends("completed", request=REQUEST_TEXT)

    async def four(self) -> bool:
        first = {"id": 1, "task": TASK, "arguments": {"text": "one two three"}}
        more = [{"id": each, "task": TASK, "arguments": {"text": {"task_id": 1, "output": "text"}}} for each in (2, 3)]
        last = {"id": 4, "task": TASK, "arguments": {"text": {"task_id": 2, "output": "text"}}}
        return await self._ends("completed", plan=[first, *more, last])

    async def failing(self) -> bool:
        return await self._ends("failed", plan=[{"id": 1, "task": TASK, "arguments": {"text": REJECTED_TEXT}}])

    async def follow(self) -> bool:
        """Continues a conversation, or starts the next."""
        parent = {"parent_run_id": self._last} if self._turns % TURNS else {}
        self._turns += 1
        run = await self._run(request=REQUEST_TEXT, **parent)
        self._last = run["run_id"]
        return bool(run["state"] == "completed")

    async def upload(self) -> bool:
        """Uploads a new file, uses it in a run, and deletes it."""
        files = {"file": ("words.txt", random.randbytes(8_192).hex().encode(), "text/plain")}
        stored = (await self._http.post("/v1/files", files=files, data={"purpose": "user_data"})).json()
        argument = {"input": "words"}
        inputs = [{"name": "words", "file_id": stored["id"]}]
        done = await self._ends(
            "completed", plan=[{"id": 1, "task": TASK, "arguments": {"text": argument}}], inputs=inputs
        )
        return done and (await self._http.delete(f"/v1/files/{stored['id']}")).is_success

    async def cancelled(self) -> bool:
        """Disconnects after the first line of the event stream, which cancels the run."""
        spec, headers = {"request": REQUEST_TEXT, "on_disconnect": "cancel"}, {"Accept": "text/event-stream"}
        async with self._http.stream("POST", "/v1/runs", json=spec, headers=headers) as reply:
            return any([bool(line) async for line in _first(reply)])

    async def batch(self) -> bool:
        items = [{"name": str(each), "inputs": [{"name": "note", "text": f"note {each}"}]} for each in range(ITEMS)]
        plan = [{"id": 1, "task": TASK, "arguments": {"text": {"input": "note"}}}]
        started = await self._http.post(
            "/v1/pipeline-batches", json={"plan": plan, "items": items, "bypass_memo": True}
        )
        async with self._http.stream("GET", f"{started.headers['location']}/events") as reply:
            events = [line async for line in reply.aiter_lines() if line.startswith("data:")]
        return bool(json.loads(events[-1].removeprefix("data:"))["state"] == "completed")

    async def _ends(self, state: str, **spec: Any) -> bool:
        return bool((await self._run(**spec))["state"] == state)

    async def _run(self, **spec: Any) -> Any:
        reply = await self._http.post("/v1/runs", json={"bypass_memo": True, **spec}, headers=WAIT)
        return reply.raise_for_status().json()


async def _first(reply: httpx.Response) -> AsyncIterator[str]:
    async for line in reply.aiter_lines():
        yield line
        return


async def mixed_load(port: int, rate: float, seconds: float) -> MixedResult:
    """Sends a mixed load from another process.

    Raises:
        RuntimeError: that process failed.
    """
    return MixedResult(**json.loads(await printed(__name__, port, rate, seconds)))


async def main(port: int, rate: float, seconds: float) -> None:
    requests, wrong, rng = Counter[str](), Counter[str](), random.Random(SEED)

    async def send(kind: str, call: Callable[[], Awaitable[bool]]) -> None:
        try:
            if not await call():
                wrong[f"{kind} had another result"] += 1
        except httpx.HTTPStatusError as error:
            wrong[f"{kind} {error.response.status_code}"] += 1
        except (httpx.HTTPError, KeyError, IndexError, ValueError) as error:
            wrong[f"{kind} {error!r}"] += 1

    limits, started = httpx.Limits(max_connections=None), time.perf_counter()
    async with (
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=TIMEOUT_SECONDS + 10, limits=limits) as http,
        asyncio.TaskGroup() as group,
    ):
        mix = RequestMix(http)
        for due in poisson(rate, seconds, SEED):
            await asyncio.sleep(started + due - time.perf_counter())
            if time.perf_counter() - started > seconds:
                break  # if this process gets too little CPU it sends fewer requests, in the same time
            (kind,) = rng.choices(list(SHARES), list(SHARES.values()))
            requests[kind] += 1
            group.create_task(send(kind, getattr(mix, kind)))
    print(json.dumps({"requests": requests, "wrong": wrong}))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])))

"""The five services as in a cluster: a process each, beside a database and an expert that does nothing.

Requests are planned, models chosen and answers composed without an LLM.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import asyncpg
import httpx

from protos.hugginggpt.v1.artifact_pb2 import Value
from protos.hugginggpt.v1.expert_pb2 import InferRequest
from services.common.errors import InvalidRequest
from tests.bench.accounts import account, accounts, cpu_seconds, parent
from tests.bench.load import per_second
from tests.bench.local_stack import TASK
from tests.bench.processes import Running
from tests.bench.service_processes import rooms
from tests.fakes import FakeExpert, card

REQUEST = {"request": "Summarize: one two three.", "bypass_memo": True}
WRONG = "This cannot be done."


@dataclass(frozen=True)
class House:
    """The five services and the database they share."""

    rooms: Mapping[str, Running]
    http: str
    database: str

    @property
    def port(self) -> int:
        return int(self.http.rpartition(":")[2])

    async def used(self) -> dict[str, float]:
        """Milliseconds, commits and kilobytes since it all began."""
        postmaster, commits, size = await _database(self.database)
        used = {name: 1000 * running.cpu_seconds() for name, running in self.rooms.items()}
        return {**used, "postgres": 1000 * _family_seconds(postmaster), "commits": commits, "kept_kb": size / 1000}

    async def spent(self, *, callers: int, runs: int) -> dict[str, float]:
        """What a run of one task takes, as `used` has it, in the mean of so many."""
        async with httpx.AsyncClient(base_url=f"http://{self.http}", timeout=60) as client:
            before = await self.used()
            await per_second(lambda: _asked(client), callers=callers, count=runs)
            after = await self.used()
        return {name: (after[name] - before[name]) / runs for name in before}


@asynccontextmanager
async def standing(home: Path, url: str) -> AsyncIterator[House]:
    """Stands once the task of an expert that does nothing can be asked for; it refuses the text WRONG."""
    expert = FakeExpert("noop", [card("noop", TASK)], answer=_nothing)
    told = {"orchestrator": {"journal": url}, "gateway": {"database": url}}
    async with expert.serving() as address, rooms(home, address, told) as (processes, http):
        yield House(processes, http, url)


async def _asked(client: httpx.AsyncClient) -> None:
    answer = (await client.post("/v1/runs", json=REQUEST, headers={"Prefer": "wait=60"})).json()
    if answer.get("state") != "completed":
        raise RuntimeError(f"a run of the benchmark failed: {answer}")


async def _nothing(request: InferRequest) -> Mapping[str, Value]:
    if request.inputs["text"].text == WRONG:
        raise InvalidRequest("the text cannot be used", remedy="send another", port="text")
    return {"text": request.inputs["text"]}


async def _database(url: str) -> tuple[int, int, int]:
    """Its first process, and how many commits and bytes it has seen so far."""
    connection = await asyncpg.connect(url)
    try:
        ((commits, size, backend),) = await connection.fetch(
            "SELECT xact_commit, pg_database_size(current_database()), pg_backend_pid() "
            "FROM pg_stat_database WHERE datname = current_database()"
        )
        return parent(account(backend)), commits, size
    finally:
        await connection.close()


def _family_seconds(first: int) -> float:
    """Processor time of a process, of those it began, and of those of them that have ended."""
    began = [cpu_seconds(found) for _, found in accounts() if parent(found) == first]
    return cpu_seconds(account(first), ended=True) + sum(began)

"""A deployment as in a cluster: one process per service, PostgreSQL, and an expert that returns at once.

Planning, model selection and the response use no LLM.
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
from tests.bench.load import per_second
from tests.bench.local_stack import TASK
from tests.bench.proc_stat import all_stats, cpu_seconds, parent_id, process_stat
from tests.bench.processes import Running
from tests.bench.service_processes import start_services
from tests.fakes import FakeExpert, card

REQUEST = {"request": "Summarize: one two three.", "bypass_memo": True}
REJECTED_TEXT = "This cannot be done."
"""The expert refuses this input."""


@dataclass(frozen=True)
class Deployment:
    """The service processes and the database they share.

    Attributes:
        processes: by service name.
        http: host:port of the gateway's HTTP API.
        database: URL.
    """

    processes: Mapping[str, Running]
    http: str
    database: str

    @property
    def port(self) -> int:
        return int(self.http.rpartition(":")[2])

    async def used(self) -> dict[str, float]:
        """CPU milliseconds by service and of PostgreSQL, commits, and kilobytes of the database, since the start."""
        postmaster, commits, size = await _database(self.database)
        used = {name: 1000 * running.cpu_seconds() for name, running in self.processes.items()}
        return {**used, "postgres": 1000 * _tree_seconds(postmaster), "commits": commits, "kept_kb": size / 1000}

    async def spent(self, *, callers: int, runs: int) -> dict[str, float]:
        """Mean increase of each value of `used` per run of one task."""
        async with httpx.AsyncClient(base_url=f"http://{self.http}", timeout=60) as client:
            before = await self.used()
            await per_second(lambda: _run(client), callers=callers, count=runs)
            after = await self.used()
        return {name: (after[name] - before[name]) / runs for name in before}


@asynccontextmanager
async def start_deployment(home: Path, url: str) -> AsyncIterator[Deployment]:
    """Starts the services and an expert that returns its input at once, and refuses REFUSED_TEXT.

    Args:
        home: folder for logs.
        url: of the database.
    """
    expert = FakeExpert("noop", [card("noop", TASK)], answer=_echo)
    settings = {"orchestrator": {"journal": url}, "gateway": {"database": url}}
    async with expert.serving() as address, start_services(home, address, settings) as (processes, http):
        yield Deployment(processes, http, url)


async def _run(client: httpx.AsyncClient) -> None:
    answer = (await client.post("/v1/runs", json=REQUEST, headers={"Prefer": "wait=60"})).json()
    if answer.get("state") != "completed":
        raise RuntimeError(f"a run of the benchmark failed: {answer}")


async def _echo(request: InferRequest) -> Mapping[str, Value]:
    if request.inputs["text"].text == REJECTED_TEXT:
        raise InvalidRequest("the text cannot be used", remedy="send another", port="text")
    return {"text": request.inputs["text"]}


async def _database(url: str) -> tuple[int, int, int]:
    """Process id of the postmaster, number of commits, and size of the database in bytes."""
    connection = await asyncpg.connect(url)
    try:
        ((commits, size, backend),) = await connection.fetch(
            "SELECT xact_commit, pg_database_size(current_database()), pg_backend_pid() "
            "FROM pg_stat_database WHERE datname = current_database()"
        )
        return parent_id(process_stat(backend)), commits, size
    finally:
        await connection.close()


def _tree_seconds(parent: int) -> float:
    """CPU time of a process and its children, including children that have ended."""
    children = [cpu_seconds(stat) for _, stat in all_stats() if parent_id(stat) == parent]
    return cpu_seconds(process_stat(parent), ended=True) + sum(children)

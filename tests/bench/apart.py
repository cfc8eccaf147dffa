"""The five services as in a cluster: a process each, beside a database and an expert that does nothing.

Requests are planned, models chosen and answers composed without an LLM.
"""

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import asyncpg

from protos.hugginggpt.v1.expert_pb2 import InferRequest
from protos.hugginggpt.v1.types_pb2 import Value
from services.ports import free
from services.runtime.errors import InvalidRequest
from tests.bench.house import TASK
from tests.bench.processes import Running, service
from tests.fakes import FakeExpert, card

ROOMS = ("gateway", "planner", "selector", "orchestrator", "responder")
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


@asynccontextmanager
async def standing(home: Path, url: str) -> AsyncIterator[House]:
    """Stands once the task of an expert that does nothing can be asked for; it refuses the text WRONG."""
    async with AsyncExitStack() as stack:

        async def start(module: str, **settings: str) -> Running:
            prefix = module.rpartition(".")[2].upper()
            return await stack.enter_async_context(service(module, prefix, home, **settings))

        expert = await stack.enter_async_context(FakeExpert("noop", [card("noop", TASK)], answer=_nothing).serving())
        selector = await start("services.selector", experts=expert)
        planner = await start("services.planner", selector=selector.address)
        responder = await start("services.responder")
        peers = {"planner": planner.address, "selector": selector.address, "responder": responder.address}
        orchestrator = await start("services.orchestrator", journal=url, **peers)
        http = free("127.0.0.1:0", option="")
        doors = {"orchestrator": orchestrator.address, "selector": selector.address, "http_listen": http}
        gateway = await start("gateway", database=url, **doors)
        started = (gateway, planner, selector, orchestrator, responder)
        yield House(dict(zip(ROOMS, started, strict=True)), http, url)


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

"""Startup waits for absent dependencies: logs each attempt, is not ready meanwhile, and then completes."""

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest

from protos.hugginggpt.internal.v1 import responder_pb2
from services.common import server as runtime
from services.common.database.migrations import CREATE_VERSIONS, SET_VERSION
from services.common.probe import health_error
from services.orchestrator.journal.schema import MIGRATIONS, SCHEMA
from tests.support import s3
from tests.support.failed_starts import StartedService, start_service
from tests.support.postgres import PASSWORD, PostgresServer, running_server
from tests.support.required_programs import require

pytestmark = pytest.mark.slow

RESPONDER = responder_pb2.DESCRIPTOR.services_by_name["ResponderService"]


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    require("postgres")
    with running_server(durable=False) as server:
        yield server


async def unready(address: str) -> str:
    return await asyncio.to_thread(health_error, address, "readiness")


async def becomes_ready(process: StartedService, address: str) -> None:
    await process.until("serving")
    assert await unready(address) == ""
    assert process.errors == []


async def test_start_waits_for_the_database(server: PostgresServer, tmp_path: Path, unused_tcp_port: int) -> None:
    await asyncio.to_thread(server.stop)
    address = f"127.0.0.1:{unused_tcp_port}"
    environment = {"ORCHESTRATOR_JOURNAL": server.url, "HEALTH_LISTEN": address}
    async with start_service(tmp_path, "services.orchestrator", **environment) as process:
        for _ in range(2):
            waiting = await process.until("waiting for dependency", dependency="the database")
            assert "does not answer" in waiting["error"]
            assert waiting["remedy"]
        assert await unready(address)
        await asyncio.to_thread(server.start)
        await becomes_ready(process, address)
        assert PASSWORD not in str(process.log)


@pytest.mark.parametrize("module", ["gateway", "experts.lite"])
async def test_start_waits_for_the_bucket(module: str, s3_endpoint: str, tmp_path: Path, unused_tcp_port: int) -> None:
    address, name = f"127.0.0.1:{unused_tcp_port}", f"late-{uuid4().hex[:12]}"
    environment = {**s3.credentials(s3_endpoint), "ARTIFACTS_URL": f"s3://{name}/artifacts", "HEALTH_LISTEN": address}
    async with start_service(tmp_path, module, **environment) as process:
        waiting = await process.until("waiting for dependency", dependency="the artifact store")
        assert waiting["error"] == "the artifact store's bucket does not exist"
        assert await unready(address)
        await asyncio.to_thread(s3.create_bucket, s3_endpoint, name)
        await becomes_ready(process, address) if module == "gateway" else await process.until("ready")


async def test_start_waits_for_the_artifact_store(s3_endpoint: str, tmp_path: Path, unused_tcp_port: int) -> None:
    environment = {
        **s3.credentials(f"http://127.0.0.1:{unused_tcp_port}"),
        "ARTIFACTS_URL": "s3://hugginggpt/artifacts",
    }
    async with start_service(tmp_path, "services.orchestrator", **environment) as process:
        waiting = await process.until("waiting for dependency", dependency="the artifact store")
        assert "does not answer" in waiting["error"]


@pytest.mark.parametrize(
    ("module", "setting", "name"),
    [
        ("services.planner", "PLANNER_SELECTOR", "selector"),
        ("services.orchestrator", "ORCHESTRATOR_RESPONDER", "responder"),
        ("gateway", "GATEWAY_ORCHESTRATOR", "orchestrator"),
    ],
)
async def test_unreachable_peer_is_logged_until_it_is_reachable(
    module: str, setting: str, name: str, tmp_path: Path, unused_tcp_port: int
) -> None:
    address = f"127.0.0.1:{unused_tcp_port}"
    async with start_service(tmp_path, module, **{setting: address}) as process:
        missing = await process.until("peer unreachable", peer=f"the {name} at {address}")
        assert "Connection refused" in missing["error"]
        assert missing["remedy"]
        async with runtime.serving(lambda _: None, RESPONDER, listen=address):
            await process.until("peer reachable", peer=f"the {name} at {address}")


async def test_planner_is_ready_once_it_has_the_task_catalogue(
    tmp_path: Path, unused_tcp_port_factory: Callable[[], int]
) -> None:
    address, selector = (f"127.0.0.1:{unused_tcp_port_factory()}" for _ in range(2))
    environment = {"PLANNER_SELECTOR": selector, "HEALTH_LISTEN": address}
    async with start_service(tmp_path, "services.planner", **environment) as planner:
        await planner.until("serving")
        assert await unready(address) == f"{address}: readiness is NOT_SERVING"
        async with start_service(tmp_path, "services.selector", SELECTOR_LISTEN=selector):
            await planner.until("catalogue loaded")
            assert await unready(address) == ""


async def test_waiting_process_can_be_stopped(tmp_path: Path) -> None:
    environment = {"GATEWAY_DATABASE": "postgresql://me@127.0.0.1:9/gateway"}
    async with start_service(tmp_path, "gateway", **environment) as process:
        await process.until("waiting for dependency")
        process.process.terminate()
        assert await process.end() == 0
        assert process.errors == []


async def test_database_of_a_later_version_is_not_changed(tmp_path: Path) -> None:
    journal = tmp_path / "journal.sqlite"
    with closing(sqlite3.connect(journal)) as database, database:
        database.execute(CREATE_VERSIONS)
        database.execute(SET_VERSION, (SCHEMA, len(MIGRATIONS) + 2))
    async with start_service(tmp_path, "services.orchestrator", ORCHESTRATOR_JOURNAL=str(journal)) as process:
        assert await process.end() == 1
        (complaint,) = process.errors
        assert f"this program supports {len(MIGRATIONS)}" in complaint["error"]
        assert complaint["remedy"].startswith("run the newer program")

"""Batches of any length are received, interrupted and read in bounded memory."""

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, closing
from pathlib import Path

import httpx
import pytest

from protos.hugginggpt.v1.artifact_pb2 import Value
from protos.hugginggpt.v1.expert_pb2 import InferRequest
from services.orchestrator.__main__ import orchestrator as serve_orchestrator
from services.orchestrator.settings import Settings
from tests.service.test_gateway_slow_readers import peak_until_released, send_request
from tests.support.orchestrator import ScriptedPeers, wait_until_cancelled
from tests.support.pipeline_gateway import NDJSON, PINNED, PipelineGateway, lines, note, notes, start_pipeline_gateway
from tests.support.watched_gateway import watched_gateway

MB = 2**20
ITEMS = 100_000
HELD = 24 * MB
"""Maximum growth of the gateway's memory in bytes while it transfers ITEMS items."""

READERS, ANSWERS = 12, 60
ANSWER = "x" * 200_000
SECONDS = 120.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
async def pipeline_gateway(peers: ScriptedPeers, settings: Settings, tmp_path: Path) -> AsyncIterator[PipelineGateway]:
    async with start_pipeline_gateway(peers, settings, tmp_path) as pipeline_gateway:
        yield pipeline_gateway


def stored_items(settings: Settings) -> int:
    """Rows of batches and items in the journal."""
    count = "SELECT (SELECT COUNT(*) FROM batches) + (SELECT COUNT(*) FROM batch_items)"
    with closing(sqlite3.connect(settings.journal)) as journal:
        rows: int = journal.execute(count).fetchone()[0]
    return rows


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while not condition():  # noqa: ASYNC110  # a file of another process reports no changes
            await asyncio.sleep(0.05)


async def test_batch_of_100_000_items_is_accepted(peers: ScriptedPeers, settings: Settings, tmp_path: Path) -> None:
    peers.infer["model"] = lambda _: wait_until_cancelled(asyncio.Event(), asyncio.Event())

    async def body() -> AsyncIterator[bytes]:
        yield lines({"plan": PINNED, "max_at_once": 1})
        for begin in range(0, ITEMS, 1000):
            yield lines(*(note(f"note {number}") for number in range(begin, begin + 1000)))

    async with (
        serve_orchestrator(settings) as running,
        watched_gateway(tmp_path, f"127.0.0.1:{running.port}") as gateway,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{gateway.http_port}", trust_env=False, timeout=SECONDS) as client,
    ):
        before, most = await gateway.resources(), 0
        sending = asyncio.create_task(client.post("/v1/pipeline-batches", content=body(), headers=NDJSON))
        while not (await asyncio.wait([sending], timeout=0.5))[0]:
            most = max(most, (await gateway.resources()).bytes)
        accepted = sending.result()
        assert accepted.status_code == 202, accepted.text
        path = f"/v1/pipeline-batches/{accepted.json()['batch_id']}"
        assert accepted.json()["counts"]["total"] == ITEMS
        read = 0
        async with client.stream("GET", f"{path}/results") as response:
            async for line in response.aiter_lines():
                read += 1
                if read % 20_000 == 0:
                    assert json.loads(line)["index"] == read
                    most = max(most, (await gateway.resources()).bytes)
        assert read == ITEMS
        assert (await client.get(f"{path}/summary")).json()["counts"]["total"] == ITEMS
        await client.post(f"{path}/cancel")
    assert most - before.bytes <= HELD


async def test_disconnected_upload_stores_no_batch(pipeline_gateway: PipelineGateway, settings: Settings) -> None:
    port = pipeline_gateway.gateway.http_port
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST /v1/pipeline-batches HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n"
    writer.write(f"{head}content-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n".encode())
    content = lines({"plan": PINNED}, *notes(2_000))
    writer.write(b"%x\r\n%s\r\n" % (len(content), content))
    await writer.drain()
    await until(lambda: stored_items(settings) > 1_000)
    writer.transport.abort()
    await until(lambda: stored_items(settings) == 0)
    assert reader.at_eof() or not await reader.read()
    assert (await pipeline_gateway.http.get("/v1/pipeline-batches")).json()["data"] == []


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{", "line 1002 is not JSON"),
        (b'{"name": 1}', "line 1002.name is not a string"),
        (b"[]", "line 1002 is not a JSON object"),
        (b'{"inputs": [{"name": "note"}]}', "line 1002.inputs[0] needs exactly one of"),
        (b'{"inputs": [{"name": "a b", "text": "x"}]}', "line 1002: invalid input name"),
        (b'{"name": "\xff"}', "line 1002 is not UTF-8"),
        (b'{"prompt": "x"}', "line 1002 has an unknown field 'prompt'"),
    ],
)
async def test_malformed_line_stores_no_batch(
    pipeline_gateway: PipelineGateway, settings: Settings, line: bytes, message: str
) -> None:
    content = lines({"plan": PINNED}, *notes(1_000)) + line + b"\n" + lines(*notes(1_000))
    rejected = await pipeline_gateway.http.post("/v1/pipeline-batches", content=content, headers=NDJSON)
    assert rejected.status_code == 400
    assert rejected.json()["remedy"] != ""
    assert rejected.json()["detail"].startswith(message), rejected.text
    await until(lambda: stored_items(settings) == 0)


async def test_stalled_result_readers_use_little_memory(
    peers: ScriptedPeers, settings: Settings, tmp_path: Path
) -> None:
    async def long(_: InferRequest) -> dict[str, Value]:
        return {"text": Value(text=ANSWER)}

    peers.infer["model"] = long
    async with (
        serve_orchestrator(settings) as running,
        watched_gateway(tmp_path, f"127.0.0.1:{running.port}", 2.0) as gateway,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{gateway.http_port}", trust_env=False, timeout=SECONDS) as client,
    ):
        accepted = await client.post(
            "/v1/pipeline-batches", content=lines({"plan": PINNED}, *notes(ANSWERS)), headers=NDJSON
        )
        path = f"/v1/pipeline-batches/{accepted.json()['batch_id']}"
        ending = json.loads((await client.get(f"{path}/events")).text.split("data: ")[-1])
        assert ending["counts"]["completed"] == ANSWERS
        before = await gateway.resources()
        with ExitStack() as readers:
            for _ in range(READERS):
                readers.enter_context(send_request(gateway.http_port, f"{path}/results"))
            await gateway.until(lambda held: held.files >= before.files + READERS, SECONDS)
            most = await peak_until_released(gateway, before.files + 2)
        whole = (await client.get(f"{path}/results")).text.splitlines()
    assert [json.loads(line)["outputs"]["text"] == ANSWER for line in whole] == [True] * ANSWERS
    assert most - before.bytes <= READERS * 4 * MB

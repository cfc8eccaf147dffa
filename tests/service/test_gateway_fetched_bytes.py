"""Fetched bytes count like sent bytes."""

from pathlib import Path

import pytest

from gateway.database import gateway_store
from services.orchestrator.settings import Settings
from tests.support.api_keys import KeyedGateway, bearer
from tests.support.orchestrator import ScriptedPeers
from tests.support.pipeline_gateway import PINNED, start_pipeline_gateway
from tests.support.web_server import reply, web_server

SIZE = 400_000


async def test_fetched_bytes_count_against_the_quota(peers: ScriptedPeers, settings: Settings, tmp_path: Path) -> None:
    given = {"authentication": "keys", "fetch_allow": ("127.0.0.1",)}
    async with (
        web_server({"*": reply(b"x" * SIZE, content_type="text/plain")}) as web,
        start_pipeline_gateway(peers, settings, tmp_path, **given) as pipeline_gateway,
        gateway_store(str(tmp_path / "gateway.sqlite")) as database,
    ):
        token = await KeyedGateway(pipeline_gateway.gateway, database).token("a", limits={"bytes_per_day": 5 * SIZE})
        pipeline_gateway.http.headers.update(bearer(token))
        inputs = [{"name": "note", "url": f"http://127.0.0.1:{web.port}/note.txt"}]
        few = await pipeline_gateway.start([{"inputs": inputs}] * 2)
        many = await pipeline_gateway.start([{"inputs": inputs}] * 30)
        run = await pipeline_gateway.http.post("/v1/runs", json={"plan": PINNED, "inputs": inputs})
        assert few.status_code == 202
        assert many.status_code == 429
        assert run.status_code == 429
        assert {answer.json()["code"] for answer in (many, run)} == {"BYTES_QUOTA"}
        assert len(web.requests) < 20
        assert len((await pipeline_gateway.http.get("/v1/pipeline-batches")).json()["data"]) == 1


async def test_batch_items_share_a_fetch_limit(
    peers: ScriptedPeers, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.core.file_references.BATCH_FACTOR", 2)
    monkeypatch.setattr("gateway.core.batch_items.MAX_CONCURRENT", 1)
    given = {"fetch_allow": ("127.0.0.1",), "files_bytes": SIZE}
    async with (
        web_server({"*": reply(b"x" * SIZE, content_type="text/plain")}) as web,
        start_pipeline_gateway(peers, settings, tmp_path, **given) as pipeline_gateway,
    ):
        inputs = [{"name": "note", "url": f"http://127.0.0.1:{web.port}/note.txt"}]
        batch = await pipeline_gateway.ended(await pipeline_gateway.started([{"inputs": inputs}] * 12))
    assert batch["counts"]["completed"] == 2
    assert batch["counts"]["failed"] == 10

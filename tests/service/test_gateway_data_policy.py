"""Continuations of a run with the data policy local fetch no external URL, over any protocol."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.orchestrator.settings import Settings
from tests.support.mcp_clients import opened_client, text_of
from tests.support.orchestrator import ScriptedPeers
from tests.support.pipeline_gateway import PINNED, PipelineGateway, note, start_pipeline_gateway
from tests.support.web_server import reply, web_server


@pytest.fixture
async def pipeline_gateway(peers: ScriptedPeers, settings: Settings, tmp_path: Path) -> AsyncIterator[PipelineGateway]:
    async with start_pipeline_gateway(peers, settings, tmp_path, fetch_allow=("127.0.0.1",)) as pipeline_gateway:
        yield pipeline_gateway


async def run(pipeline_gateway: PipelineGateway, policy: str) -> str:
    """Id of an ended run with this data policy."""
    spec = {"plan": PINNED, "inputs": [{"name": "note", "text": "x"}], "policy": policy}
    response = await pipeline_gateway.http.post("/v1/runs", json=spec, headers={"prefer": "wait=20"})
    assert response.json()["state"] == "completed", response.text
    return str(response.json()["run_id"])


async def url_errors(pipeline_gateway: PipelineGateway, url: str, run_id: str) -> list[str]:
    """Errors about a URL input of a batch item, a run and a response that continue the run; empty if it was fetched."""
    inputs = [{"name": "note", "url": url}]
    batch_id = await pipeline_gateway.started([{"inputs": inputs}, note("good")], run_id=run_id, policy="open")
    await pipeline_gateway.ended(batch_id)
    item, _ = (await pipeline_gateway.http.get(f"/v1/pipeline-batches/{batch_id}/items")).json()["data"]
    parts = [{"type": "input_text", "text": "and this?"}, {"type": "input_file", "file_url": url}]
    run = {"plan": PINNED, "parent_run_id": run_id, "inputs": inputs, "policy": "open"}
    response = {
        "model": "hugginggpt",
        "previous_response_id": f"resp_{run_id.removeprefix('run_')}",
        "input": [{"role": "user", "content": parts}],
        "background": True,
    }
    answers = [
        await pipeline_gateway.http.post("/v1/runs", json=run),
        await pipeline_gateway.http.post("/v1/responses", json=response),
    ]
    codes = [(answer.json().get("error") or {}).get("code", "") for answer in answers]
    return [item.get("failure", {}).get("reason", ""), *codes]


async def test_continuation_of_local_run_fetches_no_external_url(pipeline_gateway: PipelineGateway) -> None:
    run_id = await run(pipeline_gateway, "local")
    assert await url_errors(pipeline_gateway, "http://192.0.2.1/note.txt", run_id) == ["POLICY"] * 3


async def test_mcp_continuation_of_local_run_fetches_no_external_url(pipeline_gateway: PipelineGateway) -> None:
    continuation = {"request": "and this?", "previous_run_id": await run(pipeline_gateway, "local"), "policy": "open"}
    async with opened_client(pipeline_gateway.gateway.http_port) as agent:
        result = await agent.call_tool("ask", {**continuation, "files": ["http://192.0.2.1/note.txt"]})
    assert "data policy of this request is local, and 192.0.2.1 is an external host" in text_of(result)


async def test_continuation_of_open_run_fetches_urls(pipeline_gateway: PipelineGateway) -> None:
    async with web_server({"*": reply(b"from afar", content_type="text/plain")}) as web:
        url = f"http://127.0.0.1:{web.port}/note.txt"
        assert await url_errors(pipeline_gateway, url, await run(pipeline_gateway, "open")) == [""] * 3
        assert len(web.requests) == 3

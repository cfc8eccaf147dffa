"""What follows on a run that keeps its data in asks for no URL, through whichever door it comes."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.orchestrator.settings import Settings
from tests.support.mcp_clients import opened_client, words
from tests.support.orchestrator import Cast
from tests.support.pipeline_gateway import PINNED, Keeping, note, opened_keeping
from tests.support.web_server import opened_web, reply


@pytest.fixture
async def keeping(cast: Cast, settings: Settings, tmp_path: Path) -> AsyncIterator[Keeping]:
    async with opened_keeping(cast, settings, tmp_path, fetch_allow=("127.0.0.1",)) as keeping:
        yield keeping


async def run(keeping: Keeping, policy: str) -> str:
    """An ended run under that policy."""
    spec = {"plan": PINNED, "inputs": [{"name": "note", "text": "x"}], "policy": policy}
    response = await keeping.http.post("/v1/runs", json=spec, headers={"prefer": "wait=20"})
    assert response.json()["state"] == "completed", response.text
    return str(response.json()["run_id"])


async def told(keeping: Keeping, url: str, run_id: str) -> list[str]:
    """What an item, a run and a response that follow on the run say of a URL; empty where it was fetched."""
    inputs = [{"name": "note", "url": url}]
    batch_id = await keeping.started([{"inputs": inputs}, note("good")], run_id=run_id, policy="open")
    await keeping.ended(batch_id)
    item, _ = (await keeping.http.get(f"/v1/batches/{batch_id}/items")).json()["data"]
    parts = [{"type": "input_text", "text": "and this?"}, {"type": "input_file", "file_url": url}]
    run = {"plan": PINNED, "parent_run_id": run_id, "inputs": inputs, "policy": "open"}
    response = {
        "model": "hugginggpt",
        "previous_response_id": f"resp_{run_id.removeprefix('run_')}",
        "input": [{"role": "user", "content": parts}],
        "background": True,
    }
    answers = [await keeping.http.post("/v1/runs", json=run), await keeping.http.post("/v1/responses", json=response)]
    codes = [(answer.json().get("error") or {}).get("code", "") for answer in answers]
    return [item.get("failure", {}).get("reason", ""), *codes]


async def test_continuation_of_local_run_fetches_no_external_url(keeping: Keeping) -> None:
    run_id = await run(keeping, "local")
    assert await told(keeping, "http://192.0.2.1/note.txt", run_id) == ["POLICY"] * 3


async def test_mcp_continuation_of_local_run_fetches_no_external_url(keeping: Keeping) -> None:
    asked = {"request": "and this?", "previous_run_id": await run(keeping, "local"), "policy": "open"}
    async with opened_client(keeping.doors.http_port) as agent:
        result = await agent.call_tool("ask", {**asked, "files": ["http://192.0.2.1/note.txt"]})
    assert "data policy of this request is local, and 192.0.2.1 is an external host" in words(result)


async def test_continuation_of_open_run_fetches_urls(keeping: Keeping) -> None:
    async with opened_web({"*": reply(b"from afar", content_type="text/plain")}) as web:
        url = f"http://127.0.0.1:{web.port}/note.txt"
        assert await told(keeping, url, await run(keeping, "open")) == [""] * 3
        assert len(web.asked) == 3

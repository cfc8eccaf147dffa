"""Agents with API keys: tenant isolation, uploads with tokens, and logs without content."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from mcp.shared.exceptions import MCPError

from gateway.mcp import upload_tokens
from protos.hugginggpt.v1.event_pb2 import AnswerChunk, RunEvent
from services.common.artifacts.downloads import NAME_CHARACTERS
from tests.fakes.services import ANSWERED
from tests.support.api_keys import KeyedGateway, bearer, start_keyed_gateway
from tests.support.gateway import GatewayUnderTest, start_gateway
from tests.support.mcp_clients import MODES, opened_client, text_of

both_forms = pytest.mark.parametrize("mode", MODES)


@pytest.fixture
async def keyed_gateway(tmp_path: Path) -> AsyncIterator[KeyedGateway]:
    async with start_keyed_gateway(tmp_path) as keyed_gateway:
        yield keyed_gateway


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[GatewayUnderTest]:
    async with start_gateway(tmp_path) as gateway:
        yield gateway


async def test_request_without_key_is_rejected(keyed_gateway: KeyedGateway) -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    accept = {"accept": "application/json, text/event-stream"}
    rejected = await keyed_gateway.gateway.http.post("/mcp", json=message, headers=accept)
    assert rejected.status_code == 401
    assert rejected.json()["code"] == "UNAUTHENTICATED"
    assert "www-authenticate" in rejected.headers


async def test_foreign_origin_is_rejected(gateway: GatewayUnderTest) -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    for headers in ({"origin": "https://evil.example"}, {"host": "evil.example"}):
        rejected = await gateway.http.post("/mcp", json=message, headers=headers)
        assert rejected.status_code in (403, 421)


async def test_get_stream_is_not_offered(gateway: GatewayUnderTest) -> None:
    for method in ("GET", "DELETE"):
        rejected = await gateway.http.request(method, "/mcp", headers={"accept": "text/event-stream"})
        assert rejected.status_code == 405
        assert rejected.headers["allow"] == "POST"


@both_forms
async def test_objects_of_other_tenants_are_not_found(keyed_gateway: KeyedGateway, mode: str) -> None:
    gateway = keyed_gateway.gateway
    gateway.orchestrator.script = [RunEvent(answer_chunk=AnswerChunk(text="a's own. " * 2_000)), ANSWERED[-1]]
    a, b = [bearer(await keyed_gateway.token(name)) for name in "ab"]
    stored = await gateway.http.post("/v1/files", files={"file": ("a.txt", b"of a")}, headers=a)
    file_id, digest = stored.json()["id"], stored.json()["artifact"]["sha256"]
    of_a = f"hugginggpt://artifacts/{digest}"
    async with opened_client(gateway.http_port, headers=a, mode=mode) as agent:
        result = await agent.call_tool("ask", {"request": "x", "files": [file_id, of_a]})
        run_id, answer = result.structured_content["run_id"], result.structured_content["answer_uri"]
        assert [resource.uri for resource in (await agent.list_resources()).resources] == [of_a]
        await agent.read_resource(answer)
        await agent.read_resource(of_a)
    async with opened_client(gateway.http_port, headers=b, mode=mode) as agent:
        absent = [
            ("get_run", {"run_id": run_id}),
            ("cancel_run", {"run_id": run_id}),
            ("ask", {"request": "x", "previous_run_id": run_id}),
            *(("ask", {"request": "x", "files": [named]}) for named in (file_id, of_a, digest)),
        ]
        for tool, arguments in absent:
            result = await agent.call_tool(tool, arguments)
            assert result.is_error
            assert "there is no" in text_of(result)
        for uri in (answer, f"hugginggpt://runs/{run_id}/tasks/1/text", of_a):
            with pytest.raises(MCPError, match="there is no"):
                await agent.read_resource(uri)
        assert (await agent.list_resources()).resources == []
        assert (await agent.call_tool("list_runs", {})).structured_content["runs"] == []
    assert set(gateway.orchestrator.runs) == {run_id}
    assert not gateway.orchestrator.cancelled


async def test_upload_token_is_single_use_and_file_belongs_to_tenant(keyed_gateway: KeyedGateway) -> None:
    gateway = keyed_gateway.gateway
    a, b = [bearer(await keyed_gateway.token(name)) for name in "ab"]
    async with opened_client(gateway.http_port, headers=a) as agent:
        upload = (await agent.call_tool("upload", {"name": "note.txt"})).structured_content
        async with httpx.AsyncClient(trust_env=False) as anonymous:
            sent = await anonymous.put(upload["url"], content=b"a note")
            assert sent.status_code == 200, sent.text
            assert sent.json()["filename"] == "note.txt"
            assert sent.json()["bytes"] == 6
            again = await anonymous.put(upload["url"], content=b"a note")
            assert again.status_code == 404
            assert again.json()["code"] == "UPLOAD"
            form = (await agent.call_tool("upload", {"name": "form.txt"})).structured_content["url"]
            assert (await anonymous.post(form, files={"file": ("x.txt", b"in a form")})).json()["bytes"] == 9
        file_id = sent.json()["id"]
        assert not (await agent.call_tool("ask", {"request": "x", "files": [file_id]})).is_error
    assert (await gateway.http.get(f"/v1/files/{file_id}", headers=a)).json()["expires_at"]
    assert (await gateway.http.get(f"/v1/files/{file_id}", headers=b)).status_code == 404


async def test_upload_token_sanitizes_file_name(gateway: GatewayUnderTest, tmp_path: Path) -> None:
    async with opened_client(gateway.http_port) as agent:
        upload = (await agent.call_tool("upload", {"name": f"/a/{'x' * 100_000}.txt"})).structured_content
    with closing(sqlite3.connect(tmp_path / "gateway.sqlite")) as database:
        ((name,),) = database.execute("SELECT name FROM uploads")
    assert len(name) == NAME_CHARACTERS
    assert (await gateway.http.put(upload["url"], content=b"a note")).status_code == 200


async def test_upload_token_expires(gateway: GatewayUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload_tokens, "TOKEN_SECONDS", -1.0)
    async with opened_client(gateway.http_port) as agent:
        upload = (await agent.call_tool("upload", {"name": "note.txt"})).structured_content
    late = await gateway.http.put(upload["url"], content=b"a note")
    assert late.status_code == 404
    assert late.json()["code"] == "UPLOAD"


async def test_uploads_count_against_quota_of_key(keyed_gateway: KeyedGateway) -> None:
    token = await keyed_gateway.token(limits={"bytes_per_day": 4_000})
    async with opened_client(keyed_gateway.gateway.http_port, headers=bearer(token), mode="2026-07-28") as agent:
        upload = (await agent.call_tool("upload", {"name": "note.txt"})).structured_content
    rejected = await keyed_gateway.gateway.http.put(upload["url"], content=b"x" * 5_000)
    assert rejected.status_code == 429, rejected.text


@both_forms
async def test_no_content_is_logged(gateway: GatewayUnderTest, mode: str, capfd: pytest.CaptureFixture[str]) -> None:
    async with opened_client(gateway.http_port, mode=mode) as agent:
        for arguments in ({"request": "a-secret-thing"}, {"request": 5, "a-secret-thing": 1}):
            await agent.call_tool("ask", arguments)
        with pytest.raises(MCPError):
            await agent.read_resource("a-secret-thing://x")
        upload = (await agent.call_tool("upload", {"name": "a-secret-thing.txt"})).structured_content
    await gateway.http.put(upload["url"], content=b"a-secret-thing")
    for body in (b"a-secret-thing", b'{"jsonrpc": "2.0", "method": "a-secret-thing", "params": "a-secret-thing"}'):
        await gateway.http.post("/mcp", content=body, headers={"accept": "application/json, text/event-stream"})
    captured = capfd.readouterr()
    assert "route=/mcp " in captured.out
    assert "a-secret-thing" not in captured.out + captured.err
    assert upload["url"].rpartition("/")[2] not in captured.out + captured.err

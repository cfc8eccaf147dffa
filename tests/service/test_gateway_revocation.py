"""What came with a key ends with it, over every door."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import httpx
import pytest

from gateway.auth.authenticator import KeyAuthenticator
from gateway.auth.identity import Identity
from protos.hugginggpt.v1.event_pb2 import RunEnded, RunEvent
from protos.hugginggpt.v1.gateway_pb2 import WatchRunRequest
from protos.hugginggpt.v1.run_pb2 import RUN_STATE_COMPLETED
from tests.fakes import ScriptedOrchestrator
from tests.support.api_keys import Keyholders, bearer, metadata, opened_keyholders
from tests.support.gateway import Doors
from tests.support.mcp_clients import opened_client

SECONDS = 10.0


@pytest.fixture
async def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Keyholders]:
    monkeypatch.setattr("gateway.auth.session_revocation.CHECK_SECONDS", 0.05)
    monkeypatch.setattr("gateway.auth.api_key_cache.FRESH_SECONDS", 0.05)
    async with opened_keyholders(tmp_path, orchestrator=ScriptedOrchestrator(script=())) as opened:
        yield opened


async def run_of(doors: Doors, token: str) -> str:
    response = await doors.ask(headers=bearer(token))
    assert response.status_code == 202, response.text
    return str(response.json()["run_id"])


async def test_revocation_ends_only_streams_of_the_key(house: Keyholders) -> None:
    (key, token), other = await house.key("a"), await house.token("a")
    address = f"/v1/runs/{await run_of(house.doors, token)}/events"
    async with (
        house.doors.http.stream("GET", address, headers=bearer(token)) as ending,
        house.doors.http.stream("GET", address, headers=bearer(other)) as staying,
        asyncio.timeout(SECONDS),
    ):
        lines, others = ending.aiter_lines(), staying.aiter_lines()
        assert [await anext(each) for each in (lines, others)] == ["retry: 1000"] * 2
        await house.revoke(key)
        assert not [line async for line in lines if "run_ended" in line]
        (run,) = house.doors.orchestrator.runs.values()
        run.tell(RunEvent(run_ended=RunEnded(state=RUN_STATE_COMPLETED)))
        assert [line async for line in others if line == "event: run_ended"]
    refused = await house.doors.http.get(address, headers=bearer(token))
    assert refused.status_code == 401


async def test_revoked_key_ends_streams_after_an_unexpected_exception(
    house: Keyholders, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_is_valid, failed = KeyAuthenticator.is_valid, asyncio.Event()

    async def failing_once(authenticator: KeyAuthenticator, who: Identity) -> bool:
        if not failed.is_set():
            failed.set()
            raise RuntimeError("an error that nobody expects")
        return await real_is_valid(authenticator, who)

    key, token = await house.key("a")
    address = f"/v1/runs/{await run_of(house.doors, token)}/events"
    async with house.doors.http.stream("GET", address, headers=bearer(token)) as stream, asyncio.timeout(SECONDS):
        lines = stream.aiter_lines()
        await anext(lines)
        monkeypatch.setattr(KeyAuthenticator, "is_valid", failing_once)
        await failed.wait()
        await house.revoke(key)
        assert not [line async for line in lines if "run_ended" in line]


async def test_revocation_ends_waiting_calls(house: Keyholders) -> None:
    key, token = await house.key()
    waiting = asyncio.create_task(house.doors.ask(headers={**bearer(token), "prefer": "wait=60"}))
    async with asyncio.timeout(SECONDS):
        await house.doors.orchestrator.arrivals.get()
        await house.revoke(key)
        response = await waiting
    assert response.status_code == 401
    assert response.json()["code"] == "UNAUTHENTICATED"


async def test_revocation_ends_grpc_streams(house: Keyholders) -> None:
    key, token = await house.key()
    request = WatchRunRequest(run_id=await run_of(house.doors, token))
    call = house.doors.grpc.WatchRun(request, metadata=metadata(token), timeout=SECONDS)
    assert (await call.read()).HasField("run_accepted")
    await house.revoke(key)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call.read()
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_revocation_ends_upload_tokens(house: Keyholders) -> None:
    key, token = await house.key()
    async with opened_client(house.doors.http_port, headers=bearer(token)) as agent:
        leave = (await agent.call_tool("upload", {"name": "note.txt"})).structured_content
    await house.revoke(key)
    async with asyncio.timeout(SECONDS):  # a key is believed for a moment after it was read
        while (await house.doors.http.get("/v1/tasks", headers=bearer(token))).status_code != httpx.codes.UNAUTHORIZED:
            pass
    async with httpx.AsyncClient(trust_env=False) as anybody:
        refused = await anybody.put(leave["url"], content=b"a note")
    assert refused.status_code == 404
    assert refused.json()["code"] == "UPLOAD"

"""Requests and streams end when their key is revoked, over every protocol."""

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
from tests.support.api_keys import KeyedGateway, bearer, metadata, start_keyed_gateway
from tests.support.gateway import GatewayUnderTest
from tests.support.mcp_clients import opened_client

SECONDS = 10.0


@pytest.fixture
async def keyed_gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[KeyedGateway]:
    monkeypatch.setattr("gateway.auth.session_revocation.CHECK_SECONDS", 0.05)
    monkeypatch.setattr("gateway.auth.api_keys.FRESH_SECONDS", 0.05)
    async with start_keyed_gateway(tmp_path, orchestrator=ScriptedOrchestrator(script=())) as opened:
        yield opened


async def run_of(gateway: GatewayUnderTest, token: str) -> str:
    response = await gateway.ask(headers=bearer(token))
    assert response.status_code == 202, response.text
    return str(response.json()["run_id"])


async def test_revocation_ends_only_streams_of_the_key(keyed_gateway: KeyedGateway) -> None:
    (key, token), other = await keyed_gateway.key("a"), await keyed_gateway.token("a")
    address = f"/v1/runs/{await run_of(keyed_gateway.gateway, token)}/events"
    async with (
        keyed_gateway.gateway.http.stream("GET", address, headers=bearer(token)) as ending,
        keyed_gateway.gateway.http.stream("GET", address, headers=bearer(other)) as staying,
        asyncio.timeout(SECONDS),
    ):
        lines, others = ending.aiter_lines(), staying.aiter_lines()
        assert [await anext(each) for each in (lines, others)] == ["retry: 1000"] * 2
        await keyed_gateway.revoke(key)
        assert not [line async for line in lines if "run_ended" in line]
        (run,) = keyed_gateway.gateway.orchestrator.runs.values()
        run.send(RunEvent(run_ended=RunEnded(state=RUN_STATE_COMPLETED)))
        assert [line async for line in others if line == "event: run_ended"]
    rejected = await keyed_gateway.gateway.http.get(address, headers=bearer(token))
    assert rejected.status_code == 401


async def test_revoked_key_ends_streams_after_an_unexpected_exception(
    keyed_gateway: KeyedGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_is_valid, failed = KeyAuthenticator.is_valid, asyncio.Event()

    async def fail_once(authenticator: KeyAuthenticator, identity: Identity) -> bool:
        if not failed.is_set():
            failed.set()
            raise RuntimeError("an unexpected error")
        return await real_is_valid(authenticator, identity)

    key, token = await keyed_gateway.key("a")
    address = f"/v1/runs/{await run_of(keyed_gateway.gateway, token)}/events"
    async with (
        keyed_gateway.gateway.http.stream("GET", address, headers=bearer(token)) as stream,
        asyncio.timeout(SECONDS),
    ):
        lines = stream.aiter_lines()
        await anext(lines)
        monkeypatch.setattr(KeyAuthenticator, "is_valid", fail_once)
        await failed.wait()
        await keyed_gateway.revoke(key)
        assert not [line async for line in lines if "run_ended" in line]


async def test_revocation_ends_waiting_calls(keyed_gateway: KeyedGateway) -> None:
    key, token = await keyed_gateway.key()
    waiting = asyncio.create_task(keyed_gateway.gateway.ask(headers={**bearer(token), "prefer": "wait=60"}))
    async with asyncio.timeout(SECONDS):
        await keyed_gateway.gateway.orchestrator.arrivals.get()
        await keyed_gateway.revoke(key)
        response = await waiting
    assert response.status_code == 401
    assert response.json()["code"] == "UNAUTHENTICATED"


async def test_revocation_ends_grpc_streams(keyed_gateway: KeyedGateway) -> None:
    key, token = await keyed_gateway.key()
    request = WatchRunRequest(run_id=await run_of(keyed_gateway.gateway, token))
    call = keyed_gateway.gateway.grpc.WatchRun(request, metadata=metadata(token), timeout=SECONDS)
    assert (await call.read()).HasField("run_accepted")
    await keyed_gateway.revoke(key)
    with pytest.raises(grpc.aio.AioRpcError) as rejected:
        await call.read()
    assert rejected.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_revocation_ends_upload_tokens(keyed_gateway: KeyedGateway) -> None:
    key, token = await keyed_gateway.key()
    async with opened_client(keyed_gateway.gateway.http_port, headers=bearer(token)) as agent:
        upload = (await agent.call_tool("upload", {"name": "note.txt"})).structured_content
    await keyed_gateway.revoke(key)
    async with asyncio.timeout(SECONDS):  # a key is cached for a short time
        while (
            await keyed_gateway.gateway.http.get("/v1/tasks", headers=bearer(token))
        ).status_code != httpx.codes.UNAUTHORIZED:
            pass
    async with httpx.AsyncClient(trust_env=False) as anonymous:
        rejected = await anonymous.put(upload["url"], content=b"a note")
    assert rejected.status_code == 404
    assert rejected.json()["code"] == "UPLOAD"

"""Limits and policies of batches, and their streams when keys are revoked or servers stop."""

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from protos.hugginggpt.v1.artifact_pb2 import Value
from protos.hugginggpt.v1.caller_pb2 import DATA_POLICY_LOCAL
from protos.hugginggpt.v1.expert_pb2 import InferRequest
from protos.hugginggpt.v1.usage_pb2 import Usage
from services.orchestrator.__main__ import orchestrator as serve_orchestrator
from services.orchestrator.settings import Settings
from tests.support.api_keys import KeyedGateway, bearer, start_keyed_gateway
from tests.support.gateway import start_gateway
from tests.support.orchestrator import END, ScriptedPeers, echo, task, wait_until_cancelled
from tests.support.pipeline_gateway import PINNED, PipelineGateway, notes, start_pipeline_gateway

SECONDS = 20.0


@pytest.fixture
async def keyed_gateway(
    peers: ScriptedPeers, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[KeyedGateway]:
    monkeypatch.setattr("gateway.auth.session_revocation.CHECK_SECONDS", 0.05)
    monkeypatch.setattr("gateway.auth.api_keys.FRESH_SECONDS", 0.05)
    async with serve_orchestrator(settings) as running:
        overrides = {"orchestrator": f"127.0.0.1:{running.port}", "ARTIFACTS_URL": settings.artifacts_url}
        async with start_keyed_gateway(tmp_path, overrides) as keyed_gateway:
            yield keyed_gateway


async def start_batch(keyed_gateway: KeyedGateway, token: str, count: int = 3, **spec: object) -> httpx.Response:
    sent = {"plan": PINNED, "items": notes(count), **spec}
    return await keyed_gateway.gateway.http.post("/v1/pipeline-batches", json=sent, headers=bearer(token))


async def test_key_limits_concurrent_batch_items(keyed_gateway: KeyedGateway) -> None:
    token = await keyed_gateway.token(limits={"concurrent_runs": 2})
    for requested_limit, applied_limit in ((0, 2), (1, 1), (50, 2)):
        batch = (await start_batch(keyed_gateway, token, max_at_once=requested_limit)).json()
        assert batch["spec"]["max_at_once"] == applied_limit


async def test_exhausted_token_quota_rejects_batches(keyed_gateway: KeyedGateway, peers: ScriptedPeers) -> None:
    peers.usage = Usage(input_tokens=20)
    token = await keyed_gateway.token(limits={"tokens_per_day": 10})
    peers.plan(task(1), END)
    first = await start_batch(keyed_gateway, token)
    assert first.status_code == 202
    assert (await keyed_gateway.gateway.ask("x", headers={**bearer(token), "prefer": "wait=20"})).status_code == 200
    async with asyncio.timeout(SECONDS):
        while (rejected := await start_batch(keyed_gateway, token)).status_code == 202:  # noqa: ASYNC110  # it is counted in a second
            await asyncio.sleep(0.1)
    assert rejected.status_code == 429
    assert rejected.json()["code"] == "TOKENS_QUOTA"
    again = await keyed_gateway.gateway.http.post(f"{first.headers['location']}/resume", headers=bearer(token))
    assert again.status_code == 429
    assert again.json()["code"] == "TOKENS_QUOTA"


async def test_local_key_rejects_open_batch(keyed_gateway: KeyedGateway) -> None:
    token = await keyed_gateway.token(policy=DATA_POLICY_LOCAL)
    rejected = await start_batch(keyed_gateway, token, policy="open")
    assert rejected.status_code == 403
    assert rejected.json()["code"] == "POLICY"
    assert (await start_batch(keyed_gateway, token)).status_code == 202


async def test_interrupted_results_are_not_complete(keyed_gateway: KeyedGateway, peers: ScriptedPeers) -> None:
    async def long(_: InferRequest) -> dict[str, Value]:
        return {"text": Value(text="x" * 200_000)}

    peers.infer["model"] = long
    key, token = await keyed_gateway.key()
    path = (await start_batch(keyed_gateway, token, 100)).headers["location"]
    await keyed_gateway.gateway.http.get(f"{path}/events", headers=bearer(token))
    with pytest.raises(httpx.RemoteProtocolError):
        async with keyed_gateway.gateway.http.stream("GET", f"{path}/results", headers=bearer(token)) as response:
            pieces = response.aiter_raw()
            await anext(pieces)
            await keyed_gateway.revoke(key)
            await asyncio.sleep(0.5)  # time for which these tests cache a key
            async for _ in pieces:
                pass


async def test_shutdown_ends_batch_streams(peers: ScriptedPeers, settings: Settings, tmp_path: Path) -> None:
    inferring = asyncio.Event()
    peers.infer["model"] = lambda _: wait_until_cancelled(inferring, asyncio.Event())
    async with asyncio.timeout(SECONDS), httpx.AsyncClient(trust_env=False) as client:
        async with start_pipeline_gateway(peers, settings, tmp_path, DRAIN_SECONDS=60) as pipeline_gateway:
            batch_id = await pipeline_gateway.started(notes(1))
            await inferring.wait()
            url = f"http://127.0.0.1:{pipeline_gateway.gateway.http_port}/v1/pipeline-batches/{batch_id}/events"
            response = await client.send(client.build_request("GET", url), stream=True)
            lines = response.aiter_lines()
            while "running" not in await anext(lines):
                pass
        assert [line async for line in lines if line.startswith(":")] == [": the gateway is shutting down"]
        await response.aclose()


async def test_batch_stream_survives_orchestrator_restart(
    peers: ScriptedPeers, settings: Settings, tmp_path: Path
) -> None:
    inferring = asyncio.Event()
    peers.infer["model"] = lambda _: wait_until_cancelled(inferring, asyncio.Event())
    with socket.create_server(("127.0.0.1", 0)) as free:
        listen = f"127.0.0.1:{free.getsockname()[1]}"
    fixed = settings.model_copy(update={"listen": listen})
    own = {"orchestrator": listen, "ARTIFACTS_URL": settings.artifacts_url}
    async with asyncio.timeout(60), start_gateway(tmp_path, settings=own) as gateway:
        pipeline_gateway = PipelineGateway(gateway, peers)
        async with serve_orchestrator(fixed):
            batch_id = await pipeline_gateway.started(notes(3))
            following = asyncio.create_task(pipeline_gateway.ended(batch_id))
            await inferring.wait()
        peers.infer["model"] = echo
        async with serve_orchestrator(fixed):
            assert (await following)["state"] == "completed"


async def test_batch_request_fails_fast_without_orchestrator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("core.service_calls", "core.batches"):
        monkeypatch.setattr(f"gateway.{module}.CALL_TIMEOUT_SECONDS", 0.5)
    async with start_gateway(tmp_path, settings={"orchestrator": "127.0.0.1:1"}) as gateway:
        pipeline_gateway = PipelineGateway(gateway, ScriptedPeers())
        for response in (
            await pipeline_gateway.send([{"plan": PINNED}, *notes(2)]),
            await pipeline_gateway.save(),
            await pipeline_gateway.http.get("/v1/pipeline-batches"),
        ):
            assert response.status_code == 503
            assert response.json()["code"] == "UNAVAILABLE"

"""Limits of API keys over HTTP and gRPC, and the headers that report them."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from grpc import StatusCode

from gateway.limits.usage_counters import DAY, MINUTE
from protos.hugginggpt.v1.event_pb2 import RunEnded, RunEvent
from protos.hugginggpt.v1.gateway_pb2 import CreateRunRequest, ListTasksRequest, UploadArtifactRequest
from protos.hugginggpt.v1.run_pb2 import RUN_STATE_COMPLETED, RunSpec
from protos.hugginggpt.v1.usage_pb2 import Usage
from services.common.errors import from_rpc
from tests.fakes import ScriptedOrchestrator
from tests.support.api_keys import KeyedGateway, bearer, metadata, start_keyed_gateway
from tests.support.gateway import rpc_error
from tests.support.postgres import emptied_database

ENDED = RunEvent(run_ended=RunEnded(state=RUN_STATE_COMPLETED, usage=Usage(input_tokens=70, output_tokens=30)))


@pytest.fixture(params=["sqlite", "postgres"])
async def keyed_gateway(tmp_path: Path, database_url: str) -> AsyncIterator[KeyedGateway]:
    """A gateway whose runs end when the test ends them."""
    orchestrator = ScriptedOrchestrator(script=())
    async with start_keyed_gateway(tmp_path, {"database": database_url}, orchestrator=orchestrator) as opened:
        yield opened


@pytest.fixture
async def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.node.callspec.params["keyed_gateway"] == "sqlite":
        return str(tmp_path / "gateway.sqlite")
    return await emptied_database(request.getfixturevalue("postgres"))


async def post_until(keyed_gateway: KeyedGateway, token: str, status: int, **fields: Any) -> Any:
    """Posts runs until a response has this status: a run's end is counted after a short delay."""
    async with asyncio.timeout(10):
        while (response := await keyed_gateway.gateway.ask(headers=bearer(token), **fields)).status_code != status:
            pass
    return response


async def within_a_minute(keyed_gateway: KeyedGateway, limit: int, times: int) -> list[httpx.Response]:
    """Responses to requests with a new key within one minute; starts again with another key if a minute ended."""
    while True:
        token, minute = await keyed_gateway.token(limits={"requests_per_minute": limit}), time.time() // MINUTE
        answers = [await keyed_gateway.gateway.http.get("/v1/tasks", headers=bearer(token)) for _ in range(times)]
        if time.time() // MINUTE == minute:
            return answers


async def test_request_limit_per_minute(keyed_gateway: KeyedGateway) -> None:
    answers = await within_a_minute(keyed_gateway, 3, 4)
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    assert [answer.headers["x-ratelimit-remaining-requests"] for answer in answers] == ["2", "1", "0", "0"]
    rejected = answers[-1]
    assert rejected.headers["x-ratelimit-limit-requests"] == "3"
    assert rejected.headers["x-ratelimit-reset-requests"].endswith("s")
    assert 0 < int(rejected.headers["retry-after"]) <= MINUTE
    assert rejected.json()["code"] == "RATE_LIMIT"
    assert rejected.json()["error"]["type"] == "rate_limit_error"
    assert (
        await keyed_gateway.gateway.http.get("/v1/tasks", headers=bearer(await keyed_gateway.token()))
    ).status_code == 200


async def test_call_limit_per_minute(keyed_gateway: KeyedGateway) -> None:
    token = await keyed_gateway.token(limits={"requests_per_minute": 1})
    errors = []
    for _ in range(3):
        try:
            await keyed_gateway.gateway.grpc.ListTasks(ListTasksRequest(), metadata=metadata(token), timeout=10)
        except grpc.aio.AioRpcError as error:
            errors.append(from_rpc(error))
    assert {(error.code, error.reason) for error in errors} == {(StatusCode.RESOURCE_EXHAUSTED, "RATE_LIMIT")}
    assert errors[0].retry_after


async def test_concurrent_run_limit(keyed_gateway: KeyedGateway) -> None:
    token = await keyed_gateway.token(limits={"concurrent_runs": 2})
    for number in range(2):
        assert (await keyed_gateway.gateway.ask(f"{number}", headers=bearer(token))).status_code == 202
    rejected = await keyed_gateway.gateway.ask(headers=bearer(token))
    assert rejected.status_code == 429
    assert rejected.json()["code"] == "RUNS_LIMIT"
    assert int(rejected.headers["retry-after"]) > 0
    call = keyed_gateway.gateway.grpc.CreateRun(
        CreateRunRequest(spec=RunSpec(request="x")), metadata=metadata(token), timeout=10
    )
    assert from_rpc(await rpc_error(call)).reason == "RUNS_LIMIT"
    assert (await keyed_gateway.gateway.http.get("/v1/runs", headers=bearer(token))).status_code == 200
    assert len(keyed_gateway.gateway.orchestrator.runs) == 2
    (await keyed_gateway.gateway.orchestrator.arrivals.get()).send(ENDED)
    await post_until(keyed_gateway, token, 202)
    assert (await keyed_gateway.gateway.ask(headers=bearer(token))).status_code == 429


async def test_concurrent_run_limit_under_concurrency(keyed_gateway: KeyedGateway) -> None:
    token = await keyed_gateway.token(limits={"concurrent_runs": 3})
    answers = await asyncio.gather(
        *(keyed_gateway.gateway.ask(f"{number}", headers=bearer(token)) for number in range(12))
    )
    assert sorted(answer.status_code for answer in answers) == [202] * 3 + [429] * 9
    assert len(keyed_gateway.gateway.orchestrator.runs) == 3


async def test_repeated_request_takes_no_second_slot(keyed_gateway: KeyedGateway) -> None:
    token = await keyed_gateway.token(limits={"concurrent_runs": 2})
    same = {**bearer(token), "idempotency-key": "one"}
    for _ in range(4):
        assert (await keyed_gateway.gateway.ask(headers=same)).status_code == 202
    assert (await keyed_gateway.gateway.ask(headers=bearer(token))).status_code == 202


async def test_token_quota_per_day(keyed_gateway: KeyedGateway) -> None:
    token = await keyed_gateway.token(limits={"tokens_per_day": 100})
    first = await keyed_gateway.gateway.ask(headers=bearer(token))
    assert first.status_code == 202
    assert first.headers["x-ratelimit-remaining-tokens"] == "100"
    (await keyed_gateway.gateway.orchestrator.arrivals.get()).send(ENDED)
    await post_until(keyed_gateway, token, 429)
    rejected = await keyed_gateway.gateway.ask(headers=bearer(token))
    assert rejected.json()["code"] == "TOKENS_QUOTA"
    assert rejected.headers["x-ratelimit-remaining-tokens"] == "0"
    assert 0 < int(rejected.headers["retry-after"]) <= DAY
    listed = await keyed_gateway.gateway.http.get("/v1/runs", headers=bearer(token))
    assert listed.status_code == 200


async def test_byte_quota_per_day(keyed_gateway: KeyedGateway) -> None:
    token = await keyed_gateway.token(limits={"bytes_per_day": 100_000})
    small, large = "x" * 20_000, "x" * 90_000
    assert (await keyed_gateway.gateway.ask(small, headers=bearer(token))).status_code == 202
    rejected = await keyed_gateway.gateway.ask(large, headers=bearer(token))
    assert rejected.status_code == 429
    assert rejected.json()["code"] == "BYTES_QUOTA"
    parts = iter([UploadArtifactRequest(name="a.txt"), UploadArtifactRequest(chunk=b"x" * 90_000)])
    error = await rpc_error(keyed_gateway.gateway.grpc.UploadArtifact(parts, metadata=metadata(token), timeout=10))
    assert from_rpc(error).reason == "BYTES_QUOTA"
    assert len(keyed_gateway.gateway.orchestrator.runs) == 1
    assert (await keyed_gateway.gateway.http.get("/v1/runs", headers=bearer(token))).status_code == 200

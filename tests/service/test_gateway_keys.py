"""Authentication with API keys."""

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from grpc import StatusCode
from grpc_reflection.v1alpha import reflection_pb2

from gateway.auth import authenticator as auth_backoff
from protos.hugginggpt.internal.v1.selector_pb2 import Expert
from protos.hugginggpt.v1.caller_pb2 import DATA_POLICY_LOCAL, DATA_POLICY_OPEN
from protos.hugginggpt.v1.gateway_pb2 import CreateRunRequest, ListTasksRequest
from protos.hugginggpt.v1.run_pb2 import RunSpec
from services.common.channel import dial
from services.common.errors import from_rpc
from tests.fakes import ScriptedSelector
from tests.support.api_keys import KeyedGateway, bearer, metadata, start_keyed_gateway
from tests.support.gateway import rpc_error

WRONG = f"hgpt_0123456789ab_{'x' * 43}"


@pytest.fixture
async def keyed_gateway(tmp_path: Path) -> AsyncIterator[KeyedGateway]:
    async with start_keyed_gateway(tmp_path, selector=ScriptedSelector(experts=[Expert(name="lite")])) as opened:
        yield opened


async def test_key_determines_the_tenant_over_http(keyed_gateway: KeyedGateway) -> None:
    key, token = await keyed_gateway.key("shop")
    response = await keyed_gateway.gateway.ask(headers=bearer(token))
    assert response.status_code == 202
    (caller,) = keyed_gateway.gateway.orchestrator.callers
    assert caller.tenant == "shop"
    assert caller.key_id == key.id
    assert caller.request_id == response.headers["x-request-id"]


async def test_key_determines_the_tenant_over_grpc(keyed_gateway: KeyedGateway) -> None:
    key, token = await keyed_gateway.key("shop")
    async for _ in keyed_gateway.gateway.grpc.CreateRun(
        CreateRunRequest(spec=RunSpec(request="x")), metadata=metadata(token), timeout=10
    ):
        pass
    (caller,) = keyed_gateway.gateway.orchestrator.callers
    assert caller.tenant == "shop"
    assert caller.key_id == key.id


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
async def test_reflection_needs_no_key(keyed_gateway: KeyedGateway, version: str) -> None:
    request = reflection_pb2.ServerReflectionRequest(list_services="")  # the same bytes in both versions
    async with dial(f"127.0.0.1:{keyed_gateway.gateway.grpc_port}") as channel:
        list_services = channel.stream_stream(
            f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
            reflection_pb2.ServerReflectionRequest.SerializeToString,
            reflection_pb2.ServerReflectionResponse.FromString,
        )
        (listed,) = [reply async for reply in list_services(iter([request]), timeout=5)]
    assert "hugginggpt.v1.GatewayService" in {each.name for each in listed.list_services_response.service}


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        f"Basic {WRONG}",
        f"Bearer {WRONG}",
        f"Bearer {WRONG} more",
        "Bearer hgpt_",
        "Bearer a.b.c",
        f"Bearer {'x' * 9000}",
        "Bearer \xff",
    ],
    ids=lambda header: repr(header)[:40],
)
async def test_missing_or_invalid_key_is_401(keyed_gateway: KeyedGateway, header: str | None) -> None:
    sent = {"authorization": header.encode("latin-1")} if header is not None else {}
    response = await keyed_gateway.gateway.http.get("/v1/tasks", headers=sent)  # type: ignore[arg-type]  # bytes are taken, too
    problem = response.json()
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == 'Bearer realm="hugginggpt"'
    assert response.headers["content-type"] == "application/problem+json"
    assert problem["code"] == "UNAUTHENTICATED"
    assert problem["error"]["type"] == "authentication_error"
    assert problem["remedy"]


async def test_key_with_wrong_secret_is_rejected(keyed_gateway: KeyedGateway) -> None:
    (key, one), other = await keyed_gateway.key(), await keyed_gateway.token()
    mixed = f"hgpt_{key.id}_{other.rpartition(key.id)[2][-43:]}"
    for token, status in ((one, 200), (mixed, 401), (one[:-1], 401), (one.upper(), 401)):
        assert (await keyed_gateway.gateway.http.get("/v1/tasks", headers=bearer(token))).status_code == status


async def test_missing_or_invalid_key_is_unauthenticated_over_grpc(keyed_gateway: KeyedGateway) -> None:
    for sent in ((), metadata(WRONG), (("authorization", "nonsense"),)):
        error = await rpc_error(keyed_gateway.gateway.grpc.ListTasks(ListTasksRequest(), metadata=sent, timeout=10))
        known = from_rpc(error)
        assert known.code == StatusCode.UNAUTHENTICATED
        assert known.reason == "UNAUTHENTICATED"
        assert known.remedy


async def test_caller_metadata_from_clients_is_ignored(keyed_gateway: KeyedGateway) -> None:
    forged = (("hugginggpt-caller-bin", b"\n\x05other"),)
    error = await rpc_error(keyed_gateway.gateway.grpc.ListTasks(ListTasksRequest(), metadata=forged, timeout=10))
    assert error.code() is StatusCode.UNAUTHENTICATED


async def test_revoked_key_is_rejected_within_seconds(keyed_gateway: KeyedGateway) -> None:
    key, token = await keyed_gateway.key()
    assert (await keyed_gateway.gateway.http.get("/v1/tasks", headers=bearer(token))).status_code == 200
    await keyed_gateway.revoke(key)
    until = time.monotonic() + 5
    while (response := await keyed_gateway.gateway.http.get("/v1/tasks", headers=bearer(token))).status_code == 200:
        assert time.monotonic() < until
    assert response.status_code == 401
    assert "revoked" in response.json()["detail"]


async def test_expired_key_is_rejected(keyed_gateway: KeyedGateway) -> None:
    token = await keyed_gateway.token(expires=time.time() - 1)
    response = await keyed_gateway.gateway.http.get("/v1/tasks", headers=bearer(token))
    assert response.status_code == 401
    assert "expired" in response.json()["detail"]


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/docs", "/docs/start.js", "/openapi.json"])
async def test_public_routes_need_no_key(keyed_gateway: KeyedGateway, path: str) -> None:
    assert (await keyed_gateway.gateway.http.get(path)).status_code == 200


async def test_any_host_is_accepted_with_authentication(keyed_gateway: KeyedGateway) -> None:
    headers = {**bearer(await keyed_gateway.token()), "host": "gateway.example"}
    assert (await keyed_gateway.gateway.http.get("/v1/tasks", headers=headers)).status_code == 200


async def test_repeated_failures_are_429_but_valid_keys_pass(keyed_gateway: KeyedGateway) -> None:
    token = await keyed_gateway.token()
    statuses = [
        (await keyed_gateway.gateway.http.get("/v1/tasks", headers=bearer(WRONG))).status_code
        for _ in range(auth_backoff.MAX_FAILURES + 2)
    ]
    assert statuses == [401] * auth_backoff.MAX_FAILURES + [429] * 2
    rejected = await keyed_gateway.gateway.http.get("/v1/tasks", headers=bearer(WRONG))
    assert 0 < int(rejected.headers["retry-after"]) <= auth_backoff.WINDOW_SECONDS
    assert (await keyed_gateway.gateway.http.get("/v1/tasks", headers=bearer(token))).status_code == 200


async def test_local_key_rejects_open_requests(keyed_gateway: KeyedGateway) -> None:
    token = await keyed_gateway.token(policy=DATA_POLICY_LOCAL)
    assert (await keyed_gateway.gateway.ask(headers=bearer(token))).status_code == 202
    assert (await keyed_gateway.gateway.ask(policy="local", headers=bearer(token))).status_code == 202
    rejected = await keyed_gateway.gateway.ask(policy="open", headers=bearer(token))
    assert rejected.status_code == 403
    assert rejected.json()["code"] == "POLICY"
    assert {caller.policy for caller in keyed_gateway.gateway.orchestrator.callers} == {DATA_POLICY_LOCAL}
    assert (await keyed_gateway.gateway.ask(headers=bearer(await keyed_gateway.token()))).status_code == 202
    assert keyed_gateway.gateway.orchestrator.callers[-1].policy == DATA_POLICY_OPEN


async def test_shared_settings_require_an_admin_key(keyed_gateway: KeyedGateway) -> None:
    plain, admin = await keyed_gateway.token(), await keyed_gateway.token(admin=True)
    rejected = await keyed_gateway.gateway.http.delete("/v1/experts/lite", headers=bearer(plain))
    assert rejected.status_code == 403
    assert rejected.json()["code"] == "ADMIN"
    assert not keyed_gateway.gateway.selector.forgotten
    assert (await keyed_gateway.gateway.http.delete("/v1/experts/lite", headers=bearer(admin))).status_code == 204


async def test_keys_are_not_logged(keyed_gateway: KeyedGateway, capsys: pytest.CaptureFixture[str]) -> None:
    _, token = await keyed_gateway.key()
    await keyed_gateway.gateway.ask(headers=bearer(token))
    await keyed_gateway.gateway.http.get("/v1/tasks", headers=bearer(token[:-1]))
    caller = capsys.readouterr()
    assert token[18:-1] not in caller.out + caller.err

"""JWTs of an issuer, and CORS."""

import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from protos.hugginggpt.v1.gateway_pb2 import ListTasksRequest
from tests.fakes.web import Web
from tests.support.api_keys import KeyedGateway, bearer, metadata, start_keyed_gateway
from tests.support.gateway import start_gateway

PAGE = "https://app.example"
SECRET = Ed25519PrivateKey.generate()


def token(**claims: Any) -> str:
    given = {"iss": "https://issuer", "aud": "us", "sub": "anna", "exp": time.time() + 60, "team": "shop", **claims}
    return jwt.encode(given, SECRET, "EdDSA", headers={"kid": "k"})


@pytest.fixture
async def issuer_server() -> AsyncIterator[Web]:
    async with Web.serving() as web:
        public = jwt.algorithms.OKPAlgorithm.to_jwk(SECRET.public_key(), as_dict=True)
        web.answer_with("/jwks", {"keys": [{**public, "kid": "k", "alg": "EdDSA"}]})
        yield web


@pytest.fixture
async def keyed_gateway(tmp_path: Path, issuer_server: Web) -> AsyncIterator[KeyedGateway]:
    settings = {
        "jwt_issuer": "https://issuer",
        "jwt_audience": "us",
        "jwt_jwks": f"{issuer_server.url}/jwks",
        "jwt_tenant_claim": "team",
        "requests_per_minute": 1000,
        "cors_origins": PAGE,
    }
    async with start_keyed_gateway(tmp_path, settings) as opened:
        yield opened


async def test_jwts_and_api_keys_are_accepted(keyed_gateway: KeyedGateway, issuer_server: Web) -> None:
    response = await keyed_gateway.gateway.ask(headers=bearer(token()))
    assert response.status_code == 202
    assert response.headers["x-ratelimit-limit-requests"] == "1000"
    (caller,) = keyed_gateway.gateway.orchestrator.callers
    assert caller.tenant == "shop"
    assert caller.key_id == "jwt:anna"
    await keyed_gateway.gateway.grpc.ListTasks(ListTasksRequest(), metadata=metadata(token()), timeout=10)
    assert (
        await keyed_gateway.gateway.http.get("/v1/tasks", headers=bearer(await keyed_gateway.token()))
    ).status_code == 200
    assert len(issuer_server.requests) == 1


async def test_invalid_jwt_is_rejected(keyed_gateway: KeyedGateway) -> None:
    for sent in (token(aud="others"), token(exp=1), token()[:-2], "a.b.c"):
        response = await keyed_gateway.gateway.http.get("/v1/tasks", headers=bearer(sent))
        assert response.status_code == 401
        assert response.json()["code"] == "UNAUTHENTICATED"
    assert (await keyed_gateway.gateway.http.get("/v1/tasks", headers=bearer(token(team="../x")))).status_code == 403


async def test_configured_origins_may_call_and_read_errors(keyed_gateway: KeyedGateway) -> None:
    preflight = {"access-control-request-method": "POST", "access-control-request-headers": "authorization"}
    before = await keyed_gateway.gateway.http.options("/v1/runs", headers={"origin": PAGE, **preflight})
    assert before.status_code == 200
    assert before.headers["access-control-allow-origin"] == PAGE
    assert "authorization" in before.headers["access-control-allow-headers"]
    for sent, status in ((bearer(token()), 200), ({}, 401), (bearer("nonsense"), 401)):
        response = await keyed_gateway.gateway.http.get("/v1/tasks", headers={"origin": PAGE, **sent})
        assert response.status_code == status
        assert response.headers["access-control-allow-origin"] == PAGE
        assert "x-request-id" in response.headers["access-control-expose-headers"]


async def test_other_origins_are_rejected(keyed_gateway: KeyedGateway) -> None:
    for origin in ("https://evil.example", "null", f"{PAGE}.evil.example"):
        preflight = {"origin": origin, "access-control-request-method": "POST"}
        assert (await keyed_gateway.gateway.http.options("/v1/runs", headers=preflight)).status_code == 400
        response = await keyed_gateway.gateway.http.get("/v1/tasks", headers={"origin": origin, **bearer(token())})
        assert "access-control-allow-origin" not in response.headers


async def test_cors_without_authentication(tmp_path: Path) -> None:
    async with start_gateway(tmp_path, settings={"cors_origins": PAGE}) as gateway:
        allowed = await gateway.http.get("/v1/tasks", headers={"origin": PAGE})
        assert allowed.status_code == 200
        assert allowed.headers["access-control-allow-origin"] == PAGE
        assert (await gateway.http.get("/v1/tasks", headers={"origin": "https://evil.example"})).status_code == 403
        foreign_host = {"origin": PAGE, "host": "evil.example"}
        assert (await gateway.http.get("/v1/tasks", headers=foreign_host)).status_code == 421

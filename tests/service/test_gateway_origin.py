"""Pages of other sites reach no route of an unauthenticated gateway."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI

from tests.support.gateway import GatewayUnderTest, start_gateway


def flat(routes: Iterable[Any]) -> Iterator[Any]:
    for route in routes:
        included = getattr(route, "original_router", None)
        yield from flat(included.routes) if included else [route]


def routes(app: FastAPI) -> Iterator[tuple[str, str]]:
    """Every method and path of the application, and some unknown ones."""
    for route in flat(app.routes):
        for method in getattr(route, "methods", None) or ("GET", "POST"):
            yield method, re.sub(r"\{\w+\}", "x", route.path)
    yield from (("GET", "/nowhere"), ("PUT", "/v1/runs"), ("OPTIONS", "/v1/runs"))


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[GatewayUnderTest]:
    async with start_gateway(tmp_path) as opened:
        yield opened


async def test_tested_routes_are_all_gateway_routes(gateway: GatewayUnderTest) -> None:
    paths = {path for _, path in routes(gateway.app)}
    assert {"/healthz", "/readyz", "/docs", "/openapi.json", "/v1/runs", "/v1/artifacts/x", "/v1/tasks"} <= paths


async def test_dns_rebinding_is_rejected(gateway: GatewayUnderTest) -> None:
    for host in (
        "evil.example",
        f"evil.example:{gateway.http_port}",
        "localhost",
        f"localhost:{gateway.http_port + 1}",
    ):
        for method, path in routes(gateway.app):
            response = await gateway.http.request(method, path, headers={"host": host})
            assert response.status_code == 421, (method, path, host)
            assert method == "HEAD" or response.json()["code"] == "HOST"
    assert not gateway.orchestrator.runs


async def test_cross_site_request_is_rejected(gateway: GatewayUnderTest) -> None:
    for origin in ("https://evil.example", "null", "http://localhost:3000", f"https://localhost:{gateway.http_port}"):
        for method, path in routes(gateway.app):
            response = await gateway.http.request(method, path, headers={"origin": origin})
            assert response.status_code == 403, (method, path, origin)
            assert method == "HEAD" or response.json()["code"] == "ORIGIN"
            assert "access-control-allow-origin" not in response.headers
    assert not gateway.orchestrator.runs


async def test_cross_site_form_starts_no_run(gateway: GatewayUnderTest) -> None:
    response = await gateway.http.post(
        "/v1/runs", data={"request": "x"}, files={"file": ("a.txt", b"x")}, headers={"origin": "https://evil.example"}
    )
    assert response.status_code == 403
    assert not gateway.orchestrator.runs


async def test_own_pages_and_programs_are_served(gateway: GatewayUnderTest) -> None:
    for host in ("localhost", "127.0.0.1", "[::1]"):
        own = f"{host}:{gateway.http_port}"
        assert (await gateway.http.get("/healthz", headers={"host": own})).status_code == 200
        assert (await gateway.ask(headers={"host": own, "origin": f"http://{own}"})).status_code == 202


async def test_request_without_host_is_rejected(gateway: GatewayUnderTest) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.http_port)
    async with asyncio.timeout(5):
        writer.write(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert b" 421 " in await reader.readline()
    writer.close()
    await writer.wait_closed()


async def test_every_response_has_request_id_and_nosniff(gateway: GatewayUnderTest) -> None:
    for method, path in routes(gateway.app):
        headers = (await gateway.http.request(method, path)).headers
        assert headers["x-content-type-options"] == "nosniff", (method, path)
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert headers["x-request-id"].startswith("req_")

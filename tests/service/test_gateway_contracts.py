"""Stable contracts with clients: HEAD, ETags and error codes."""

import ast
import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import pytest

from gateway.http.problem import http_status
from services.common import errors
from tests.fakes import ScriptedOrchestrator
from tests.support.gateway import GatewayUnderTest, start_gateway

ROOT = Path(__file__).parents[2]

CODES: Mapping[str, Sequence[int]] = json.loads((ROOT / "tests/data/problems.json").read_text(encoding="utf-8"))
"""Error codes that clients may rely on, with their HTTP statuses; none is removed or renamed."""


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[GatewayUnderTest]:
    async with start_gateway(tmp_path, ScriptedOrchestrator(script=())) as opened:
        yield opened


@pytest.mark.parametrize(
    "path",
    ["/healthz", "/v1/runs", "/v1/runs/run_1", "/v1/tasks", "/v1/models", "/v1/files", "/openapi.json", "/docs", "/"],
)
async def test_head_equals_get_without_body(gateway: GatewayUnderTest, path: str) -> None:
    await gateway.ask()
    got, head = await gateway.http.get(path), await gateway.http.head(path)
    changing = {"date", "x-request-id"}
    assert head.status_code == got.status_code == 200
    assert head.content == b""
    assert {name: head.headers[name] for name in got.headers if name not in changing} == {
        name: got.headers[name] for name in got.headers if name not in changing
    }


async def test_head_of_a_stream_returns_at_once(gateway: GatewayUnderTest) -> None:
    await gateway.ask()
    async with asyncio.timeout(5):
        for _ in range(3):  # the connection stays usable
            head = await gateway.http.head("/v1/runs/run_1/events")
            assert head.headers["content-type"].startswith("text/event-stream")
        await gateway.orchestrator.runs["run_1"].disconnected.wait()


async def test_head_is_rejected_where_get_is(gateway: GatewayUnderTest) -> None:
    for path, status in (("/v1/runs/run_9", 404), ("/nowhere", 404), ("/v1/runs/run_9/cancel", 405)):
        head = await gateway.http.head(path)
        assert head.status_code == status
        assert head.content == b""


@pytest.mark.parametrize("path", ["/v1/tasks", "/v1/models"])
async def test_catalogue_supports_conditional_requests(gateway: GatewayUnderTest, path: str) -> None:
    first = await gateway.http.get(path)
    known = {"if-none-match": first.headers["etag"]}
    again = await gateway.http.get(path, headers=known)
    assert again.status_code == 304
    assert again.content == b""
    assert again.headers["etag"] == first.headers["etag"]
    gateway.selector.revision = "2"
    assert (await gateway.http.get(path, headers=known)).status_code == 200


def test_error_codes_are_stable() -> None:
    found = documented_codes()
    assert {code: sorted(found[code]) for code in CODES} == CODES


def documented_codes() -> Mapping[str, set[int]]:
    """Every error code in the source of gateway and services, with its HTTP statuses."""
    kinds = {
        name: kind
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.ServiceError)
    }
    found = defaultdict[str, set[int]](set)
    for kind in kinds.values():
        found[kind.reason].add(http_status(kind("", remedy="")))
    for module in (module for package in ("gateway", "services") for module in (ROOT / package).rglob("*.py")):
        for call in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in kinds:
                for reason in (each.value for each in call.keywords if each.arg == "reason"):
                    if isinstance(reason, ast.Constant):
                        kind = kinds[call.func.id]
                        found[str(reason.value)].add(http_status(kind("", reason=str(reason.value), remedy="")))
    return found

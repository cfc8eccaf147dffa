"""Malformed, slow and oversized HTTP on the gateway's port."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.gateway import GatewayUnderTest, start_gateway


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[GatewayUnderTest]:
    async with start_gateway(tmp_path) as opened:
        yield opened


@asynccontextmanager
async def connected(gateway: GatewayUnderTest) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.http_port)
    try:
        async with asyncio.timeout(10):
            yield reader, writer
    finally:
        writer.transport.abort()


def problem(answer: bytes) -> tuple[int, dict[str, Any]]:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"application/problem+json" in head
    return int(head.split()[1]), json.loads(body)


@pytest.mark.parametrize(
    "sent",
    [
        b"hello\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(60),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost localhost\r\n\r\n",
        b"POST /v1/runs HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ncontent-length: 7\r\n\r\n12345",
        b"POST /v1/runs HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\nauthorization: Bearer hgpt_1\r\r\n\r\n",
    ],
    ids=["words", "TLS", "HTTP/2", "no colon", "two lengths", "a negative length", "HTTP/9.9", "a terminal's key"],
)
async def test_malformed_request_gets_a_problem_response(gateway: GatewayUnderTest, sent: bytes) -> None:
    async with connected(gateway) as (reader, writer):
        writer.write(sent)
        status, body = problem(await reader.read())
    assert status == 400
    assert body["code"] == "INVALID"
    assert "carriage return" in body["remedy"]
    assert (await gateway.http.get("/healthz")).status_code == 200


async def test_endless_head_is_rejected(gateway: GatewayUnderTest) -> None:
    async with connected(gateway) as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\n")
        answering = asyncio.create_task(reader.read())
        while not answering.done():
            writer.write(b"x-long: " + b"a" * 8192 + b"\r\n")
            await asyncio.wait((answering,), timeout=0.001)
        status, body = problem(answering.result())
    assert status == 431
    assert body["code"] == "HEAD_TOO_LARGE"


async def test_incomplete_head_times_out(gateway: GatewayUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.http.connection.HEAD_SECONDS", 0.05)
    for sent in (b"", b"GET / HT"):
        async with connected(gateway) as (reader, writer):
            writer.write(sent)
            with pytest.raises(ConnectionResetError):
                assert await reader.read() == b""
                raise ConnectionResetError


async def test_large_body_does_not_count_as_head(gateway: GatewayUnderTest) -> None:
    body = json.dumps({"request": "x" * 300_000}).encode()
    response = await gateway.http.post("/v1/runs", content=body, headers={"content-type": "application/json"})
    assert response.status_code == 202


async def test_head_timeout_applies_per_request(gateway: GatewayUnderTest) -> None:
    own = f"host: localhost:{gateway.http_port}".encode()
    async with connected(gateway) as (reader, writer):
        for _ in range(3):
            writer.write(b"GET /healthz HTTP/1.1\r\n%s\r\n\r\n" % own)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200")
            length = int(head.lower().partition(b"content-length:")[2].split()[0])
            await reader.readexactly(length)


@pytest.mark.parametrize(
    "head",
    [b"POST /v1/runs HTTP/1.1\r\nhost: localhost:%d\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{"],
)
async def test_incomplete_body_times_out(
    gateway: GatewayUnderTest, monkeypatch: pytest.MonkeyPatch, head: bytes
) -> None:
    monkeypatch.setattr("gateway.http.connection.BODY_SECONDS", 0.05)
    async with connected(gateway) as (reader, writer):
        writer.write(head % gateway.http_port)
        with pytest.raises(ConnectionResetError):
            assert await reader.read() == b""
            raise ConnectionResetError


async def test_body_after_the_response_is_cut_off(gateway: GatewayUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.http.connection.BODY_SECONDS", 0.05)
    async with connected(gateway) as (reader, writer):
        writer.write(b"POST /healthz HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n")
        assert b"421" in await reader.readline()
        with pytest.raises(ConnectionError):
            while not writer.is_closing():
                writer.write(b"1\r\na\r\n")
                await writer.drain()
                await asyncio.sleep(0.005)
            raise ConnectionResetError


async def test_upgrade_request_is_served_as_http(gateway: GatewayUnderTest) -> None:
    upgrade = {"connection": "upgrade", "upgrade": "websocket"}
    assert (await gateway.http.get("/healthz", headers=upgrade)).status_code == 200


async def test_pipelined_requests_are_answered_in_order(gateway: GatewayUnderTest) -> None:
    own = f"host: localhost:{gateway.http_port}".encode()
    async with connected(gateway) as (reader, writer):
        for path, more in ((b"/healthz", b""), (b"/nowhere", b""), (b"/healthz", b"connection: close\r\n")):
            writer.write(b"GET %s HTTP/1.1\r\n%s\r\n%s\r\n" % (path, own, more))
        answers = await reader.read()
    assert re.findall(rb"HTTP/1.1 (\d+)", answers) == [b"200", b"404", b"200"]


async def test_body_after_a_later_response_on_the_connection_is_cut_off(
    gateway: GatewayUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.http.connection.BODY_SECONDS", 0.05)
    own = f"host: localhost:{gateway.http_port}".encode()
    async with connected(gateway) as (reader, writer):
        writer.write(b"GET /nowhere HTTP/1.1\r\n%s\r\n\r\n" % own)
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(head.lower().partition(b"content-length:")[2].split()[0]))
        writer.write(b"POST /nowhere HTTP/1.1\r\n%s\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n" % own)
        assert b"404" in await reader.readline()
        with pytest.raises(ConnectionError):
            while not writer.is_closing():
                writer.write(b"1\r\na\r\n")
                await writer.drain()
                await asyncio.sleep(0.005)
            raise ConnectionResetError

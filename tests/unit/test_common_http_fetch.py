import asyncio
import gzip
import ipaddress
import ssl
from collections.abc import AsyncIterator, Sequence

import pytest
import trustme

from services.common.errors import ServiceError
from services.common.http_fetch.addresses import Address, AllowList
from services.common.http_fetch.fetch import FetchedFile, FetchLimits, fetch
from services.common.http_fetch.ssrf_guard import SsrfGuard
from tests.support.web_server import Reply, Web, redirect, reply, web_server

PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(5000)
LIMITS = FetchLimits(10_000, answer_seconds=0.5, total_seconds=2)


async def on_loopback(_host: str, _port: int) -> Sequence[Address]:
    return [ipaddress.ip_address("127.0.0.1")]


async def endless(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    while not writer.is_closing():
        writer.write(b"1000\r\n" + bytes(4096) + b"\r\n")
        await writer.drain()


async def silent(writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def stalling(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nabc")
    await asyncio.Event().wait()


async def dripping(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n")
    while not writer.is_closing():
        writer.write(b".")
        await writer.drain()
        await asyncio.sleep(0.1)


async def dripping_head(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while not writer.is_closing():
        writer.write(b"a: b\r\n")
        await writer.drain()
        await asyncio.sleep(0.1)


@pytest.fixture
async def web() -> AsyncIterator[Web]:
    replies: dict[str, Reply] = {
        "/a%20b.png": reply(PICTURE, content_type="Image/PNG; q=1"),
        "/cookie": reply(PICTURE, status="302 Found", location="/after", set_cookie="a=b"),
        "/after": reply(b"after"),
        "/missing": reply(status="404 Not Found"),
        "/error": reply(b"secret of theirs", status="500 Internal Server Error"),
        "/part": reply(b"x", status="206 Partial Content"),
        "/gzip": reply(gzip.compress(bytes(10**7)), content_encoding="gzip"),
        "/long": reply(bytes(10_001)),
        "/model": reply(b"x", content_type="model/gltf-binary"),
        "/endless": endless,
        "/silent": silent,
        "/stalling": stalling,
        "/dripping": dripping,
        "/dripping-head": dripping_head,
        "/short": b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nabc",
        "/nonsense": b"220 smtp.test ESMTP\r\n",
        "/loop": redirect("/loop"),
        "/nowhere": redirect(""),
        "/file": redirect("file:///etc/passwd"),
        "/metadata": redirect("http://169.254.169.254/latest/meta-data/"),
        "/decimal": redirect("http://2130706433/"),
        "/signed-in": redirect("http://user:secret@pictures.test/"),
    }
    async with web_server(replies) as opened:
        opened.replies["/elsewhere"] = redirect(f"http://127.0.0.1:{opened.port}/after")
        yield opened


async def read(
    web: Web, path: str, limits: FetchLimits = LIMITS, host: str = "pictures.test"
) -> tuple[FetchedFile, bytes]:
    guard = SsrfGuard(AllowList.parse([f"pictures.test:{web.port}"]), on_loopback)
    async with fetch(f"http://{host}:{web.port}{path}", guard, limits) as found:
        return found, b"".join([piece async for piece in found.content])


async def test_allowed_server_receives_its_host_name(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    found, content = await read(web, "/a%20b.png?size=2")
    assert found.media_type == "image/png"
    assert found.name == "a b.png"
    assert content == PICTURE
    assert f"host: pictures.test:{web.port}" in web.requests[0].lower()
    assert "accept-encoding: identity" in web.requests[0].lower()


async def test_redirects_are_followed_without_cookies(web: Web) -> None:
    assert (await read(web, "/cookie"))[1] == b"after"
    assert "cookie" not in web.requests[1].lower()


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/missing", "FETCH_FAILED"),
        ("/error", "FETCH_FAILED"),
        ("/part", "FETCH_FAILED"),
        ("/gzip", "FETCH_FAILED"),
        ("/long", "TOO_LARGE"),
        ("/endless", "TOO_LARGE"),
        ("/model", "FILE_TYPE"),
        ("/silent", "FETCH_FAILED"),
        ("/stalling", "FETCH_FAILED"),
        ("/dripping", "FETCH_FAILED"),
        ("/short", "FETCH_FAILED"),
        ("/nonsense", "FETCH_FAILED"),
        ("/loop", "FETCH_FAILED"),
        ("/nowhere", "FETCH_FAILED"),
        ("/file", "URL"),
        ("/metadata", "URL_ADDRESS"),
        ("/decimal", "URL"),
        ("/signed-in", "URL"),
        ("/elsewhere", "URL_ADDRESS"),
    ],
)
async def test_bad_response_is_rejected_without_quoting_it(web: Web, path: str, reason: str) -> None:
    with pytest.raises(ServiceError) as caught:
        await read(web, path)
    assert caught.value.reason == reason
    assert caught.value.remedy
    assert "secret" not in caught.value.message
    assert len(web.requests) <= LIMITS.redirects + 1


async def test_endless_response_headers_time_out(web: Web) -> None:
    with pytest.raises(ServiceError, match="took too long"):
        await read(web, "/dripping-head", FetchLimits(10_000, answer_seconds=0.5, total_seconds=1))


async def test_loopback_requires_an_allow_list_entry(web: Web) -> None:
    for host in ("127.0.0.1", "localhost", "other.test"):
        with pytest.raises(ServiceError) as caught:
            await read(web, "/after", host=host)
        assert caught.value.reason == "URL_ADDRESS"
    assert web.requests == []


async def test_name_is_resolved_once_per_connection_and_again_after_a_redirect(web: Web) -> None:
    answers = iter(["127.0.0.1", "127.0.0.2", "127.0.0.3"])

    async def rebinding(_host: str, _port: int) -> Sequence[Address]:
        return [ipaddress.ip_address(next(answers))]

    guard = SsrfGuard(AllowList(frozenset({("rebinding.test", web.port)})), rebinding)
    async with fetch(f"http://rebinding.test:{web.port}/after", guard, LIMITS) as found:
        assert [piece async for piece in found.content] == [b"after"]
    assert next(answers) == "127.0.0.2"


async def test_name_that_resolves_differently_after_a_redirect_is_rejected(web: Web) -> None:
    async def moving(_host: str, _port: int) -> Sequence[Address]:
        return [ipaddress.ip_address("127.0.0.2" if web.requests else "127.0.0.1")]

    allowed = AllowList.parse(["127.0.0.1", f"first.test:{web.port}"])
    web.replies["/"] = redirect("http://second.test/")
    with pytest.raises(ServiceError) as caught:
        async with fetch(f"http://first.test:{web.port}/", SsrfGuard(allowed, moving), LIMITS):
            pass
    assert caught.value.reason == "URL_ADDRESS"
    assert len(web.requests) == 1


@pytest.fixture
async def secure() -> AsyncIterator[tuple[Web, ssl.SSLContext]]:
    """A server with a certificate for pictures.test, and a client context that trusts it."""
    authority = trustme.CA()
    served, trusting = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), ssl.create_default_context()
    authority.issue_cert("pictures.test").configure_cert(served)
    authority.configure_trust(trusting)
    async with web_server({"/": reply(b"secure"), "/down": redirect("http://pictures.test/")}, served) as web:
        yield web, trusting


async def test_certificate_is_verified_against_the_name(secure: tuple[Web, ssl.SSLContext]) -> None:
    web, trusting = secure
    guard = SsrfGuard(AllowList.parse(["127.0.0.1", "pictures.test", "other.test"]), on_loopback, lambda: trusting)
    async with fetch(f"https://pictures.test:{web.port}/", guard, LIMITS) as found:
        assert [piece async for piece in found.content] == [b"secure"]
    assert web.names == ["pictures.test"]
    for host in ("other.test", "127.0.0.1"):
        with pytest.raises(ServiceError) as caught:
            async with fetch(f"https://{host}:{web.port}/", guard, LIMITS):
                pass
        assert caught.value.reason == "URL_ADDRESS"
    with pytest.raises(ServiceError):
        async with fetch(f"https://pictures.test:{web.port}/", SsrfGuard(guard.allowed, on_loopback), LIMITS):
            pass
    assert len(web.requests) == 1


async def test_redirect_from_https_to_http_is_rejected(secure: tuple[Web, ssl.SSLContext]) -> None:
    web, trusting = secure
    guard = SsrfGuard(AllowList.parse(["pictures.test"]), on_loopback, lambda: trusting)
    with pytest.raises(ServiceError, match="from https to http"):
        async with fetch(f"https://pictures.test:{web.port}/down", guard, LIMITS):
            pass

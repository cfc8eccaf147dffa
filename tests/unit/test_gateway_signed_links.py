import socket

import pytest
from grpc import StatusCode

from gateway.http.authentication import OriginGuard
from gateway.http.problem import MethodNotAllowed, RangeNotSatisfiable, RouteNotFound, http_status, problem
from gateway.http.server import bind_listener, host_and_port, require_loopback
from services.common import errors

HEADERS = list[tuple[bytes, bytes]]


def passes(headers: HEADERS, port: int = 8080) -> bool:
    """Whether a request with these headers is accepted."""
    try:
        OriginGuard(port).check(headers)
    except errors.PermissionDenied:
        return False
    return True


@pytest.mark.parametrize("host", [b"localhost:8080", b"LOCALHOST:8080", b"127.0.0.1:8080", b"[::1]:8080"])
def test_loopback_host_with_own_port_is_accepted(host: bytes) -> None:
    assert passes([(b"host", host)])


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [(b"host", b"")],
        [(b"host", b"evil.example:8080")],
        [(b"host", b"localhost")],
        [(b"host", b"localhost:8081")],
        [(b"host", b"localhost:80800")],
        [(b"host", b"localhost.:8080")],
        [(b"host", b"127.0.0.1.evil.example:8080")],
        [(b"host", b"127.0.0.2:8080")],
        [(b"host", b"evil@localhost:8080")],
        [(b"host", b"0.0.0.0:8080")],
        [(b"host", b"[::ffff:127.0.0.1]:8080")],
        [(b"host", b"localhost:8080"), (b"host", b"evil.example")],
        [(b"host", b"localhost:8080"), (b"origin", b"https://evil.example")],
        [(b"host", b"localhost:8080"), (b"origin", b"null")],
        [(b"host", b"localhost:8080"), (b"origin", b"")],
        [(b"host", b"localhost:8080"), (b"origin", b"http://localhost:3000")],
        [(b"host", b"localhost:8080"), (b"origin", b"https://localhost:8080")],
        [(b"host", b"localhost:8080"), (b"origin", b"http://localhost:8080.evil.example")],
        [(b"host", b"localhost:8080"), (b"origin", b"http://localhost:8080"), (b"origin", b"http://evil.example")],
    ],
    ids=str,
)
def test_foreign_host_or_origin_is_rejected(headers: HEADERS) -> None:
    assert not passes(headers)


@pytest.mark.parametrize("origin", [b"http://localhost:8080", b"http://127.0.0.1:8080", b"http://[::1]:8080"])
def test_own_origin_is_accepted(origin: bytes) -> None:
    assert passes([(b"host", b"127.0.0.1:8080"), (b"origin", origin)])


def test_host_without_port_is_accepted_on_port_80() -> None:
    assert passes([(b"host", b"localhost")], port=80)


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "127.0.0.53:1", "localhost:8080", "[::1]:8080"])
def test_loopback_listen_address_is_accepted(listen: str) -> None:
    require_loopback(listen)


@pytest.mark.parametrize(
    "listen",
    [
        "0.0.0.0:8080",
        "[::]:8080",
        "10.0.0.1:8080",
        "example.org:8080",
        "8080",
        ":8080",
        "127.0.0.1:http",
        "127.0.0.1:65536",
    ],
)
def test_other_listen_address_is_rejected_with_remedy(listen: str) -> None:
    with pytest.raises(errors.InvalidRequest) as caught:
        require_loopback(listen)
    assert caught.value.remedy


def test_malformed_listen_address_is_rejected() -> None:
    assert host_and_port("[::1]:80") == ("::1", 80)


def test_port_in_use_is_reported() -> None:
    with bind_listener("127.0.0.1:0") as first:
        with (
            pytest.raises(errors.Unavailable, match="cannot listen") as caught,
            bind_listener(f"127.0.0.1:{first.getsockname()[1]}"),
        ):
            pass
        assert "GATEWAY_HTTP_LISTEN" in caught.value.remedy


def test_nagle_delay_is_disabled() -> None:
    with bind_listener("127.0.0.1:0") as listener:
        assert listener.proto == socket.IPPROTO_TCP  # asyncio turns Nagle's algorithm off only where it sees this


STATUSES = [
    (errors.InvalidRequest("x"), 400),
    (errors.InvalidRequest("x", reason="TOO_LARGE"), 413),
    (errors.InvalidRequest("x", reason="CONTENT_TYPE"), 415),
    (errors.NotFound("x", reason="RUN"), 404),
    (errors.AlreadyExists("x", reason="IDEMPOTENCY"), 422),
    (errors.PermissionDenied("x"), 403),
    (errors.PermissionDenied("x", reason="HOST"), 421),
    (errors.FailedPrecondition("x", reason="RUNNING"), 409),
    (errors.Overloaded("x"), 429),
    (errors.OutOfMemory("x"), 503),
    (errors.ModelFailed("x"), 500),
    (errors.CorruptData("x"), 500),
    (errors.DeadlineExceeded("x"), 504),
    (errors.Unavailable("x"), 503),
    (errors.Unimplemented("x"), 501),
    (errors.ServiceError("x"), 500),
    (RouteNotFound("x"), 404),
    (MethodNotAllowed("x"), 405),
    (RangeNotSatisfiable("x"), 416),
]


@pytest.mark.parametrize(("error", "status"), STATUSES, ids=lambda side: str(getattr(side, "reason", side)))
def test_every_error_reason_has_one_http_status(error: errors.ServiceError, status: int) -> None:
    body = problem(error)
    assert http_status(error) == status == body["status"]
    assert body["code"] == error.reason == body["error"]["code"]
    assert (body["error"]["type"] == "server_error") is (status >= 500)


def test_every_grpc_error_code_has_an_http_status() -> None:
    for code in StatusCode:
        error = errors.ServiceError("x")
        error.code = code
        assert 400 <= http_status(error) < 600

"""A gateway without authentication serves only its own machine: requests of other sites reach no route."""

import httpx
import pytest

from tests.system.conftest import LocalStack


async def routes(http: httpx.AsyncClient) -> list[tuple[str, str]]:
    """Every described method and path, the documentation pages, and an unknown path."""
    described = (await http.get("/openapi.json")).json()["paths"]
    known = [
        (method.upper(), path.replace("{", "").replace("}", ""))
        for path, methods in described.items()
        for method in methods
    ]
    return [*known, ("GET", "/docs"), ("GET", "/openapi.json"), ("GET", "/nowhere")]


@pytest.mark.parametrize(
    ("header", "value", "status", "code"),
    [
        ("host", "evil.example", 421, "HOST"),
        ("host", "localhost:1", 421, "HOST"),
        ("origin", "https://evil.example", 403, "ORIGIN"),
        ("origin", "null", 403, "ORIGIN"),
    ],
)
async def test_requests_of_other_hosts_and_origins_are_rejected(
    http: httpx.AsyncClient, header: str, value: str, status: int, code: str
) -> None:
    known = await routes(http)
    assert {("POST", "/v1/runs"), ("GET", "/readyz"), ("GET", "/v1/artifacts/sha256")} <= set(known)
    before = (await http.get("/v1/runs?page_size=1")).json()["data"]
    for method, path in known:
        response = await http.request(method, path, headers={header: value}, json={"request": "x"})
        assert response.status_code == status, (method, path)
        assert method == "HEAD" or (response.json()["code"] == code and response.json()["remedy"])
    assert (await http.get("/v1/runs?page_size=1")).json()["data"] == before


async def test_requests_of_own_hosts_and_origins_are_accepted(local_stack: LocalStack, http: httpx.AsyncClient) -> None:
    port = httpx.URL(local_stack.url).port
    for name in ("localhost", "127.0.0.1", "[::1]"):
        own = f"{name}:{port}"
        for headers in ({"host": own}, {"host": own, "origin": f"http://{own}"}):
            assert (await http.get("/readyz", headers=headers)).status_code == 200

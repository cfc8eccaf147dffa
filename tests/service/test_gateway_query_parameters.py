"""Query parameters that a route does not declare are rejected, with the nearest known name."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.gateway import GatewayUnderTest, start_gateway


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[GatewayUnderTest]:
    async with start_gateway(tmp_path) as opened:
        yield opened


@pytest.mark.parametrize(
    ("path", "unknown", "remedy"),
    [
        ("/v1/runs?limit=1", "limit", "did you mean page_size?"),
        ("/v1/runs?page_sise=1", "page_sise", "did you mean page_size?"),
        ("/v1/runs?after=run_1", "after", "did you mean page_token?"),
        ("/v1/runs?state=running&Conversation=x", "Conversation", "did you mean conversation_id?"),
        ("/v1/pipeline-batches?status=failed", "status", "did you mean state?"),
        ("/v1/files?page_size=1", "page_size", "did you mean limit?"),
        ("/v1/files?page_token=x", "page_token", "did you mean after?"),
        ("/v1/models?colour=red", "colour", "use task, page_size, page_token, or leave it out"),
        ("/v1/runs/run_1?verbose=1", "verbose", "leave it out: this path takes no query parameters"),
    ],
)
async def test_unknown_query_parameter_is_rejected_with_the_nearest_name(
    gateway: GatewayUnderTest, path: str, unknown: str, remedy: str
) -> None:
    response = await gateway.http.get(path)
    assert response.status_code == 400
    problem = response.json()
    assert problem["code"] == "UNKNOWN_FIELD"
    assert problem["detail"] == f"unknown query parameter {unknown}"
    assert problem["remedy"] == remedy
    assert problem["error"]["param"] == unknown


@pytest.mark.parametrize(
    "path",
    ["/v1/runs?page_size=1", "/v1/runs?state=running&state=queued", "/v1/files?limit=1", "/?batches", "/docs?x=1"],
)
async def test_known_query_parameters_and_those_of_pages_are_accepted(gateway: GatewayUnderTest, path: str) -> None:
    assert (await gateway.http.get(path)).status_code == 200

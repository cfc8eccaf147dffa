from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import httpx
import pytest

from services.common.artifacts.store import READ_BYTES
from tests.service.test_gateway_artifacts import CONTENT, RANGES, SIZE, TYPES, store_artifact
from tests.support.gateway import GatewayUnderTest, start_gateway
from tests.support.s3 import Bucket

pytestmark = pytest.mark.slow


def opened_on(bucket: Bucket, folder: Path, **settings: Any) -> AbstractAsyncContextManager[GatewayUnderTest]:
    return start_gateway(folder, settings={"ARTIFACTS_URL": bucket.url, **settings})


@pytest.fixture
async def gateway(bucket: Bucket, tmp_path: Path) -> AsyncIterator[GatewayUnderTest]:
    async with opened_on(bucket, tmp_path) as opened:
        yield opened


@pytest.fixture
async def gateway_without_presigning(bucket: Bucket, tmp_path: Path) -> AsyncIterator[GatewayUnderTest]:
    """Clients cannot reach the store."""
    async with opened_on(bucket, tmp_path, presign=False) as opened:
        yield opened


async def test_client_is_redirected_to_presigned_attachment(gateway: GatewayUnderTest) -> None:
    for media_type, stored, _ in TYPES:
        redirect = await gateway.http.get(await store_artifact(gateway, media_type=media_type))
        assert redirect.status_code == 307
        assert redirect.content == b""
        assert redirect.headers["cache-control"] == "no-store"
        async with httpx.AsyncClient(trust_env=False) as anonymous:
            response = await anonymous.get(redirect.headers["location"])
        assert response.status_code == 200
        assert response.content == CONTENT
        assert response.headers["content-type"] == stored
        assert response.headers["content-disposition"] == 'attachment; filename="a.png"'


async def test_head_and_conditional_requests_are_not_redirected(gateway: GatewayUnderTest) -> None:
    path = await store_artifact(gateway)
    head = await gateway.http.head(path)
    assert head.status_code == 200
    assert head.content == b""
    assert head.headers["content-length"] == str(SIZE)
    assert head.headers["content-type"] == "image/png"
    unchanged = await gateway.http.get(path, headers={"if-none-match": head.headers["etag"]})
    assert unchanged.status_code == 304


@pytest.mark.parametrize(("mode", "status"), [("no-cors", 200), ("cors", 200), ("same-origin", 200), ("navigate", 307)])
async def test_page_requests_are_not_redirected(gateway: GatewayUnderTest, mode: str, status: int) -> None:
    response = await gateway.http.get(await store_artifact(gateway), headers={"sec-fetch-mode": mode})
    assert response.status_code == status
    if status == 200:
        assert response.content == CONTENT
        assert response.headers["content-disposition"] == 'inline; filename="a.png"'


@pytest.mark.parametrize(("byte_range", "status", "expected"), RANGES, ids=[row[0] for row in RANGES])
async def test_ranges_are_proxied(
    gateway_without_presigning: GatewayUnderTest, byte_range: str, status: int, expected: bytes
) -> None:
    response = await gateway_without_presigning.http.get(
        await store_artifact(gateway_without_presigning), headers={"range": byte_range}
    )
    assert response.status_code == status
    assert response.content == expected
    assert response.headers["content-length"] == str(len(expected))
    assert ("content-range" in response.headers) is (status == 206)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"range": f"bytes={SIZE}-"}, 416),
        ({"range": "bytes=-0"}, 416),
        ({"range": "bytes=0-1", "if-range": '"other"'}, 200),
    ],
)
async def test_invalid_ranges_are_rejected_or_ignored(
    gateway_without_presigning: GatewayUnderTest, headers: Mapping[str, str], status: int
) -> None:
    assert (
        await gateway_without_presigning.http.get(await store_artifact(gateway_without_presigning), headers=headers)
    ).status_code == status


async def test_artifact_without_content_is_not_found(
    gateway_without_presigning: GatewayUnderTest, bucket: Bucket
) -> None:
    path = await store_artifact(gateway_without_presigning)
    bucket.remove(f"default/{path.rpartition('/')[2]}")
    response = await gateway_without_presigning.http.get(path)
    assert response.status_code == 404
    assert response.json()["code"] == "ARTIFACT"


async def test_store_failure_interrupts_the_response(
    gateway_without_presigning: GatewayUnderTest, bucket: Bucket
) -> None:
    content = bytes(3 * READ_BYTES)
    path = await store_artifact(gateway_without_presigning, content)
    with pytest.raises(httpx.RemoteProtocolError):
        async with gateway_without_presigning.http.stream("GET", path) as response:
            pieces = response.aiter_bytes()
            await anext(pieces)
            bucket.remove(f"default/{path.rpartition('/')[2]}")
            async for _ in pieces:
                pass


async def test_objects_of_other_tenants_are_not_found(gateway: GatewayUnderTest) -> None:
    artifact = await gateway.store.put("acme", b"theirs", media_type="text/plain", name="a.txt")
    assert (await gateway.http.get(f"/v1/artifacts/{artifact.sha256}")).status_code == 404


async def test_upload_is_stored_in_the_object_store(gateway: GatewayUnderTest, bucket: Bucket) -> None:
    content = b"\x89PNG\r\n\x1a\n" + bytes(6_000_000)
    files = {"file": ("a.png", content, "image/png")}
    response = await gateway.http.post("/v1/runs", data={"request": "do it"}, files=files)
    assert response.status_code == 202, response.text
    (run,) = gateway.orchestrator.runs.values()
    assert await gateway.store.get("default", run.spec.inputs[0].value.artifact.sha256) == content
    left = bucket.keys()
    assert not any(key.startswith("_staging") for key in left)


async def test_unavailable_store_is_a_problem_with_remedy(gateway: GatewayUnderTest, bucket: Bucket) -> None:
    bucket.drop()
    files = {"file": ("a.txt", b"words", "text/plain")}
    response = await gateway.http.post("/v1/runs", data={"request": "do it"}, files=files)
    assert response.status_code == 503
    assert response.json()["code"] == "UNAVAILABLE"
    assert "bucket does not exist" in response.json()["detail"]

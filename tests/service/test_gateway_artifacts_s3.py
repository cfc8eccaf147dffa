from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import httpx
import pytest

from services.common.artifacts.store import READ_BYTES
from tests.service.test_gateway_artifacts import CONTENT, RANGES, SIZE, TYPES, kept
from tests.support.gateway import Doors, opened_doors
from tests.support.s3 import Bucket

pytestmark = pytest.mark.slow


def opened_on(bucket: Bucket, folder: Path, **settings: Any) -> AbstractAsyncContextManager[Doors]:
    return opened_doors(folder, settings={"ARTIFACTS_URL": bucket.url, **settings})


@pytest.fixture
async def doors(bucket: Bucket, tmp_path: Path) -> AsyncIterator[Doors]:
    async with opened_on(bucket, tmp_path) as opened:
        yield opened


@pytest.fixture
async def unreachable(bucket: Bucket, tmp_path: Path) -> AsyncIterator[Doors]:
    """Clients cannot reach the store."""
    async with opened_on(bucket, tmp_path, presign=False) as opened:
        yield opened


async def test_a_client_is_sent_to_the_store_where_nothing_is_run(doors: Doors) -> None:
    for media_type, stored, _ in TYPES:
        redirect = await doors.http.get(await kept(doors, media_type=media_type))
        assert (redirect.status_code, redirect.content) == (307, b"")
        assert redirect.headers["cache-control"] == "no-store"
        async with httpx.AsyncClient(trust_env=False) as anybody:
            response = await anybody.get(redirect.headers["location"])
        assert (response.status_code, response.content) == (200, CONTENT)
        assert response.headers["content-type"] == stored
        assert response.headers["content-disposition"] == 'attachment; filename="a.png"'


async def test_head_and_conditions_are_answered_here(doors: Doors) -> None:
    path = await kept(doors)
    head = await doors.http.head(path)
    assert (head.status_code, head.content) == (200, b"")
    assert (head.headers["content-length"], head.headers["content-type"]) == (str(SIZE), "image/png")
    unchanged = await doors.http.get(path, headers={"if-none-match": head.headers["etag"]})
    assert unchanged.status_code == 304


@pytest.mark.parametrize(("mode", "status"), [("no-cors", 200), ("cors", 200), ("same-origin", 200), ("navigate", 307)])
async def test_what_a_page_loads_comes_from_here(doors: Doors, mode: str, status: int) -> None:
    response = await doors.http.get(await kept(doors), headers={"sec-fetch-mode": mode})
    assert response.status_code == status
    if status == 200:
        assert (response.content, response.headers["content-disposition"]) == (CONTENT, 'inline; filename="a.png"')


@pytest.mark.parametrize(("wished", "status", "expected"), RANGES, ids=[row[0] for row in RANGES])
async def test_a_part_or_all_of_it_is_passed_on(unreachable: Doors, wished: str, status: int, expected: bytes) -> None:
    response = await unreachable.http.get(await kept(unreachable), headers={"range": wished})
    assert (response.status_code, response.content) == (status, expected)
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
async def test_a_part_that_cannot_be_had_is_refused_or_all(
    unreachable: Doors, headers: Mapping[str, str], status: int
) -> None:
    assert (await unreachable.http.get(await kept(unreachable), headers=headers)).status_code == status


async def test_an_artifact_whose_bytes_are_gone_is_not_found(unreachable: Doors, bucket: Bucket) -> None:
    path = await kept(unreachable)
    bucket.remove(f"default/{path.rpartition('/')[2]}")
    response = await unreachable.http.get(path)
    assert (response.status_code, response.json()["code"]) == (404, "ARTIFACT")


async def test_a_store_that_vanishes_breaks_the_answer_off(unreachable: Doors, bucket: Bucket) -> None:
    content = bytes(3 * READ_BYTES)
    path = await kept(unreachable, content)
    with pytest.raises(httpx.RemoteProtocolError):
        async with unreachable.http.stream("GET", path) as response:
            pieces = response.aiter_bytes()
            await anext(pieces)
            bucket.remove(f"default/{path.rpartition('/')[2]}")
            async for _ in pieces:
                pass


async def test_a_tenants_prefix_is_the_only_one_looked_in(doors: Doors) -> None:
    artifact = await doors.store.put("acme", b"theirs", media_type="text/plain", name="a.txt")
    assert (await doors.http.get(f"/v1/artifacts/{artifact.sha256}")).status_code == 404


async def test_an_upload_goes_to_the_store(doors: Doors, bucket: Bucket) -> None:
    content = b"\x89PNG\r\n\x1a\n" + bytes(6_000_000)
    files = {"file": ("a.png", content, "image/png")}
    response = await doors.http.post("/v1/runs", data={"request": "do it"}, files=files)
    assert response.status_code == 202, response.text
    (run,) = doors.orchestrator.runs.values()
    assert await doors.store.get("default", run.spec.inputs[0].value.artifact.sha256) == content
    left = bucket.keys()
    assert not any(key.startswith("_staging") for key in left)


async def test_a_store_that_is_not_there_is_a_problem_with_a_remedy(doors: Doors, bucket: Bucket) -> None:
    bucket.drop()
    files = {"file": ("a.txt", b"words", "text/plain")}
    response = await doors.http.post("/v1/runs", data={"request": "do it"}, files=files)
    assert (response.status_code, response.json()["code"]) == (503, "UNAVAILABLE")
    assert "bucket does not exist" in response.json()["detail"]

import asyncio
import hashlib
import socket
import time
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta

import httpx
import pytest

from services.common.artifacts import ArtifactStore
from services.common.artifacts.store import READ_BYTES
from services.common.errors import CorruptData, InvalidRequest, NotFound, Unavailable
from tests.support.s3 import Bucket
from tests.support.web_server import reply, web_server

HELLO = hashlib.sha256(b"hello").hexdigest()
LARGE = bytes(range(256)) * 4096 * 12
"""12 MiB: three parts."""


@pytest.fixture
def store(bucket: Bucket) -> ArtifactStore:
    return ArtifactStore.open(bucket.url)


async def pieces(content: bytes, size: int = 300_000) -> AsyncIterator[bytes]:
    for start in range(0, len(content), size):
        yield content[start : start + size]


async def read(store: ArtifactStore, sha256: str, **part: int) -> bytes:
    return b"".join([piece async for piece in store.stream("default", sha256, **part)])


async def test_put_content_can_be_read_back(store: ArtifactStore, bucket: Bucket) -> None:
    artifact = await store.put("default", b"hello", media_type="text/plain", name="greeting.txt")
    assert artifact.sha256 == HELLO
    assert artifact.size_bytes == 5
    assert await store.get("default", HELLO) == await read(store, HELLO) == b"hello"
    assert await store.head("default", HELLO) == artifact
    assert await store.contains("default", HELLO)
    assert store.path("default", HELLO) is None
    assert bucket.keys() == {f"default/{HELLO}", f"default/{HELLO}.json"}


async def test_multipart_stream_is_stored_under_its_digest(store: ArtifactStore, bucket: Bucket) -> None:
    artifact = await store.put_stream("default", pieces(LARGE), media_type="image/png", name="a.png", limit=len(LARGE))
    assert artifact.sha256 == hashlib.sha256(LARGE).hexdigest()
    assert artifact.size_bytes == len(LARGE)
    assert await store.get("default", artifact.sha256) == await read(store, artifact.sha256) == LARGE
    assert bucket.keys() == {f"default/{artifact.sha256}", f"default/{artifact.sha256}.json"}


@pytest.mark.parametrize("size", [0, 1, 1024 * 1024, 1024 * 1024 + 1, READ_BYTES, READ_BYTES + 1])
async def test_streams_of_any_length_are_stored(store: ArtifactStore, size: int) -> None:
    content = LARGE[:size]
    artifact = await store.put_stream("default", pieces(content), media_type="", name="", limit=size)
    assert await read(store, artifact.sha256) == content


@pytest.mark.parametrize(("start", "length"), [(0, 1), (5, READ_BYTES), (READ_BYTES, READ_BYTES + 7), (100, 2**40)])
async def test_range_is_read_alone(store: ArtifactStore, start: int, length: int) -> None:
    artifact = await store.put("default", LARGE, media_type="image/png", name="a.png")
    assert await read(store, artifact.sha256, start=start, length=length) == LARGE[start : start + length]


@pytest.mark.parametrize("content", [b"hello", LARGE], ids=["small", "large"])
async def test_presigned_url_downloads_without_credentials_as_attachment(
    store: ArtifactStore, bucket: Bucket, content: bytes
) -> None:
    artifact = await store.put_stream("default", pieces(content), media_type="text/html", name="ä.html", limit=10**9)
    url = await store.presigned_url("default", artifact.sha256, timedelta(seconds=60))
    assert url
    async with httpx.AsyncClient(trust_env=False) as anybody:
        response = await anybody.get(url)
        part = await anybody.get(url, headers={"range": "bytes=1-3"})
    assert response.status_code == 200
    assert response.content == content
    assert response.headers["content-type"] == "application/octet-stream"
    assert response.headers["content-disposition"].startswith("attachment; filename=")
    assert "X-Amz-Expires=60" in url
    assert part.status_code == 206
    assert part.content == content[1:4]


async def test_other_tenants_cannot_read_an_artifact(store: ArtifactStore) -> None:
    await store.put("default", b"hello", media_type="text/plain", name="greeting.txt")
    for look in (store.get, store.head):
        with pytest.raises(NotFound) as caught:
            await look("other", HELLO)
        assert caught.value.reason == "ARTIFACT"
    with pytest.raises(NotFound):
        await read_other(store)
    assert not await store.contains("other", HELLO)


async def read_other(store: ArtifactStore) -> bytes:
    return b"".join([piece async for piece in store.stream("other", HELLO)])


async def test_changed_bytes_raise_corrupt_data(store: ArtifactStore, bucket: Bucket) -> None:
    await store.put("default", b"hello", media_type="text/plain", name="greeting.txt")
    bucket.overwrite(f"default/{HELLO}", b"hullo")
    for look in (store.get("default", HELLO), read(store, HELLO)):
        with pytest.raises(CorruptData):
            await look


async def test_failed_or_too_long_stream_leaves_no_objects(store: ArtifactStore, bucket: Bucket) -> None:
    async def fail() -> AsyncIterator[bytes]:
        async for piece in pieces(LARGE):
            yield piece
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await store.put_stream("default", fail(), media_type="", name="", limit=10**9)
    with pytest.raises(InvalidRequest, match="larger than the limit"):
        await store.put_stream("default", pieces(LARGE), media_type="", name="", limit=len(LARGE) - 1)
    assert bucket.keys() == set()
    assert bucket.unfinished() == []


async def test_cancelled_stream_leaves_no_objects(store: ArtifactStore, bucket: Bucket) -> None:
    sent, never = asyncio.Event(), asyncio.Event()

    async def stall() -> AsyncIterator[bytes]:
        async for piece in pieces(LARGE):
            yield piece
        sent.set()
        await never.wait()

    putting = asyncio.create_task(store.put_stream("default", stall(), media_type="", name="", limit=10**9))
    await sent.wait()
    putting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await putting
    assert bucket.keys() == set()
    assert bucket.unfinished() == []


async def test_written_before_lists_only_old_artifacts(store: ArtifactStore, bucket: Bucket) -> None:
    await store.put("default", b"hello", media_type="text/plain", name="greeting.txt")
    bucket.overwrite("_staging/left", b"x")
    soon = time.time() + 5
    assert [page async for page in store.written_before(soon - 3600) if page] == []
    assert [page async for page in store.written_before(soon)] == [[("default", HELLO)]]
    assert not await store.discard("default", HELLO, last_written_before=soon - 3600)
    await store.discard_staged(last_written_before=soon)
    assert await store.discard("default", HELLO, last_written_before=soon)
    assert bucket.keys() == set()
    await store.discard("default", HELLO, last_written_before=soon)


async def test_key_values_are_stored_separately_from_artifacts(store: ArtifactStore) -> None:
    notes = store.key_values("cards")
    await notes.put("a/b", b"1")
    assert await notes.all() == {"a/b": b"1"}
    await notes.delete("a/b")
    await notes.delete("a/b")
    assert await notes.all() == {}


async def errors_of_all_methods(store: ArtifactStore) -> list[Unavailable]:
    """The errors of all methods of a store."""
    wanted = (
        lambda: store.put("default", b"hello", media_type="", name=""),
        lambda: store.put_stream("default", pieces(LARGE), media_type="", name="", limit=10**9),
        lambda: store.head("default", HELLO),
        lambda: store.get("default", HELLO),
        lambda: read(store, HELLO),
        lambda: store.discard_staged(last_written_before=0),
        lambda: store.key_values("cards").put("a", b""),
    )
    caught = []
    for each in wanted:
        with pytest.raises(Unavailable) as refused:
            await each()
        assert refused.value.remedy
        assert "127.0.0.1" not in refused.value.message
        caught.append(refused.value)
    return caught


async def test_missing_bucket_is_reported(bucket: Bucket) -> None:
    errors = await errors_of_all_methods(ArtifactStore.open(f"s3://not-{bucket.name}"))
    assert "bucket does not exist" in errors[0].message
    assert "bucket does not exist" in errors[1].message
    assert "bucket does not exist" in errors[2].message


@pytest.fixture
def short_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shortens timeouts of seconds to tenths."""
    monkeypatch.setattr("services.common.object_store.REQUEST_TIMEOUT", timedelta(seconds=0.5))
    monkeypatch.setattr("services.common.artifacts.upload.ABORT_SECONDS", 1.0)
    retries = {"max_retries": 1, "retry_timeout": timedelta(seconds=1)}
    monkeypatch.setattr("services.common.object_store._RETRIES", retries)


@pytest.fixture
def unused_port() -> Iterator[int]:
    """A port that no program listens on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@pytest.mark.usefixtures("short_timeouts")
async def test_refused_connection_is_reported(
    bucket: Bucket, unused_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{unused_port}")
    assert all(
        "does not answer" in each.message for each in await errors_of_all_methods(ArtifactStore.open(bucket.url))
    )


@pytest.mark.usefixtures("short_timeouts")
async def test_silent_store_times_out(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    async def silent(writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    async with web_server({"*": silent}) as web:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{web.port}")
        errors = await errors_of_all_methods(ArtifactStore.open(bucket.url))
    assert all("does not answer" in each.message for each in errors)


async def test_invalid_credentials_are_reported(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    denied = b"<Error><Code>InvalidAccessKeyId</Code><Message>secret of theirs</Message></Error>"
    async with web_server({"*": reply(denied, status="403 Forbidden", connection="close")}) as web:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{web.port}")
        errors = await errors_of_all_methods(ArtifactStore.open(bucket.url))
    assert {each.message for each in errors} == {"the artifact store denies access to this server"}
    assert not any("secret" in each.message for each in errors)


@pytest.mark.usefixtures("short_timeouts")
@pytest.mark.parametrize(
    "elsewhere", [{"AWS_METADATA_ENDPOINT": "http://127.0.0.1:9"}, {"AWS_WEB_IDENTITY_TOKEN_FILE": "/proc/none/token"}]
)
async def test_missing_credentials_report_the_variables_to_set(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch, elsewhere: dict[str, str]
) -> None:
    for keys in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(keys)
    for variable, value in {"AWS_ROLE_ARN": "arn:aws:iam::1:role/r", **elsewhere}.items():
        monkeypatch.setenv(variable, value)
    errors = await errors_of_all_methods(ArtifactStore.open(bucket.url))
    assert {each.message for each in errors} == {"no credentials for the artifact store are set"}
    assert all("AWS_ACCESS_KEY_ID" in each.remedy for each in errors)


def test_incomplete_credentials_are_reported_in_one_line(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(InvalidRequest, match=r"Missing SecretAccessKey$") as refused:
        ArtifactStore.open(bucket.url)
    assert "AWS_ variables" in refused.value.remedy


async def test_store_without_tls_requires_aws_allow_http(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ALLOW_HTTP")
    with pytest.raises(Unavailable, match="does not answer"):
        await ArtifactStore.open(bucket.url).head("default", HELLO)

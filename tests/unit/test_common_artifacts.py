import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.common.artifacts import ArtifactStore
from services.common.errors import CorruptData, InvalidRequest, NotFound, Unavailable

HELLO = hashlib.sha256(b"hello").hexdigest()


@pytest.fixture
def store(tmp_path: Path) -> ArtifactStore:
    return ArtifactStore.open((tmp_path / "artifacts with a space").as_uri())


async def chunks_of(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


def files(folder: Path) -> set[str]:
    """Names of the folders that hold a file."""
    return {path.parent.name for path in folder.rglob("*") if path.is_file()}


async def test_put_content_can_be_read_back(store: ArtifactStore) -> None:
    artifact = await store.put("default", b"hello", media_type="text/plain", name="greeting.txt")
    assert artifact.sha256 == HELLO
    assert artifact.size_bytes == 5
    assert await store.get("default", HELLO) == b"hello"
    assert await store.head("default", HELLO) == artifact
    assert b"".join([piece async for piece in store.stream("default", HELLO)]) == b"hello"
    path = store.path("default", HELLO)
    assert path
    assert path.read_bytes() == b"hello"


async def test_stream_is_stored_under_its_digest(store: ArtifactStore, tmp_path: Path) -> None:
    artifact = await store.put_stream(
        "default", chunks_of(b"hel", b"", b"lo"), media_type="text/plain", name="greeting.txt", limit=5
    )
    assert artifact.sha256 == HELLO
    assert artifact.size_bytes == 5
    assert await store.get("default", HELLO) == b"hello"
    assert "_staging" not in files(tmp_path)


async def test_empty_stream_becomes_an_empty_artifact(store: ArtifactStore) -> None:
    artifact = await store.put_stream("default", chunks_of(), media_type="text/plain", name="nothing", limit=5)
    assert await store.get("default", artifact.sha256) == b""


async def test_stream_over_the_limit_is_rejected_and_leaves_no_files(store: ArtifactStore, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="larger than the limit") as caught:
        await store.put_stream("default", chunks_of(b"hel", b"lo"), media_type="text/plain", name="big", limit=4)
    assert caught.value.reason == "TOO_LARGE"
    assert files(tmp_path) == set()


async def test_content_that_cannot_be_written_leaves_no_files(store: ArtifactStore, tmp_path: Path) -> None:
    path = store.path("default", HELLO)
    assert path
    path.mkdir(parents=True)
    with pytest.raises(Unavailable):
        await store.put("default", b"hello", media_type="text/plain", name="greeting.txt")
    assert files(tmp_path) == set()


async def test_other_tenants_cannot_read_an_artifact(store: ArtifactStore) -> None:
    await store.put("default", b"hello", media_type="text/plain", name="greeting.txt")
    for look in (store.get, store.head):
        with pytest.raises(NotFound) as caught:
            await look("other", HELLO)
        assert caught.value.reason == "ARTIFACT"
    with pytest.raises(NotFound):
        await anext(aiter(store.stream("other", HELLO)))


async def test_changed_bytes_raise_corrupt_data(store: ArtifactStore) -> None:
    await store.put("default", b"hello", media_type="text/plain", name="greeting.txt")
    path = store.path("default", HELLO)
    assert path
    path.write_bytes(b"hullo")
    with pytest.raises(CorruptData):
        await store.get("default", HELLO)
    with pytest.raises(CorruptData):
        assert [piece async for piece in store.stream("default", HELLO)]


@pytest.mark.parametrize("digest", ["", "abc", "../../etc/passwd", HELLO.upper(), HELLO + "/.."])
async def test_malformed_digests_are_rejected(store: ArtifactStore, digest: str) -> None:
    with pytest.raises(InvalidRequest):
        await store.get("default", digest)


@pytest.mark.parametrize("tenant", ["", "..", "a/b", "A", "-a", "a" * 64])
async def test_tenant_names_cannot_escape_the_folder(store: ArtifactStore, tenant: str) -> None:
    with pytest.raises(InvalidRequest):
        await store.put(tenant, b"hello", media_type="text/plain", name="greeting.txt")


def test_folder_that_cannot_be_created_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(Unavailable, match="cannot use"):
        ArtifactStore.open((tmp_path / "file" / "artifacts").as_uri())


@pytest.mark.parametrize("url", ["", "artifacts", "ftp://host/path", "gopher://x"])
def test_unsupported_url_is_an_invalid_request(url: str) -> None:
    with pytest.raises(InvalidRequest, match="artifact store"):
        ArtifactStore.open(url)


async def test_unwritable_store_reports_the_cause_without_the_path(tmp_path: Path) -> None:
    store = ArtifactStore.open(tmp_path.as_uri())
    (tmp_path / "default").write_text("in the way")
    with pytest.raises(Unavailable) as caught:
        await store.put("default", b"hello", media_type="text/plain", name="greeting.txt")
    assert caught.value.message.endswith(("Not a directory", "File exists"))
    assert str(tmp_path) not in caught.value.message


LARGE = bytes(range(256)) * 4096 * 5
"""5 MiB: several batches."""


async def test_long_stream_can_be_read_whole_and_by_range(store: ArtifactStore, tmp_path: Path) -> None:
    chunks = chunks_of(*(LARGE[at : at + 700_000] for at in range(0, len(LARGE), 700_000)))
    artifact = await store.put_stream("default", chunks, media_type="image/png", name="a.png", limit=len(LARGE))
    assert artifact.sha256 == hashlib.sha256(LARGE).hexdigest()
    assert await store.get("default", artifact.sha256) == LARGE
    part = store.stream("default", artifact.sha256, start=5, length=len(LARGE) - 10)
    assert b"".join([piece async for piece in part]) == LARGE[5:-5]
    assert "_staging" not in files(tmp_path)


@pytest.mark.parametrize("end", ["break", "cancel"])
async def test_failed_long_stream_leaves_no_files(store: ArtifactStore, tmp_path: Path, end: str) -> None:
    started, never = asyncio.Event(), asyncio.Event()

    async def stall() -> AsyncIterator[bytes]:
        yield LARGE
        yield LARGE
        started.set()
        await never.wait()
        raise ConnectionResetError

    putting = asyncio.create_task(store.put_stream("default", stall(), media_type="", name="", limit=10 * len(LARGE)))
    await started.wait()
    if end == "cancel":
        putting.cancel()
    else:
        never.set()
    with pytest.raises(asyncio.CancelledError if end == "cancel" else ConnectionResetError):
        await putting
    assert files(tmp_path) == set()

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from obstore.store import MemoryStore
from starlette.requests import Request

from gateway.http.artifact_routes import ArtifactRoutes
from gateway.http.multipart import MAX_PARTS
from protos.hugginggpt.v1 import gateway_pb2
from protos.hugginggpt.v1.artifact_pb2 import Artifact
from services.common.artifacts import ArtifactStore
from services.common.artifacts.downloads import download_headers
from tests.support.gateway import GatewayUnderTest, start_gateway

CONTENT = bytes(range(256)) * 10
SIZE = len(CONTENT)


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[GatewayUnderTest]:
    async with start_gateway(tmp_path) as opened:
        yield opened


async def store_artifact(
    gateway: GatewayUnderTest, content: bytes = CONTENT, media_type: str = "image/png", name: str = "a.png"
) -> str:
    artifact = await gateway.store.put("default", content, media_type=media_type, name=name)
    return f"/v1/artifacts/{artifact.sha256}"


async def test_artifact_is_served_with_type_and_etag(gateway: GatewayUnderTest) -> None:
    path = await store_artifact(gateway)
    response = await gateway.http.get(path)
    assert response.status_code == 200
    assert response.content == CONTENT
    assert response.headers["content-type"] == "image/png"
    assert response.headers["etag"] == f'"{path.rpartition("/")[2]}"'
    assert response.headers["accept-ranges"] == "bytes"


async def test_head_has_the_same_headers_without_body(gateway: GatewayUnderTest) -> None:
    path = await store_artifact(gateway)
    whole, head = await gateway.http.get(path), await gateway.http.head(path)
    assert head.status_code == 200
    assert head.content == b""
    same = ("content-length", "content-type", "etag", "content-disposition")
    assert [head.headers[name] for name in same] == [whole.headers[name] for name in same]


RANGES = [
    ("bytes=0-9", 206, CONTENT[:10]),
    ("bytes=100-", 206, CONTENT[100:]),
    ("bytes=-16", 206, CONTENT[-16:]),
    (f"bytes=5-{SIZE * 2}", 206, CONTENT[5:]),
    (f"bytes=-{SIZE * 2}", 206, CONTENT),
    ("bytes=7-3", 200, CONTENT),
    ("bytes=0-1,5-9", 200, CONTENT),
    ("bytes=", 200, CONTENT),
    ("bytes=x-y", 200, CONTENT),
    ("lines=1-2", 200, CONTENT),
]


@pytest.mark.parametrize(("byte_range", "status", "expected"), RANGES, ids=[row[0] for row in RANGES])
async def test_range_request_gets_a_part_or_the_whole(
    gateway: GatewayUnderTest, byte_range: str, status: int, expected: bytes
) -> None:
    response = await gateway.http.get(await store_artifact(gateway), headers={"range": byte_range})
    assert response.status_code == status
    assert response.content == expected
    if status == 206:
        start = (
            CONTENT.index(expected) if len(expected) > 256 else int(response.headers["content-range"][6:].split("-")[0])
        )
        assert response.headers["content-range"] == f"bytes {start}-{start + len(expected) - 1}/{SIZE}"


@pytest.mark.parametrize("byte_range", [f"bytes={SIZE}-", f"bytes={SIZE + 5}-{SIZE + 9}", "bytes=-0"])
async def test_range_outside_is_rejected(gateway: GatewayUnderTest, byte_range: str) -> None:
    response = await gateway.http.get(await store_artifact(gateway), headers={"range": byte_range})
    assert response.status_code == 416
    assert response.json()["code"] == "RANGE"


@pytest.mark.parametrize(
    ("form", "status"), [('"{}"', 304), ('W/"{}"', 304), ('"x", "{}"', 304), ("*", 304), ('"x"', 200)]
)
async def test_if_none_match_returns_304(gateway: GatewayUnderTest, form: str, status: int) -> None:
    path = await store_artifact(gateway)
    response = await gateway.http.get(path, headers={"if-none-match": form.format(path.rpartition("/")[2])})
    assert response.status_code == status
    assert bool(response.content) is (status == 200)


async def test_if_range_mismatch_returns_everything(gateway: GatewayUnderTest) -> None:
    path = await store_artifact(gateway)
    for tag, status in (('"other"', 200), (f'"{path.rpartition("/")[2]}"', 206)):
        headers = {"range": "bytes=0-9", "if-range": tag}
        assert (await gateway.http.get(path, headers=headers)).status_code == status


async def upload(gateway: GatewayUnderTest, *files: tuple[str, bytes]) -> list[dict[str, Any]]:
    response = await gateway.http.post("/v1/artifacts", files=[("file", file) for file in files])
    assert response.status_code == 200, response.text
    uploads: list[dict[str, Any]] = response.json()["data"]
    return uploads


async def test_many_files_are_uploaded_at_once(gateway: GatewayUnderTest) -> None:
    files = [(f"{number}.txt", b"note %d" % number) for number in range(100)]
    uploads = await upload(gateway, *files)
    assert [each["artifact"]["name"] for each in uploads] == [name for name, _ in files]
    sha256 = uploads[7]["artifact"]["sha256"]
    assert (await gateway.http.get(f"/v1/artifacts/{sha256}")).content == b"note 7"


async def test_invalid_file_of_an_upload_is_an_error_alone(gateway: GatewayUnderTest) -> None:
    first, empty, broken, last = await upload(
        gateway, ("a.txt", b"a"), ("empty.txt", b""), ("b.txt", b"\xff" * 3), ("c.txt", b"c")
    )
    assert "artifact" in first
    assert empty["error"]["code"] == "EMPTY_FILE"
    assert broken["error"]["code"] == "NOT_UTF8"
    assert last["artifact"]["name"] == "c.txt"


async def test_upload_creates_no_file(gateway: GatewayUnderTest) -> None:
    await upload(gateway, ("a.txt", b"a"))
    assert (await gateway.http.get("/v1/files")).json()["data"] == []


async def test_upload_of_too_many_files_is_rejected(gateway: GatewayUnderTest) -> None:
    files = [("file", ("a.txt", b"a"))] * (MAX_PARTS + 1)
    response = await gateway.http.post("/v1/artifacts", files=files)
    assert response.status_code == 413
    assert response.json()["code"] == "TOO_LARGE"


async def test_upload_with_another_field_is_rejected(gateway: GatewayUnderTest) -> None:
    response = await gateway.http.post("/v1/artifacts", files={"picture": ("a.txt", b"a")})
    assert response.status_code == 400
    assert response.json()["code"] == "UNKNOWN_FIELD"


async def test_upload_of_an_empty_form_is_rejected(gateway: GatewayUnderTest) -> None:
    headers = {"content-type": "multipart/form-data; boundary=x"}
    response = await gateway.http.post("/v1/artifacts", content=b"--x--\r\n", headers=headers)
    assert response.status_code == 400
    assert response.json()["detail"] == "the form contains no file"


async def test_upload_without_form_is_rejected(gateway: GatewayUnderTest) -> None:
    response = await gateway.http.post("/v1/artifacts", json={})
    assert response.status_code == 415


TYPES = [
    ("image/png", "image/png", "inline"),
    ("audio/wav", "audio/wav", "inline"),
    ("application/pdf", "application/pdf", "inline"),
    ("text/plain", "text/plain; charset=utf-8", "inline"),
    ("image/svg+xml", "application/octet-stream", "attachment"),
    ("text/html", "application/octet-stream", "attachment"),
    ("application/xml", "application/octet-stream", "attachment"),
    ("text/xml", "application/octet-stream", "attachment"),
    ("application/xhtml+xml", "application/octet-stream", "attachment"),
    ("text/javascript", "application/octet-stream", "attachment"),
    ("application/zip", "application/octet-stream", "attachment"),
    ("image/png\r\nset-cookie: a=b", "application/octet-stream", "attachment"),
    ("", "application/octet-stream", "attachment"),
]


@pytest.mark.parametrize(("media_type", "sent", "disposition"), TYPES, ids=[ascii(row[0]) for row in TYPES])
async def test_executable_content_is_an_attachment(
    gateway: GatewayUnderTest, media_type: str, sent: str, disposition: str
) -> None:
    response = await gateway.http.get(await store_artifact(gateway, media_type=media_type))
    assert response.headers["content-type"] == sent
    assert response.headers["content-disposition"].startswith(disposition)
    assert response.headers["x-content-type-options"] == "nosniff"
    assert "script-src 'none'" in response.headers["content-security-policy"]
    assert "set-cookie" not in response.headers


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a b.png", 'inline; filename="a b.png"'),
        ("../../etc/passwd", 'inline; filename="passwd"'),
        ('a";x="b.png', "inline; filename=\"a_;x=_b.png\"; filename*=UTF-8''a%22%3Bx%3D%22b.png"),
        ("a\r\nx: y.png", 'inline; filename="ax: y.png"'),
        ("写真.png", "inline; filename=\"__.png\"; filename*=UTF-8''%E5%86%99%E7%9C%9F.png"),
        ("", 'inline; filename="file"'),
    ],
    ids=ascii,
)
def test_file_name_cannot_inject_headers(name: str, expected: str) -> None:
    assert download_headers(Artifact(media_type="image/png", name=name))["content-disposition"] == expected


async def test_artifacts_of_other_tenants_are_not_found(gateway: GatewayUnderTest) -> None:
    artifact = await gateway.store.put("acme", b"theirs", media_type="text/plain", name="a.txt")
    assert (await gateway.http.get(f"/v1/artifacts/{artifact.sha256}")).status_code == 404


async def test_artifact_without_content_is_not_found(gateway: GatewayUnderTest) -> None:
    path = await store_artifact(gateway)
    local = gateway.store.path("default", path.rpartition("/")[2])
    assert local
    local.unlink()
    assert (await gateway.http.get(path)).status_code == 404


async def test_store_without_local_files_streams() -> None:
    store = ArtifactStore(MemoryStore())
    artifact = await store.put("default", CONTENT, media_type="image/png", name="a.png")
    sent = []

    async def receive() -> dict[str, str]:
        return {"type": "http.request"}

    async def send(message: dict[str, bytes]) -> None:
        sent.append(message)

    response = await ArtifactRoutes(store, SIZE).response(
        artifact.sha256, Request({"type": "http", "method": "GET", "headers": []})
    )
    await response({"type": "http", "asgi": {"spec_version": "2.4"}, "headers": []}, receive, send)  # type: ignore[arg-type]  # plain dicts are messages
    assert b"".join(message.get("body", b"") for message in sent) == CONTENT
    assert response.headers["content-length"] == str(SIZE)


async def test_grpc_upload_and_download(gateway: GatewayUnderTest) -> None:
    content = b"\x89PNG\r\n\x1a\n" + CONTENT * 1000
    pieces = [gateway_pb2.UploadArtifactRequest(name="/tmp/ä.png")]
    pieces += [
        gateway_pb2.UploadArtifactRequest(chunk=content[at : at + 1_000_000])
        for at in range(0, len(content), 1_000_000)
    ]
    artifact = await gateway.grpc.UploadArtifact(iter(pieces), timeout=10)
    assert artifact.name == "ä.png"
    assert artifact.media_type == "image/png"
    assert artifact.size_bytes == len(content)
    replies = [
        reply
        async for reply in gateway.grpc.DownloadArtifact(
            gateway_pb2.DownloadArtifactRequest(sha256=artifact.sha256), timeout=10
        )
    ]
    assert replies[0].artifact == artifact
    assert b"".join(reply.chunk for reply in replies[1:]) == content
    assert max(len(reply.chunk) for reply in replies[1:]) <= 1024 * 1024

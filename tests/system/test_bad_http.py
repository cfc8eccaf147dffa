"""Rejected HTTP and gRPC input: malformed bodies and messages, unknown ids, and oversized uploads."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import grpc
import httpx
import pytest
from grpc import StatusCode

from protos.hugginggpt.v1 import gateway_pb2
from protos.hugginggpt.v1 import gateway_pb2 as pb
from protos.hugginggpt.v1.gateway_pb2_grpc import GatewayServiceStub
from services.common.channel import MESSAGE_BYTES
from tests.system.conftest import LocalStack
from tests.system.endpoints import ApiError, http_api_error, rpc_api_error

pytestmark = pytest.mark.slow

SHA = "ab" * 32
MEGABYTE = 1_000_000
JSON = "application/json"
FORM = "multipart/form-data; boundary=X"


@pytest.fixture(scope="module", autouse=True)
def before(local_stack: LocalStack) -> frozenset[int]:
    """Process ids of the services before the first test."""
    return local_stack.child_pids()


def part(disposition: bytes, content: bytes) -> bytes:
    return b"--X\r\nContent-Disposition: form-data; %s\r\n\r\n%s\r\n--X--\r\n" % (disposition, content)


BODIES: dict[str, tuple[str, bytes, tuple[int, str, str]]] = {
    "no JSON": (JSON, b'{"request":', (400, "INVALID", "the body is not JSON")),
    "a list": (JSON, b"[]", (400, "INVALID", "the body is not a JSON object")),
    "JSON that is not UTF-8": (JSON, b'{"request":"\xff"}', (400, "NOT_UTF8", "the body is not UTF-8 (byte 12)")),
    "half a character": (JSON, b'{"request":"\\ud800"}', (400, "NOT_UTF8", "request contains an unpaired surrogate")),
    "endless nesting": (JSON, b'{"request":"x","inputs":' + b"[" * 100_000, (400, "INVALID", "nested too deeply")),
    "an unknown field": (JSON, b'{"reqest":"x"}', (400, "UNKNOWN_FIELD", "'reqest'")),
    "text": ("text/plain", b"Read this", (415, "CONTENT_TYPE", "the content type text/plain is not supported")),
    "a plain form": ("application/x-www-form-urlencoded", b"request=x", (415, "CONTENT_TYPE", "urlencoded")),
    "no type": ("", b"{}", (415, "CONTENT_TYPE", "the request states no content type")),
    "a field that is not UTF-8": (
        FORM,
        part(b'name="request"', b"\xff"),
        (400, "NOT_UTF8", "the request text is not UTF-8"),
    ),
    "a file name that is not UTF-8": (
        FORM,
        part(b'name="file"; filename="\xff.png"', b"x"),
        (400, "NOT_UTF8", "the name of a part or file is not UTF-8"),
    ),
    "a form that is cut off": (FORM, part(b'name="file"; filename="a.txt"', b"x" * 99)[:-20], (400, "INVALID", "ends")),
    "a thousand files": (
        FORM,
        part(b'name="file"; filename="a.txt"', b"x").removesuffix(b"--X--\r\n") * 1000 + b"--X--\r\n",
        (413, "TOO_LARGE", "the form has more than 256 fields and files"),
    ),
    "a form that is none": (FORM, b"request=x", (400, "INVALID", "the multipart body is not well formed")),
}


@pytest.mark.parametrize(("kind", "body", "expected"), BODIES.values(), ids=BODIES)
async def test_invalid_body_is_rejected(
    http: httpx.AsyncClient, kind: str, body: bytes, expected: tuple[int, str, str]
) -> None:
    headers = {"content-type": kind} if kind else {}
    check(http_api_error(await http.post("/v1/runs", content=body, headers=headers)), *expected)


PATHS = [
    ("GET", "/v1/runs/run_9", 404, "RUN"),
    ("GET", "/v1/runs/..%2F..%2Fetc", 404, "ROUTE"),
    ("GET", "/v1/runs/%00", 404, "RUN"),
    ("GET", "/v1/runs/%FF", 404, "RUN"),
    ("GET", f"/v1/runs/{'9' * 5000}", 404, "RUN"),
    ("GET", "/v1/runs/run_9/events", 404, "RUN"),
    ("POST", "/v1/runs/run_9/cancel", 404, "RUN"),
    ("DELETE", "/v1/runs/run_9", 404, "RUN"),
    ("GET", f"/v1/artifacts/{SHA}", 404, "ARTIFACT"),
    ("GET", f"/v1/artifacts/{SHA.upper()}", 400, "INVALID"),
    ("GET", "/v1/artifacts/..%2F..%2Fjournal.sqlite", 404, "ROUTE"),
    ("GET", "/v1/artifacts/%00", 400, "INVALID"),
]


@pytest.mark.parametrize(("method", "path", "status", "code"), PATHS, ids=lambda value: str(value)[:40])
async def test_unknown_id_is_rejected(http: httpx.AsyncClient, method: str, path: str, status: int, code: str) -> None:
    check(http_api_error(await http.request(method, path)), status, code)


NAMED = pb.UploadArtifactRequest(name="words.png")
CALLS: dict[str, tuple[str, Any, StatusCode, str]] = {
    "Get of nothing": ("GetRun", gateway_pb2.GetRunRequest(), StatusCode.NOT_FOUND, "RUN"),
    "Get of no run": ("GetRun", gateway_pb2.GetRunRequest(run_id="run_9\0"), StatusCode.NOT_FOUND, "RUN"),
    "Watch of no run": ("WatchRun", gateway_pb2.WatchRunRequest(run_id="run_9"), StatusCode.NOT_FOUND, "RUN"),
    "Watch from before": (
        "WatchRun",
        gateway_pb2.WatchRunRequest(run_id="run_9", after_sequence=-1),
        StatusCode.INVALID_ARGUMENT,
        "INVALID",
    ),
    "List of fewer than none": (
        "ListRuns",
        gateway_pb2.ListRunsRequest(page_size=-6),
        StatusCode.INVALID_ARGUMENT,
        "INVALID",
    ),
    "Cancel of no run": ("CancelRun", gateway_pb2.CancelRunRequest(run_id="run_9"), StatusCode.NOT_FOUND, "RUN"),
    "Delete of no run": ("DeleteRun", gateway_pb2.DeleteRunRequest(run_id="run_9"), StatusCode.NOT_FOUND, "RUN"),
    "Download of nothing": (
        "DownloadArtifact",
        pb.DownloadArtifactRequest(sha256=SHA),
        StatusCode.NOT_FOUND,
        "ARTIFACT",
    ),
    "Download of a path": (
        "DownloadArtifact",
        pb.DownloadArtifactRequest(sha256="../../journal.sqlite"),
        StatusCode.INVALID_ARGUMENT,
        "INVALID",
    ),
    "Upload of nothing": ("UploadArtifact", [], StatusCode.INVALID_ARGUMENT, "INVALID"),
    "Upload without a name": (
        "UploadArtifact",
        [pb.UploadArtifactRequest(chunk=b"x")],
        StatusCode.INVALID_ARGUMENT,
        "INVALID",
    ),
    "Upload of an empty file": ("UploadArtifact", [NAMED], StatusCode.INVALID_ARGUMENT, "EMPTY_FILE"),
    "Upload of words as a picture": (
        "UploadArtifact",
        [NAMED, pb.UploadArtifactRequest(chunk=b"these are words")],
        StatusCode.INVALID_ARGUMENT,
        "FILE_TYPE",
    ),
}


@pytest.mark.parametrize(("method", "sent", "code", "reason"), CALLS.values(), ids=CALLS)
async def test_invalid_grpc_call_is_rejected(
    channel: grpc.aio.Channel, method: str, sent: Any, code: StatusCode, reason: str
) -> None:
    call = getattr(GatewayServiceStub(channel), method)
    rejected = await call_error(call(iter(sent) if isinstance(sent, list) else sent, timeout=10))
    check(rejected, code, reason)


MESSAGES = {
    "a text that is not UTF-8": ("unary_stream", "CreateRun", b"\x0a\x04\x0a\x02\xff\xff", "NOT_UTF8"),
    "a name that is not UTF-8": ("stream_unary", "UploadArtifact", [b"\x0a\x02\xff\xff"], "NOT_UTF8"),
    "an id that is not UTF-8": ("unary_unary", "GetRun", b"\x0a\x02\xff\xff", "NOT_UTF8"),
    "no message": ("unary_stream", "CreateRun", b"\xff\xff", "INVALID"),
}


@pytest.mark.parametrize(("shape", "method", "sent", "reason"), MESSAGES.values(), ids=MESSAGES)
async def test_undecodable_message_is_rejected(
    channel: grpc.aio.Channel, shape: str, method: str, sent: Any, reason: str
) -> None:
    call = getattr(channel, shape)(f"/hugginggpt.v1.GatewayService/{method}", bytes, bytes)
    check(await call_error(call(sent, timeout=10)), StatusCode.INVALID_ARGUMENT, reason)


async def test_message_over_the_size_limit_is_rejected(local_stack: LocalStack) -> None:
    sent = pb.CreateRunRequest(files=[pb.InlineFile(name="a.bin", content=bytes(MESSAGE_BYTES))])
    async with grpc.aio.insecure_channel(local_stack.grpc) as boundless:
        rejected = await call_error(GatewayServiceStub(boundless).CreateRun(sent, timeout=20))
    assert rejected.status is StatusCode.RESOURCE_EXHAUSTED
    assert f"vs. {MESSAGE_BYTES}" in rejected.detail


async def call_error(call: Any) -> ApiError:
    try:
        if hasattr(call, "__aiter__"):
            async for _ in call:
                pass
        else:
            await call
    except grpc.aio.AioRpcError as error:
        return rpc_api_error(error)
    raise AssertionError("the call was answered")


def check(rejected: ApiError, status: int | StatusCode, code: str, message: str = "") -> None:
    assert rejected.status == status, rejected
    assert rejected.code == code, rejected
    assert message in rejected.detail
    assert rejected.remedy


@pytest.mark.parametrize(("has_length", "megabytes"), [(True, 1), (False, 101)], ids=["content-length", "chunked"])
async def test_oversized_form_is_rejected_before_it_is_complete(
    local_stack: LocalStack, has_length: bool, megabytes: int
) -> None:
    url = httpx.URL(local_stack.url)
    reader, writer = await asyncio.open_connection(url.host, url.port)
    length = "content-length: 200000000" if has_length else "transfer-encoding: chunked"
    head = f"POST /v1/runs HTTP/1.1\r\nhost: {url.netloc.decode()}\r\ncontent-type: {FORM}\r\n{length}\r\n\r\n"
    writer.write(head.encode())
    for piece in beginning(megabytes):
        writer.write(piece if has_length else b"%x\r\n%s\r\n" % (len(piece), piece))
        await writer.drain()
    async with asyncio.timeout(20):
        answer = await reader.readuntil(b"}}")
    writer.close()
    http_api_error = json.loads(answer.partition(b"\r\n\r\n")[2])
    assert http_api_error["status"] == 413
    assert http_api_error["code"] == "TOO_LARGE"
    assert "limit of 100 MB" in http_api_error["detail"]


def beginning(megabytes: int) -> Iterator[bytes]:
    """The first bytes of a form with a file of the given size."""
    yield b'--X\r\nContent-Disposition: form-data; name="file"; filename="a.bin"\r\n\r\n'
    for _ in range(megabytes):
        yield bytes(MEGABYTE)


async def test_services_are_ready_after_bad_input(
    local_stack: LocalStack, http: httpx.AsyncClient, before: frozenset[int]
) -> None:
    assert (await http.get("/readyz")).status_code == 200
    assert local_stack.child_pids() == before
    assert '"unexpected error"' not in local_stack.log.read_text()

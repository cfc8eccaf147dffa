"""Invalid requests get a problem over HTTP and the matching status over gRPC."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from google.protobuf.duration_pb2 import Duration

from gateway.core.runs import RunOperations
from gateway.http.problem import http_status
from protos.hugginggpt.v1 import gateway_pb2
from protos.hugginggpt.v1.artifact_pb2 import Artifact, NamedValue, Value
from protos.hugginggpt.v1.plan_pb2 import Plan
from protos.hugginggpt.v1.run_pb2 import RunSpec
from protos.hugginggpt.v1.task_pb2 import Argument, ArgumentList, Task
from protos.hugginggpt.v1.usage_pb2 import Budget
from services.common import errors
from tests.fakes import ScriptedOrchestrator
from tests.support.gateway import GatewayUnderTest, rpc_error, start_gateway

LIMIT = 200_000
"""Limit of files sent with a request; small for tests."""

SHA = "ab" * 32


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[GatewayUnderTest]:
    async with start_gateway(tmp_path, settings={"files_bytes": LIMIT, "upload_bytes": LIMIT}) as opened:
        yield opened


def check(response: httpx.Response, status: int, code: str, instance: str = "/v1/runs") -> dict[str, Any]:
    """Asserts that a response is a complete problem, with the member for OpenAI's clients."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert body["status"] == status
    assert body["code"] == code
    assert body["instance"] == instance
    assert body["detail"]
    assert body["remedy"]
    assert body["type"].startswith("urn:hugginggpt:problem:")
    assert body["error"].keys() == {"message", "type", "code", "param"}
    return body


async def still_well(gateway: GatewayUnderTest) -> None:
    assert (await gateway.http.get("/healthz")).status_code == 200
    assert (await gateway.ask(headers={"prefer": "wait=5"})).json()["state"] == "completed"


def value(**kind: Any) -> list[NamedValue]:
    return [NamedValue(name="a", value=Value(**kind))]


def plan(argument: Argument) -> Plan:
    return Plan(tasks=[Task(id=1, task="x", arguments={"text": argument})])


# The spec as JSON and as a message, and the error of both.
SPECS: list[tuple[str, Any, RunSpec, type[errors.ServiceError], str]] = [
    ("nothing at all", {}, RunSpec(), errors.InvalidRequest, "EMPTY"),
    ("only spaces", {"request": " \n\t"}, RunSpec(request=" \n\t"), errors.InvalidRequest, "EMPTY"),
    (
        "a request too long",
        {"request": "x" * 1_000_001},
        RunSpec(request="x" * 1_000_001),
        errors.InvalidRequest,
        "TOO_LARGE",
    ),
    (
        "an artifact that is not there",
        {"request": "x", "inputs": [{"artifact": {"sha256": SHA}}]},
        RunSpec(request="x", inputs=value(artifact=Artifact(sha256=SHA))),
        errors.NotFound,
        "ARTIFACT",
    ),
    (
        "an artifact with a malformed digest",
        {"request": "x", "inputs": [{"artifact": {"sha256": "../../etc/passwd"}}]},
        RunSpec(request="x", inputs=value(artifact=Artifact(sha256="../../etc/passwd"))),
        errors.InvalidRequest,
        "INVALID",
    ),
    (
        "an artifact in a plan that is not there",
        {"plan": [{"id": 1, "task": "x", "args": {"text": ["a", {"artifact": {"sha256": SHA}}]}}]},
        RunSpec(
            plan=plan(
                Argument(
                    list=ArgumentList(items=[Argument(value=Value(artifact=Artifact(sha256=SHA)))]),
                )
            )
        ),
        errors.NotFound,
        "ARTIFACT",
    ),
    (
        "two inputs of one name",
        {"request": "x", "inputs": [{"name": "a", "text": "1"}, {"name": "a", "text": "2"}]},
        RunSpec(request="x", inputs=value(text="1") + value(text="2")),
        errors.InvalidRequest,
        "INVALID",
    ),
    (
        "an input with a path for a name",
        {"request": "x", "inputs": [{"name": "../a", "text": "1"}]},
        RunSpec(request="x", inputs=[NamedValue(name="../a", value=Value(text="1"))]),
        errors.InvalidRequest,
        "INVALID",
    ),
    (
        "too many tasks",
        {"plan": [{"id": number, "task": "x"} for number in range(1, 1002)]},
        RunSpec(plan=Plan(tasks=[Task(id=number, task="x") for number in range(1, 1002)])),
        errors.InvalidRequest,
        "INVALID",
    ),
    (
        "a negative budget",
        {"request": "x", "budget": {"llm_tokens": -1}},
        RunSpec(request="x", budget=Budget(wall_time=Duration(seconds=-1))),
        errors.InvalidRequest,
        "INVALID",
    ),
    (
        "an unknown mode",
        {"request": "x", "mode": "fast"},
        RunSpec(request="x", mode=77),  # type: ignore[arg-type]  # enums are open on the wire
        errors.InvalidRequest,
        "INVALID",
    ),
    (
        "a key that is no key",
        {"request": "x", "idempotency_key": "a b\n"},
        RunSpec(request="x", idempotency_key="a b\n"),
        errors.InvalidRequest,
        "INVALID",
    ),
    (
        "parameters that are no object",
        {"plan": [{"id": 1, "task": "x", "parameters": [1]}]},
        RunSpec(plan=Plan(tasks=[Task(id=1, task="x", parameters_json="[1]")])),
        errors.InvalidRequest,
        "INVALID",
    ),
]


@pytest.mark.parametrize(("sent", "spec", "kind", "reason"), [row[1:] for row in SPECS], ids=[row[0] for row in SPECS])
async def test_invalid_spec_gets_the_same_error_over_http_and_grpc(
    gateway: GatewayUnderTest, sent: Any, spec: RunSpec, kind: type[errors.ServiceError], reason: str
) -> None:
    check(await gateway.http.post("/v1/runs", json=sent), http_status(kind("", reason=reason)), reason)
    error = errors.from_rpc(await rpc_error(gateway.grpc.CreateRun(gateway_pb2.CreateRunRequest(spec=spec), timeout=5)))
    assert error.code == kind.code
    assert error.reason == reason
    assert error.remedy
    assert not gateway.orchestrator.runs
    await still_well(gateway)


FILES = [
    ("photo.png", b"%PDF-1.7 and more", "FILE_TYPE"),
    ("notes.txt", b"caf\xe9", "NOT_UTF8"),
    ("empty.wav", b"", "EMPTY_FILE"),
    ("big.bin", b"\0" * (LIMIT + 1), "TOO_LARGE"),
]


@pytest.mark.parametrize(("name", "content", "reason"), FILES, ids=[row[0] for row in FILES])
async def test_invalid_file_gets_the_same_error_everywhere(
    gateway: GatewayUnderTest, name: str, content: bytes, reason: str
) -> None:
    expected = http_status(errors.InvalidRequest("", reason=reason))
    response = await gateway.http.post("/v1/runs", data={"request": "x"}, files=[("file", (name, content))])
    body = check(response, expected, reason)
    assert name in body["detail"] or reason == "TOO_LARGE"
    call_request = gateway_pb2.CreateRunRequest(
        spec=RunSpec(request="x"), files=[gateway_pb2.InlineFile(name=name, content=content)]
    )
    pieces = [gateway_pb2.UploadArtifactRequest(name=name)]
    pieces += [
        gateway_pb2.UploadArtifactRequest(chunk=content[at : at + 50_000]) for at in range(0, len(content), 50_000)
    ]
    for call in (gateway.grpc.CreateRun(call_request, timeout=5), gateway.grpc.UploadArtifact(iter(pieces), timeout=5)):
        error = errors.from_rpc(await rpc_error(call))
        assert error.code == grpc.StatusCode.INVALID_ARGUMENT
        assert error.reason == reason
    assert not gateway.orchestrator.runs
    await still_well(gateway)


JSON = {"content-type": "application/json"}
BODIES: list[tuple[str, bytes, dict[str, str], int, str]] = [
    ("nothing", b"", {}, 415, "CONTENT_TYPE"),
    ("a plain form", b"request=hi", {"content-type": "application/x-www-form-urlencoded"}, 415, "CONTENT_TYPE"),
    ("text", b'{"request":"hi"}', {"content-type": "text/plain"}, 415, "CONTENT_TYPE"),
    ("empty JSON", b"", JSON, 400, "INVALID"),
    ("cut JSON", b'{"request":', JSON, 400, "INVALID"),
    ("a list", b"[]", JSON, 400, "INVALID"),
    ("not UTF-8", b'{"request":"\xff"}', JSON, 400, "NOT_UTF8"),
    ("half a surrogate", b'{"request":"\\ud800"}', JSON, 400, "NOT_UTF8"),
    ("a number that is none", b'{"request":"x","budget":{"tasks":NaN}}', JSON, 400, "INVALID"),
    ("nested too deeply", b'{"request":"x","inputs":' + b"[" * 50_000, JSON, 400, "INVALID"),
    ("an unknown field", b'{"request":"x","files":[]}', JSON, 400, "UNKNOWN_FIELD"),
    ("an unknown policy", b'{"request":"x","policy":"secret"}', JSON, 400, "INVALID"),
    ("too much JSON", b'{"request":"' + b"x" * 8_000_000 + b'"}', JSON, 413, "TOO_LARGE"),
    ("no boundary", b"x", {"content-type": "multipart/form-data"}, 400, "INVALID"),
    ("no form", b"x", {"content-type": "multipart/form-data; boundary=X"}, 400, "INVALID"),
]


@pytest.mark.parametrize(
    ("content", "headers", "status", "code"), [row[1:] for row in BODIES], ids=[r[0] for r in BODIES]
)
async def test_invalid_body_is_rejected(
    gateway: GatewayUnderTest, content: bytes, headers: dict[str, str], status: int, code: str
) -> None:
    check(await gateway.http.post("/v1/runs", content=content, headers=headers), status, code)
    await still_well(gateway)


FIELDS = [
    ([("request", b"\xff")], 400, "NOT_UTF8"),
    ([("spec", b"{")], 400, "INVALID"),
    ([("spec", b'{"nope":1}')], 400, "UNKNOWN_FIELD"),
    ([("request", b"a"), ("request", b"b")], 400, "UNKNOWN_FIELD"),
    ([("prompt", b"a")], 400, "UNKNOWN_FIELD"),
    ([("file", b"a")], 400, "INVALID"),
    ([("request", b"")], 400, "EMPTY"),
]


@pytest.mark.parametrize(("fields", "status", "code"), FIELDS, ids=str)
async def test_form_with_unknown_fields_is_rejected(
    gateway: GatewayUnderTest, fields: list[tuple[str, bytes]], status: int, code: str
) -> None:
    parts = b"".join(
        b'--X\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n' % (name.encode(), content)
        for name, content in fields
    )
    headers = {"content-type": "multipart/form-data; boundary=X"}
    check(await gateway.http.post("/v1/runs", content=parts + b"--X--\r\n", headers=headers), status, code)


PATHS = [
    ("GET", "/v1/runs/run_9", 404, "RUN"),
    ("GET", "/v1/runs/run_9/events", 404, "RUN"),
    ("POST", "/v1/runs/run_9/cancel", 404, "RUN"),
    ("POST", "/v1/runs/run_9/approve", 404, "RUN"),
    ("DELETE", "/v1/runs/run_9", 404, "RUN"),
    ("GET", f"/v1/artifacts/{SHA}", 404, "ARTIFACT"),
    ("GET", "/v1/artifacts/nope", 400, "INVALID"),
    ("GET", f"/v1/artifacts/{SHA.upper()}", 400, "INVALID"),
    ("GET", "/v1/artifacts/..%2F..%2Fetc%2Fpasswd", 404, "ROUTE"),
    ("DELETE", "/v1/experts/unknown", 404, "EXPERT"),
    ("GET", "/v1/runs?page_size=-1", 400, "INVALID"),
    ("GET", "/v1/runs?page_size=many", 400, "INVALID"),
    ("GET", "/v1/runs?state=happy", 400, "INVALID"),
    ("GET", "/v1/models?page_size=x", 400, "INVALID"),
    ("GET", "/v1/runs/run_9/events?after=-1", 400, "INVALID"),
    ("GET", "/nowhere", 404, "ROUTE"),
    ("GET", "/v1/runs/", 404, "ROUTE"),
    ("PATCH", "/v1/runs", 405, "METHOD"),
    ("POST", "/v1/tasks", 405, "METHOD"),
]


@pytest.mark.parametrize(("method", "path", "status", "code"), PATHS)
async def test_unknown_ids_are_not_found(
    gateway: GatewayUnderTest, method: str, path: str, status: int, code: str
) -> None:
    body = check(await gateway.http.request(method, path), status, code, httpx.URL(path).path)
    assert body["title"]


async def test_invalid_last_event_id_is_rejected(gateway: GatewayUnderTest) -> None:
    await gateway.ask()
    for sent in ("x", "-1", "9" * 30, "٣"):
        response = await gateway.http.get("/v1/runs/run_1/events", headers={b"last-event-id": sent.encode()})
        check(response, 400, "INVALID", "/v1/runs/run_1/events")


@pytest.mark.parametrize(
    ("path", "methods"),
    [
        ("/v1/runs", "GET, HEAD, POST"),
        ("/v1/runs/x", "GET, HEAD, DELETE"),
        ("/v1/runs/x/cancel", "POST"),
        ("/v1/artifacts/x", "GET, HEAD"),
        ("/docs", "GET, HEAD"),
    ],
)
async def test_wrong_method_names_all_allowed_ones(gateway: GatewayUnderTest, path: str, methods: str) -> None:
    response = await gateway.http.put(path)
    assert check(response, 405, "METHOD", path)["remedy"] == f"use {methods}"
    assert response.headers["allow"] == methods


async def test_unexpected_error_reveals_nothing(gateway: GatewayUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(self: RunOperations, run_id: str) -> None:
        raise ZeroDivisionError(f"secret {run_id}")

    monkeypatch.setattr(RunOperations, "get", broken)
    response = await gateway.http.get("/v1/runs/run_9")
    assert check(response, 500, "INTERNAL", "/v1/runs/run_9")["detail"] == "internal error"
    assert "secret" not in response.text
    assert (await gateway.http.get("/healthz")).status_code == 200


GRPC: list[tuple[str, Any, grpc.StatusCode, str]] = [
    ("WatchRun", gateway_pb2.WatchRunRequest(run_id="run_9"), grpc.StatusCode.NOT_FOUND, "RUN"),
    (
        "WatchRun",
        gateway_pb2.WatchRunRequest(run_id="run_9", after_sequence=-1),
        grpc.StatusCode.INVALID_ARGUMENT,
        "INVALID",
    ),
    ("GetRun", gateway_pb2.GetRunRequest(run_id="run_9"), grpc.StatusCode.NOT_FOUND, "RUN"),
    ("ListRuns", gateway_pb2.ListRunsRequest(page_size=-1), grpc.StatusCode.INVALID_ARGUMENT, "INVALID"),
    ("CancelRun", gateway_pb2.CancelRunRequest(), grpc.StatusCode.NOT_FOUND, "RUN"),
    ("ApproveRun", gateway_pb2.ApproveRunRequest(run_id="run_9"), grpc.StatusCode.NOT_FOUND, "RUN"),
    ("DeleteRun", gateway_pb2.DeleteRunRequest(run_id="run_9"), grpc.StatusCode.NOT_FOUND, "RUN"),
    ("DownloadArtifact", gateway_pb2.DownloadArtifactRequest(sha256=SHA), grpc.StatusCode.NOT_FOUND, "ARTIFACT"),
    (
        "DownloadArtifact",
        gateway_pb2.DownloadArtifactRequest(sha256="../x"),
        grpc.StatusCode.INVALID_ARGUMENT,
        "INVALID",
    ),
    ("CreateRun", gateway_pb2.CreateRunRequest(policy=9), grpc.StatusCode.INVALID_ARGUMENT, "INVALID"),  # type: ignore[arg-type]  # enums are open on the wire
]


@pytest.mark.parametrize(("method", "request_", "code", "reason"), GRPC, ids=[f"{row[0]} {row[3]}" for row in GRPC])
async def test_grpc_errors_have_the_same_reasons(
    gateway: GatewayUnderTest, method: str, request_: Any, code: grpc.StatusCode, reason: str
) -> None:
    error = errors.from_rpc(await rpc_error(getattr(gateway.grpc, method)(request_, timeout=5)))
    assert error.code == code
    assert error.reason == reason
    assert error.remedy


@pytest.mark.parametrize(
    "pieces",
    [
        [],
        [gateway_pb2.UploadArtifactRequest(chunk=b"x")],
        [gateway_pb2.UploadArtifactRequest()],
        [gateway_pb2.UploadArtifactRequest(name="a"), gateway_pb2.UploadArtifactRequest(name="b")],
        [
            gateway_pb2.UploadArtifactRequest(name="a"),
            gateway_pb2.UploadArtifactRequest(chunk=b"x"),
            gateway_pb2.UploadArtifactRequest(),
        ],
        [gateway_pb2.UploadArtifactRequest(name="a")],
    ],
    ids=["nothing", "no name", "neither", "two names", "neither later", "no bytes"],
)
async def test_out_of_order_upload_is_rejected(
    gateway: GatewayUnderTest, pieces: list[gateway_pb2.UploadArtifactRequest]
) -> None:
    error = await rpc_error(gateway.grpc.UploadArtifact(iter(pieces), timeout=5))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_orchestrator_error_before_acceptance_is_returned(tmp_path: Path) -> None:
    busy = errors.Overloaded("256 runs are under way", remedy="try again soon", retry_after=timedelta(seconds=1.2))
    async with start_gateway(tmp_path, ScriptedOrchestrator(refusal=busy)) as gateway:
        for headers in ({}, {"accept": "text/event-stream"}, {"prefer": "wait=5"}):
            response = await gateway.ask(headers=headers)
            check(response, 429, "OVERLOADED")
            assert response.headers["retry-after"] == "2"
        call_request = gateway_pb2.CreateRunRequest(spec=RunSpec(request="x"))
        error = errors.from_rpc(await rpc_error(gateway.grpc.CreateRun(call_request, timeout=5)))
        assert error.code == busy.code
        assert error.retry_after == busy.retry_after


async def test_reused_idempotency_key_is_422(tmp_path: Path) -> None:
    used = errors.AlreadyExists("used", reason="IDEMPOTENCY", remedy="use a new key")
    async with start_gateway(tmp_path, ScriptedOrchestrator(refusal=used)) as gateway:
        check(await gateway.ask(), 422, "IDEMPOTENCY")


async def test_unexpected_orchestrator_error_reveals_nothing(tmp_path: Path) -> None:
    class Broken(ScriptedOrchestrator):
        async def GetRun(self, request: Any, context: Any) -> Any:
            raise ZeroDivisionError("a secret")

    async with start_gateway(tmp_path, Broken()) as gateway:
        response = await gateway.http.get("/v1/runs/run_1")
        assert response.status_code == 500
        assert "secret" not in response.text
        assert response.json()["error"]["type"] == "server_error"


async def test_large_upload_is_rejected_before_reading(gateway: GatewayUnderTest) -> None:
    """The head alone is rejected; a client that waits for 100 Continue sends no body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.http_port)
    head = (
        f"POST /v1/runs HTTP/1.1\r\nHost: localhost:{gateway.http_port}\r\nContent-Length: 200000000\r\n"
        "Content-Type: multipart/form-data; boundary=X\r\nExpect: 100-continue\r\n\r\n"
    )
    async with asyncio.timeout(5):
        writer.write(head.encode())
        status = await reader.readline()
        answer = await reader.readuntil(b"}}")
    writer.close()
    await writer.wait_closed()
    assert b" 413 " in status
    problem = json.loads(answer[answer.index(b"\r\n\r\n") :])
    assert problem["code"] == "TOO_LARGE"
    assert problem["detail"] == "the files are larger than the limit of 0.2 MB"


async def test_upload_of_unknown_size_stops_at_the_limit(gateway: GatewayUnderTest) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        yield b'--X\r\nContent-Disposition: form-data; name="file"; filename="a.bin"\r\n\r\n'
        while sent < 100 * LIMIT:
            sent += 20_000
            yield b"\0" * 20_000

    headers = {"content-type": "multipart/form-data; boundary=X"}
    check(await gateway.http.post("/v1/runs", content=endless(), headers=headers), 413, "TOO_LARGE")
    await still_well(gateway)


async def test_unreachable_orchestrator_fails_fast(tmp_path: Path) -> None:
    nowhere = {"orchestrator": "127.0.0.1:1", "selector": "127.0.0.1:1"}
    async with start_gateway(tmp_path, settings=nowhere) as gateway:
        body = check(await gateway.http.get("/readyz"), 503, "NOT_READY", "/readyz")
        assert "orchestrator" in body["detail"]
        assert "selector" in body["detail"]
        assert (await gateway.http.get("/healthz")).status_code == 200

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from protos.hugginggpt.v1 import gateway_pb2
from protos.hugginggpt.v1.caller_pb2 import DATA_POLICY_LOCAL, DATA_POLICY_OPEN, PRIORITY_INTERACTIVE, Caller
from protos.hugginggpt.v1.event_pb2 import AnswerChunk, RunEvent
from protos.hugginggpt.v1.run_pb2 import ON_DISCONNECT_CANCEL, RunSpec
from services.common import call_context
from tests.fakes import ANSWERED, ScriptedOrchestrator
from tests.support.gateway import GatewayUnderTest, start_gateway

SSE = {"accept": "text/event-stream"}


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[GatewayUnderTest]:
    async with start_gateway(tmp_path) as opened:
        yield opened


@pytest.fixture
async def idle_gateway(tmp_path: Path) -> AsyncIterator[GatewayUnderTest]:
    """A gateway whose runs emit no events until the test sends them."""
    async with start_gateway(tmp_path, ScriptedOrchestrator(script=())) as opened:
        yield opened


def frames(text: str) -> list[dict[str, str]]:
    """Server-sent events as their fields, without comments."""
    blocks = (block.splitlines() for block in text.split("\n\n") if block.strip())
    fields = ([line.partition(": ")[::2] for line in block if not line.startswith(":")] for block in blocks)
    return [dict(each) for each in fields if each]


def events(text: str) -> list[dict[str, str]]:
    return [frame for frame in frames(text) if "data" in frame]


async def next_event(lines: AsyncIterator[str]) -> dict[str, Any]:
    async for line in lines:
        if line.startswith("data: "):
            found: dict[str, Any] = json.loads(line.removeprefix("data: "))
            return found
    raise AssertionError("the stream ended")


async def test_created_run_has_location(gateway: GatewayUnderTest) -> None:
    response = await gateway.ask()
    assert response.status_code == 202
    assert response.headers["location"] == "/v1/runs/run_1"
    assert response.headers["x-run-id"] == response.json()["run_id"] == "run_1"
    assert (await gateway.http.get(response.headers["location"])).json()["answer"] == "Done."


async def test_prefer_wait_returns_the_ended_run(gateway: GatewayUnderTest) -> None:
    response = await gateway.ask(headers={"prefer": "respond-async, wait=5"})
    assert response.status_code == 200
    assert response.json()["state"] == "completed"
    assert response.headers["preference-applied"] == "wait=5"


async def test_prefer_wait_times_out_with_current_state(idle_gateway: GatewayUnderTest) -> None:
    response = await idle_gateway.ask(headers={"prefer": "wait=0"})
    assert response.status_code == 202
    assert response.json()["state"] == "running"


async def test_stream_has_all_events_in_order(gateway: GatewayUnderTest) -> None:
    response = await gateway.ask(headers=SSE)
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["x-run-id"] == "run_1"
    sent = events(response.text)
    assert [frame["id"] for frame in sent] == ["1", "2", "3"]
    assert [frame["event"] for frame in sent] == ["run_accepted", "answer_chunk", "run_ended"]
    for frame in sent:
        body = json.loads(frame["data"])
        assert body["sequence"] == int(frame["id"])
        assert body["run_id"] == "run_1"
        assert frame["event"] in body


async def test_stream_starts_before_the_run_ends(idle_gateway: GatewayUnderTest) -> None:
    async with idle_gateway.http.stream("POST", "/v1/runs", json={"request": "x"}, headers=SSE) as response:
        lines = response.aiter_lines()
        assert "run_accepted" in await next_event(lines)
        idle_gateway.orchestrator.runs["run_1"].send(*ANSWERED)
        assert (await next_event(lines))["answer_chunk"] == {"text": "Done."}


async def test_event_data_stays_on_one_line(idle_gateway: GatewayUnderTest) -> None:
    text = "a\nb\r\nc\u2028d\x85e 😀"
    async with idle_gateway.http.stream("POST", "/v1/runs", json={"request": "x"}, headers=SSE) as response:
        run = idle_gateway.orchestrator.runs["run_1"]
        run.send(RunEvent(answer_chunk=AnswerChunk(text=text)), ANSWERED[-1])
        content = (await response.aread()).decode()
    data = [line.removeprefix("data: ") for line in content.split("\n") if line.startswith("data: ")]
    assert json.loads(data[1])["answer_chunk"]["text"] == text


@pytest.mark.parametrize(
    ("query", "headers", "expected"),
    [
        ("", {}, ["1", "2", "3"]),
        ("?after=1", {}, ["2", "3"]),
        ("", {"last-event-id": "2"}, ["3"]),
        ("?after=1", {"last-event-id": "2"}, ["3"]),
        ("?after=3", {}, []),
    ],
)
async def test_stream_resumes_after_last_event_id(
    gateway: GatewayUnderTest, query: str, headers: dict[str, str], expected: list[str]
) -> None:
    await gateway.ask()
    response = await gateway.http.get(f"/v1/runs/run_1/events{query}", headers=headers)
    assert response.status_code == (200 if expected else 204)
    assert [frame["id"] for frame in events(response.text)] == expected


@pytest.mark.parametrize("breaks", [(1,), (2,), (1, 2)])
async def test_lost_orchestrator_stream_is_resumed(tmp_path: Path, breaks: tuple[int, ...]) -> None:
    async with start_gateway(tmp_path, ScriptedOrchestrator(breaks=breaks)) as gateway:
        response = await gateway.ask(headers=SSE)
        assert [frame["id"] for frame in events(response.text)] == ["1", "2", "3"]


async def test_disconnect_does_not_cancel_the_run(idle_gateway: GatewayUnderTest) -> None:
    async with idle_gateway.http.stream("POST", "/v1/runs", json={"request": "x"}, headers=SSE) as response:
        await next_event(response.aiter_lines())
    run = idle_gateway.orchestrator.runs["run_1"]
    async with asyncio.timeout(5):
        await run.disconnected.wait()
    assert not idle_gateway.orchestrator.cancelled
    run.send(*ANSWERED)
    assert (await idle_gateway.http.get("/v1/runs/run_1")).json()["state"] == "completed"


async def test_on_disconnect_cancel_cancels_the_run(idle_gateway: GatewayUnderTest) -> None:
    body = {"request": "x", "on_disconnect": "cancel"}
    async with idle_gateway.http.stream("POST", "/v1/runs", json=body, headers=SSE) as response:
        await next_event(response.aiter_lines())
    run = idle_gateway.orchestrator.runs["run_1"]
    assert run.spec.on_disconnect == ON_DISCONNECT_CANCEL
    async with asyncio.timeout(5):
        await run.disconnected.wait()


async def test_disconnect_during_wait_is_noticed(idle_gateway: GatewayUnderTest) -> None:
    pending = asyncio.create_task(idle_gateway.ask(headers={"prefer": "wait=60"}))
    async with asyncio.timeout(5):
        run = await idle_gateway.orchestrator.arrivals.get()
        pending.cancel()
        await run.disconnected.wait()


@pytest.mark.parametrize(
    ("prefer", "waits"),
    [
        ("wait=5", True),
        ("respond-async,WAIT = 5", True),
        ('wait="5"', True),
        ("nowait=5", False),
        ('x="a", await=5', False),
    ],
)
async def test_prefer_header_parsing(gateway: GatewayUnderTest, prefer: str, waits: bool) -> None:
    response = await gateway.ask(headers=[("prefer", "handling=strict"), ("prefer", prefer)])
    assert (response.status_code == 200) == waits
    assert ("preference-applied" in response.headers) == waits


async def test_on_disconnect_cancel_requires_a_connection(gateway: GatewayUnderTest) -> None:
    response = await gateway.ask(on_disconnect="cancel")
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "on_disconnect"


async def test_idempotency_key_is_forwarded_or_generated(gateway: GatewayUnderTest) -> None:
    first = await gateway.ask(headers={"idempotency-key": "k1"})
    again = await gateway.ask(headers={"idempotency-key": "k1"})
    other = await gateway.ask()
    in_body = await gateway.ask(idempotency_key="k2")
    assert first.json()["run_id"] == again.json()["run_id"] == "run_1"
    assert other.json()["run_id"] == "run_2"
    assert in_body.json()["spec"]["idempotency_key"] == "k2"
    keys = [run.spec.idempotency_key for run in gateway.orchestrator.runs.values()]
    assert keys[0] == "k1"
    assert len(keys[1]) >= 32


async def test_files_become_inputs_in_order(gateway: GatewayUnderTest) -> None:
    files = [("file", ("a.txt", b"first")), ("file", ("b.json", b"[2]"))]
    response = await gateway.http.post("/v1/runs", data={"request": "compare"}, files=files)
    assert response.status_code == 202, response.text
    sent = {named.name: named.value.artifact for named in gateway.orchestrator.runs["run_1"].spec.inputs}
    assert [(name, sent[name].media_type, sent[name].name) for name in sent] == [
        ("file1", "text/plain", "a.txt"),
        ("file2", "application/json", "b.json"),
    ]
    assert await gateway.store.get("default", sent["file1"].sha256) == b"first"


async def test_spec_inputs_precede_uploaded_files(gateway: GatewayUnderTest) -> None:
    spec = {"mode": "plan", "inputs": [{"name": "file1", "text": "mine"}, {"json": 5}]}
    form = {"request": "x", "spec": json.dumps(spec)}
    response = await gateway.http.post("/v1/runs", data=form, files=[("file", ("a.txt", b"z"))])
    assert response.status_code == 202, response.text
    spec_sent = gateway.orchestrator.runs["run_1"].spec
    assert [named.name for named in spec_sent.inputs] == ["file1", "file2", "file3"]
    assert spec_sent.request == "x"


async def test_empty_browser_file_field_is_ignored(gateway: GatewayUnderTest) -> None:
    form = b'--X\r\nContent-Disposition: form-data; name="request"\r\n\r\nhi\r\n--X\r\n'
    form += b'Content-Disposition: form-data; name="file"; filename=""\r\n\r\n\r\n--X--\r\n'
    headers = {"content-type": "multipart/form-data; boundary=X"}
    response = await gateway.http.post("/v1/runs", content=form, headers=headers)
    assert response.status_code == 202, response.text
    assert not gateway.orchestrator.runs["run_1"].spec.inputs


async def test_plan_artifact_is_completed_from_the_store(gateway: GatewayUnderTest) -> None:
    artifact = await gateway.store.put("default", b"\x89PNG", media_type="image/png", name="a.png")
    plan = [{"id": 1, "task": "image-to-text", "args": {"image": {"artifact": {"sha256": artifact.sha256}}}}]
    response = await gateway.ask("", plan=plan)
    assert response.status_code == 202, response.text
    (task,) = gateway.orchestrator.runs["run_1"].spec.plan.tasks
    assert task.arguments["image"].value.artifact == artifact


async def test_artifact_name_is_sanitized(gateway: GatewayUnderTest) -> None:
    artifact = await gateway.store.put("default", b"\x89PNG", media_type="image/png", name="a.png")
    await gateway.ask(inputs=[{"artifact": {"sha256": artifact.sha256, "name": "../../b\u202egnp\n.png"}}])
    (named,) = gateway.orchestrator.runs["run_1"].spec.inputs
    assert named.value.artifact.name == "bgnp.png"


async def test_long_value_is_stored_as_artifact(gateway: GatewayUnderTest) -> None:
    text = "ü" * 200_000
    await gateway.ask(inputs=[{"text": text}, {"json": [text]}, {"text": "short"}])
    inputs = gateway.orchestrator.runs["run_1"].spec.inputs
    assert [named.value.WhichOneof("kind") for named in inputs] == ["artifact", "artifact", "text"]
    assert (await gateway.store.get("default", inputs[0].value.artifact.sha256)).decode() == text
    assert inputs[1].value.artifact.media_type == "application/json"


@pytest.mark.parametrize(
    ("deployment", "headers", "expected"),
    [
        ("open", {}, DATA_POLICY_OPEN),
        ("open", {"policy": "local"}, DATA_POLICY_LOCAL),
        ("local", {}, DATA_POLICY_LOCAL),
        ("local", {"policy": "open"}, DATA_POLICY_OPEN),
    ],
)
async def test_data_policy_is_always_set(
    tmp_path: Path, deployment: str, headers: dict[str, str], expected: int
) -> None:
    async with start_gateway(tmp_path, settings={"data_policy": deployment}) as gateway:
        await gateway.ask(**headers)
        (caller,) = gateway.orchestrator.callers
    assert caller.policy == expected
    assert caller.tenant == "default"
    assert caller.priority == PRIORITY_INTERACTIVE


@pytest.mark.parametrize(("sent", "artifact"), [("abc-1", True), ("a b", False), ("x" * 200, False), ("", False)])
async def test_valid_request_id_is_kept(gateway: GatewayUnderTest, sent: str, artifact: bool) -> None:
    response = await gateway.ask(headers={"x-request-id": sent})
    (caller,) = gateway.orchestrator.callers
    assert caller.request_id == response.headers["x-request-id"]
    assert (caller.request_id == sent) is artifact


async def test_runs_are_listed_cancelled_approved_and_deleted(gateway: GatewayUnderTest) -> None:
    for _ in range(3):
        await gateway.ask()
    page = (await gateway.http.get("/v1/runs", params={"page_size": 2, "state": "completed"})).json()
    assert [run["run_id"] for run in page["data"]] == ["run_3", "run_2"]
    assert page["object"] == "list"
    assert page["next_page_token"] == "more"
    assert (await gateway.http.post("/v1/runs/run_1/cancel")).status_code == 204
    plan = [{"id": 1, "task": "x"}]
    assert (await gateway.http.post("/v1/runs/run_2/approve")).status_code == 204
    assert (await gateway.http.post("/v1/runs/run_3/approve", json={"plan": plan})).status_code == 204
    assert (await gateway.http.delete("/v1/runs/run_1")).status_code == 204
    assert gateway.orchestrator.cancelled == ["run_1"]
    assert [(run_id, len(sent.tasks)) for run_id, sent in gateway.orchestrator.approved] == [("run_2", 0), ("run_3", 1)]
    assert (await gateway.http.get("/v1/runs/run_1")).status_code == 404


async def test_grpc_run_methods(gateway: GatewayUnderTest) -> None:
    call_request = gateway_pb2.CreateRunRequest(
        spec=RunSpec(request="x"),
        files=[gateway_pb2.InlineFile(name="a.txt", content=b"first")],
        policy=DATA_POLICY_LOCAL,
    )
    events = [event async for event in gateway.grpc.CreateRun(call_request, timeout=5)]
    assert [event.WhichOneof("event") for event in events] == ["run_accepted", "answer_chunk", "run_ended"]
    assert events[0].run_accepted.spec.inputs[0].value.artifact.name == "a.txt"
    request = gateway_pb2.WatchRunRequest(run_id="run_1", after_sequence=2)
    assert [event.sequence async for event in gateway.grpc.WatchRun(request, timeout=5)] == [3]
    assert (await gateway.grpc.GetRun(gateway_pb2.GetRunRequest(run_id="run_1"), timeout=5)).answer == "Done."
    assert len((await gateway.grpc.ListRuns(gateway_pb2.ListRunsRequest(), timeout=5)).runs) == 1
    await gateway.grpc.CancelRun(gateway_pb2.CancelRunRequest(run_id="run_1"), timeout=5)
    await gateway.grpc.ApproveRun(gateway_pb2.ApproveRunRequest(run_id="run_1"), timeout=5)
    await gateway.grpc.DeleteRun(gateway_pb2.DeleteRunRequest(run_id="run_1"), timeout=5)
    assert gateway.orchestrator.cancelled == ["run_1"]
    assert not gateway.orchestrator.runs


async def test_grpc_caller_metadata_is_ignored(gateway: GatewayUnderTest) -> None:
    forged = Caller(tenant="acme", policy=DATA_POLICY_LOCAL, request_id="forged")
    with call_context.use_caller(forged):
        metadata = (*call_context.metadata(), ("x-request-id", "mine"))
    call_request = gateway_pb2.CreateRunRequest(spec=RunSpec(request="x"))
    assert [event async for event in gateway.grpc.CreateRun(call_request, timeout=5, metadata=metadata)]
    (caller,) = gateway.orchestrator.callers
    assert caller.tenant == "default"
    assert caller.policy == DATA_POLICY_OPEN
    assert caller.request_id == "mine"


async def test_grpc_disconnect_does_not_cancel_the_run(idle_gateway: GatewayUnderTest) -> None:
    call = idle_gateway.grpc.CreateRun(gateway_pb2.CreateRunRequest(spec=RunSpec(request="x")), timeout=5)
    assert (await call.read()).HasField("run_accepted")
    call.cancel()
    async with asyncio.timeout(5):
        await idle_gateway.orchestrator.runs["run_1"].disconnected.wait()
    assert not idle_gateway.orchestrator.cancelled


async def test_shutdown_ends_run_streams(tmp_path: Path) -> None:
    async with asyncio.timeout(10), httpx.AsyncClient(trust_env=False) as client:
        async with start_gateway(tmp_path, ScriptedOrchestrator(script=()), settings={"DRAIN_SECONDS": 60}) as gateway:
            url = f"http://127.0.0.1:{gateway.http_port}/v1/runs"
            watched = gateway_pb2.CreateRunRequest(spec=RunSpec(request="y"))
            call = gateway.grpc.CreateRun(watched, timeout=50)
            assert (await call.read()).HasField("run_accepted")
            response = await client.send(
                client.build_request("POST", url, json={"request": "x"}, headers=SSE), stream=True
            )
            lines = response.aiter_lines()
            await next_event(lines)
            pending = asyncio.create_task(
                client.post(url, json={"request": "z"}, headers={"prefer": "wait=50"}, timeout=60)
            )
            for _ in range(3):
                await gateway.orchestrator.arrivals.get()
        assert [line async for line in lines if line.startswith(":")] == [": the gateway is shutting down"]
        assert (await pending).status_code in (202, 503)  # 503 if the gateway stopped before it had the run's id
        await response.aclose()

"""Values of batch items, and items whose values cannot be resolved."""

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from protos.hugginggpt.v1 import artifact_pb2, batch_pb2, pipeline_pb2
from protos.hugginggpt.v1 import gateway_pb2 as pb
from services.common.artifacts import INLINE_BYTES
from services.common.errors import from_rpc
from services.orchestrator.settings import Settings
from tests.support.batches import PINNED as PINNED_PLAN
from tests.support.batches import parts
from tests.support.gateway import rpc_error
from tests.support.orchestrator import ScriptedPeers
from tests.support.pipeline_gateway import PINNED, PipelineGateway, note, start_pipeline_gateway
from tests.support.web_server import reply, web_server

LONG = "x" * (INLINE_BYTES + 1)


@pytest.fixture
async def pipeline_gateway(peers: ScriptedPeers, settings: Settings, tmp_path: Path) -> AsyncIterator[PipelineGateway]:
    async with start_pipeline_gateway(peers, settings, tmp_path, fetch_allow=("127.0.0.1",)) as pipeline_gateway:
        yield pipeline_gateway


async def file(pipeline_gateway: PipelineGateway, content: bytes, name: str = "note.txt") -> dict[str, Any]:
    stored = await pipeline_gateway.http.post(
        "/v1/files", files={"file": (name, content)}, data={"purpose": "user_data"}
    )
    document: dict[str, Any] = stored.json()
    return document


def given(name: str = "", **value: Any) -> dict[str, Any]:
    return {"name": name, "inputs": [{"name": "note", **value}]}


async def items(pipeline_gateway: PipelineGateway, batch_id: str) -> list[dict[str, Any]]:
    await pipeline_gateway.ended(batch_id)
    listed: list[dict[str, Any]] = (await pipeline_gateway.http.get(f"/v1/pipeline-batches/{batch_id}/items")).json()[
        "data"
    ]
    return listed


async def test_item_values_may_be_artifacts_files_urls_or_inline(pipeline_gateway: PipelineGateway) -> None:
    stored = await file(pipeline_gateway, b"a kept note")
    async with web_server({"/note.txt": reply(b"from afar", content_type="text/plain")}) as web:
        sent = [
            given(artifact={"sha256": stored["artifact"]["sha256"]}),
            given(file_id=stored["id"]),
            given(url=f"http://127.0.0.1:{web.port}/note.txt"),
            given("a long one", text=LONG),
            note("short"),
        ]
        batch_id = await pipeline_gateway.started(sent)
    found = await items(pipeline_gateway, batch_id)
    artifacts = [item["inputs"][0].get("artifact", {}) for item in found]
    assert [each.get("sha256") for each in artifacts] == [
        *(hashlib.sha256(content).hexdigest() for content in (b"a kept note", b"a kept note", b"from afar")),
        hashlib.sha256(LONG.encode()).hexdigest(),
        None,
    ]
    assert [item["name"] for item in found] == ["note.txt", "note.txt", "note.txt", "a long one", "short"]
    assert {item["state"] for item in found} == {"completed"}


async def test_unnamed_input_becomes_the_matching_parameter(pipeline_gateway: PipelineGateway) -> None:
    (item,) = await items(pipeline_gateway, await pipeline_gateway.started([{"inputs": [{"text": "hello"}]}]))
    assert item["state"] == "completed"
    assert item["inputs"] == [{"name": "note", "text": "hello"}]


async def test_unresolvable_value_fails_only_its_item(pipeline_gateway: PipelineGateway) -> None:
    async with web_server({}) as web:
        sent = [
            given(artifact={"sha256": "b" * 64}),
            given(artifact={"sha256": "no digest"}),
            given(file_id="file_that_does_not_exist"),
            given(url=f"http://127.0.0.1:{web.port}/gone.txt"),
            given(url="http://127.0.0.2:1/x"),
            given(url="ftp://127.0.0.1/x"),
            {"name": "in/3.png", "failure": {"reason": "UNREADABLE", "message": "in/3.png cannot be read"}},
            note("good"),
        ]
        batch_id = await pipeline_gateway.started(sent)
    batch = await pipeline_gateway.ended(batch_id)
    assert batch["state"] == "incomplete"
    assert batch["counts"]["completed"] == 1
    assert batch["counts"]["failed"] == 7
    *failed, _ = await items(pipeline_gateway, batch_id)
    assert [item["failure"]["reason"] for item in failed] == [
        "ARTIFACT",
        "INVALID",
        "FILE",
        "FETCH_FAILED",
        "URL_ADDRESS",
        "URL",
        "UNREADABLE",
    ]
    assert [item["inputs"] for item in failed] == [[]] * 7
    assert failed[2]["name"] == "file_that_does_not_exist"
    assert failed[5]["name"] == "ftp://127.0.0.1/x"
    assert {item["failure"].get("port") for item in failed[:-1]} == {"note"}
    again = await pipeline_gateway.http.post(f"/v1/pipeline-batches/{batch_id}/resume", json={"failed_only": True})
    assert again.status_code == 202
    assert (await pipeline_gateway.ended(batch_id))["counts"] == batch["counts"]


async def test_local_pipeline_fetches_no_external_url(pipeline_gateway: PipelineGateway) -> None:
    await pipeline_gateway.save(plan=PINNED, policy="local")
    outside = given(url="http://192.0.2.1/note.txt")
    batch_id = await pipeline_gateway.started([outside, note("good")], pipeline={"name": "short"}, policy="open")
    rejected, good = await items(pipeline_gateway, batch_id)
    assert rejected["failure"]["reason"] == "POLICY"
    assert good["state"] == "completed"
    run = {"pipeline": {"name": "short"}, "inputs": outside["inputs"], "policy": "open"}
    response = await pipeline_gateway.http.post("/v1/runs", json=run)
    assert response.status_code == 403
    assert response.json()["code"] == "POLICY"


async def test_run_input_may_be_a_file_id(pipeline_gateway: PipelineGateway) -> None:
    await pipeline_gateway.save()
    stored = await file(pipeline_gateway, b"a kept note")
    run = {"pipeline": {"name": "short"}, "inputs": [{"name": "note", "file_id": stored["id"]}]}
    response = await pipeline_gateway.http.post("/v1/runs", json=run, headers={"prefer": "wait=20"})
    assert response.json()["state"] == "completed", response.text
    run["inputs"] = [{"name": "note", "file_id": "file_that_does_not_exist"}]
    rejected = (await pipeline_gateway.http.post("/v1/runs", json=run)).json()
    assert rejected["status"] == 404
    assert rejected["code"] == "FILE"
    assert rejected["error"]["param"] == "inputs[0]"


async def test_grpc_starts_batches_like_http(pipeline_gateway: PipelineGateway) -> None:
    stub = pipeline_gateway.gateway.grpc
    long = batch_pb2.NewItem(inputs=[artifact_pb2.NamedValue(name="note", value=artifact_pb2.Value(text=LONG))])
    artifact = artifact_pb2.Value(artifact=artifact_pb2.Artifact(sha256="b" * 64))
    absent = batch_pb2.NewItem(name="absent", inputs=[artifact_pb2.NamedValue(name="note", value=artifact)])
    started = await stub.CreateBatch(parts([long, absent], 1, plan=PINNED_PLAN), timeout=20)
    *_, batch = [each async for each in stub.WatchBatch(pb.WatchBatchRequest(batch_id=started.batch_id), timeout=20)]
    assert batch.counts.completed == 1
    assert batch.counts.failed == 1
    page = await stub.ListBatchItems(pb.ListBatchItemsRequest(batch_id=batch.batch_id), timeout=10)
    assert page.items[0].inputs[0].value.artifact.size_bytes == len(LONG)
    assert page.items[1].failure.reason == "ARTIFACT"
    assert len(page.items[1].inputs) == 0
    assert len((await stub.ListBatches(pb.ListBatchesRequest(), timeout=10)).batches) == 1
    await stub.DeleteBatch(pb.DeleteBatchRequest(batch_id=batch.batch_id), timeout=10)
    for requests, reason in (
        ([], "INVALID"),
        ([pb.CreateBatchRequest(items=pb.NewItems())], "INVALID"),
        ([*parts([absent]), *parts([absent])], "INVALID"),
        (list(parts([])), "EMPTY"),
        (list(parts([absent] * 300, 100, pipeline=pipeline_pb2.PipelineRef(name="none"))), "PIPELINE"),
        (list(parts([absent], policy=7)), "INVALID"),
    ):
        assert from_rpc(await rpc_error(stub.CreateBatch(iter(requests), timeout=20))).reason == reason


@pytest.mark.parametrize("name", ["a\nb", "a\x1b[2Kb", "a\u202eb", "a\u2028b"])
async def test_item_name_with_control_characters_is_rejected(pipeline_gateway: PipelineGateway, name: str) -> None:
    rejected = await pipeline_gateway.start([note("good"), note("x", name)])
    assert rejected.status_code == 400
    assert rejected.json()["error"]["param"] == "items[1].name"
    unnamed, _ = await items(
        pipeline_gateway, await pipeline_gateway.started([given(url=f"ftp://127.0.0.1/{name}"), note("good")])
    )
    assert unnamed["name"].isprintable()


async def test_item_limit_applies_to_grpc(pipeline_gateway: PipelineGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.core.batch_items.MAX_ITEMS", 150)
    calls = [parts([batch_pb2.NewItem()] * 151, page, plan=PINNED_PLAN) for page in (151, 10)]
    for requests in calls:
        assert (
            from_rpc(await rpc_error(pipeline_gateway.gateway.grpc.CreateBatch(requests, timeout=20))).reason
            == "TOO_LARGE"
        )
    assert (await pipeline_gateway.http.get("/v1/pipeline-batches")).json()["data"] == []

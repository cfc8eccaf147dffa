"""Batches over HTTP: start, watch, read, cancel."""

import asyncio
import csv
import io
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from protos.hugginggpt.v1.artifact_pb2 import Value
from protos.hugginggpt.v1.expert_pb2 import InferRequest
from services.common.errors import InvalidRequest
from services.orchestrator.settings import Settings
from tests.support.batches import given
from tests.support.orchestrator import END, ScriptedPeers, echo, task, wait_until_cancelled
from tests.support.pipeline_gateway import PINNED, PipelineGateway, note, notes, start_pipeline_gateway

pytestmark = pytest.mark.slow


@pytest.fixture
async def pipeline_gateway(peers: ScriptedPeers, settings: Settings, tmp_path: Path) -> AsyncIterator[PipelineGateway]:
    async with start_pipeline_gateway(peers, settings, tmp_path) as pipeline_gateway:
        yield pipeline_gateway


async def bad_third(request: InferRequest) -> dict[str, Value]:
    if request.inputs["text"].text == "note 3":
        raise InvalidRequest("it is broken", port="text", remedy="mend it")
    return await echo(request)


async def test_invalid_item_fails_alone(pipeline_gateway: PipelineGateway) -> None:
    pipeline_gateway.peers.infer["model"] = bad_third
    response = await pipeline_gateway.start(notes(5))
    started = response.json()
    assert response.status_code == 202
    assert response.headers["location"] == f"/v1/pipeline-batches/{started['batch_id']}"
    batch = await pipeline_gateway.ended(started["batch_id"])
    assert batch["state"] == "incomplete"
    assert batch["counts"]["completed"] == 4
    assert batch["counts"]["failed"] == 1
    first, _, third, *_ = results = await pipeline_gateway.results(started["batch_id"])
    assert [each["index"] for each in results] == [1, 2, 3, 4, 5]
    assert first["name"] == "note 1"
    assert first["state"] == "completed"
    assert first["outputs"] == {"text": "note 1!"}
    assert first["error"] is None
    assert first["seconds"] >= 0
    assert first["input_tokens"] == 0
    assert third["state"] == "failed"
    assert third["outputs"] == {}
    assert third["error"] == {"reason": "INVALID", "message": "it is broken", "remedy": "mend it"}


async def test_json_lines_equal_a_document(pipeline_gateway: PipelineGateway) -> None:
    response = await pipeline_gateway.send([{"plan": PINNED, "metadata": {"of": "me"}}, *notes(250)])
    assert response.status_code == 202, response.text
    batch = await pipeline_gateway.ended(response.json()["batch_id"])
    assert batch["state"] == "completed"
    assert batch["counts"]["total"] == 250
    assert [each["index"] for each in await pipeline_gateway.results(batch["batch_id"])] == list(range(1, 251))
    assert batch["spec"]["metadata"] == {"of": "me"}


async def test_same_idempotency_key_returns_the_same_batch(pipeline_gateway: PipelineGateway) -> None:
    documents = [{"plan": PINNED}, *notes(3)]
    first = await pipeline_gateway.send(documents, **{"idempotency-key": "one"})
    again = await pipeline_gateway.send(documents, **{"idempotency-key": "one"})
    assert first.json()["batch_id"] == again.json()["batch_id"]
    other = await pipeline_gateway.send(documents[:-1], **{"idempotency-key": "one"})
    assert other.status_code == 422
    assert other.json()["code"] == "IDEMPOTENCY"
    assert len((await pipeline_gateway.http.get("/v1/pipeline-batches")).json()["data"]) == 1


async def test_batch_accepts_every_plan_source(pipeline_gateway: PipelineGateway) -> None:
    await pipeline_gateway.save()
    pipeline_gateway.peers.plan(task(1, text=given("note")), END)
    ran = await pipeline_gateway.gateway.ask("x", inputs=note("a")["inputs"], headers={"prefer": "wait=20"})
    sources = ({"pipeline": {"name": "short"}}, {"run_id": ran.json()["run_id"]}, {"request": "shorten the note"})
    for source in sources:
        batch = await pipeline_gateway.ended(await pipeline_gateway.started(notes(2), **source))
        assert batch["state"] == "completed", batch
        assert batch["pipeline"]["inputs"][0]["name"] == "note", batch


async def test_batches_and_items_are_listed_by_page_and_state(pipeline_gateway: PipelineGateway) -> None:
    pipeline_gateway.peers.infer["model"] = bad_third
    ids = [await pipeline_gateway.started(notes(count)) for count in (5, 2, 1)]
    for batch_id in ids:
        await pipeline_gateway.ended(batch_id)
    page = (await pipeline_gateway.http.get("/v1/pipeline-batches", params={"page_size": 2})).json()
    assert [each["batch_id"] for each in page["data"]] == [ids[2], ids[1]]
    rest = (
        await pipeline_gateway.http.get("/v1/pipeline-batches", params={"page_token": page["next_page_token"]})
    ).json()
    assert [each["batch_id"] for each in rest["data"]] == [ids[0]]
    some = (await pipeline_gateway.http.get("/v1/pipeline-batches", params={"state": "incomplete"})).json()
    assert [each["batch_id"] for each in some["data"]] == [ids[0]]
    items = f"/v1/pipeline-batches/{ids[0]}/items"
    first = (await pipeline_gateway.http.get(items, params={"page_size": 2})).json()
    assert [each["index"] for each in first["data"]] == [1, 2]
    rest = await pipeline_gateway.http.get(items, params={"page_token": first["next_page_token"]})
    assert [each["index"] for each in rest.json()["data"]] == [3, 4, 5]
    last = await pipeline_gateway.http.get(items, params={"after": 4})
    assert [each["index"] for each in last.json()["data"]] == [5]
    failed = (await pipeline_gateway.http.get(items, params={"state": "failed"})).json()
    assert [each["name"] for each in failed["data"]] == ["note 3"]
    assert "next_page_token" not in failed
    assert [each["index"] for each in await pipeline_gateway.results(ids[0], state="failed")] == [3]


async def test_summary_has_counts_durations_and_errors(pipeline_gateway: PipelineGateway) -> None:
    pipeline_gateway.peers.infer["model"] = bad_third
    batch_id = await pipeline_gateway.started(
        [*notes(6), {"name": "in/7.png", "inputs": [{"name": "picture", "text": "x"}]}]
    )
    await pipeline_gateway.ended(batch_id)
    summary = (await pipeline_gateway.http.get(f"/v1/pipeline-batches/{batch_id}/summary")).json()
    assert summary["state"] == "incomplete"
    assert summary["counts"]["completed"] == 5
    assert summary["counts"]["failed"] == 2
    assert 0 <= summary["seconds"]["median"] <= summary["seconds"]["p95"] <= summary["seconds"]["total"]
    assert len(summary["slowest"]) == 5
    assert [(error["count"], error["names"]) for error in summary["errors"]] == [(1, ["note 3"]), (1, ["in/7.png"])]


async def test_equal_errors_of_several_files_are_grouped(pipeline_gateway: PipelineGateway) -> None:
    broken = [
        {"name": f"in/{name}", "failure": {"reason": "FILE", "message": f"cannot read in/{name}: {why}"}}
        for name, why in (("a.png", "it is empty"), ("b.png", "it is empty"), ("a", "it is a folder"))
    ]
    batch_id = await pipeline_gateway.started([*notes(1), *broken])
    await pipeline_gateway.ended(batch_id)
    summary = (await pipeline_gateway.http.get(f"/v1/pipeline-batches/{batch_id}/summary")).json()
    assert [(error["count"], error["message"], error["names"]) for error in summary["errors"]] == [
        (2, "cannot read in/…: it is empty", ["in/a.png", "in/b.png"]),
        (1, "cannot read in/a: it is a folder", ["in/a"]),
    ]


async def test_batch_is_cancelled_resumed_and_deleted(pipeline_gateway: PipelineGateway) -> None:
    inferring, cancelled = asyncio.Event(), asyncio.Event()
    pipeline_gateway.peers.infer["model"] = lambda _: wait_until_cancelled(inferring, cancelled)
    batch_id = await pipeline_gateway.started(notes(3), plan=PINNED, max_at_once=1)
    path = f"/v1/pipeline-batches/{batch_id}"
    await inferring.wait()
    rejected = await pipeline_gateway.http.delete(path)
    assert rejected.status_code == 409
    assert rejected.json()["code"] == "RUNNING"
    rejected = await pipeline_gateway.http.post(f"{path}/resume", json={"failed_only": True})
    assert rejected.status_code == 409
    assert rejected.json()["code"] == "RUNNING"
    assert (await pipeline_gateway.http.post(f"{path}/cancel")).status_code == 204
    batch = await pipeline_gateway.ended(batch_id)
    assert batch["state"] == "cancelled"
    assert batch["counts"]["cancelled"] == 1
    assert batch["counts"]["waiting"] == 2
    pipeline_gateway.peers.infer["model"] = echo
    resumed = await pipeline_gateway.http.post(f"{path}/resume")
    assert resumed.status_code == 202
    assert resumed.json()["batch_id"] == batch_id
    assert (await pipeline_gateway.ended(batch_id))["state"] == "completed"
    assert (await pipeline_gateway.http.delete(path)).status_code == 204
    for there in (path, f"{path}/items", f"{path}/results", f"{path}/summary", f"{path}/events"):
        missing = await pipeline_gateway.http.get(there)
        assert missing.status_code == 404
        assert missing.json()["code"] == "BATCH"


async def test_batch_stream_returns_204_after_its_end(pipeline_gateway: PipelineGateway) -> None:
    batch_id = await pipeline_gateway.started(notes(1))
    events = f"/v1/pipeline-batches/{batch_id}/events"
    (id_,) = [
        line[4:] for line in (await pipeline_gateway.http.get(events)).text.splitlines() if line.startswith("id: ")
    ]
    assert (await pipeline_gateway.http.get(events, headers={"last-event-id": id_})).status_code == 204
    assert (await pipeline_gateway.http.get(events, headers={"last-event-id": "1"})).status_code == 200


async def test_csv_has_one_row_per_item_without_formulas(pipeline_gateway: PipelineGateway) -> None:
    hostile = ["=1+1", "a,b", 'say "x"', "ünï😀", "+2", "@x", "-x", " =x"]
    summary = ["two\nlines", "\tx"]
    batch_id = await pipeline_gateway.started(
        [note(text) for text in hostile] + [note(text, "text") for text in summary]
    )
    await pipeline_gateway.ended(batch_id)
    path = f"/v1/pipeline-batches/{batch_id}/results"
    response = await pipeline_gateway.http.get(path, headers={"accept": "text/csv"})
    assert response.headers["content-type"] == "text/csv; charset=utf-8"
    rows = list(csv.DictReader(io.StringIO(response.text, newline="")))
    assert [row["name"] for row in rows] == [
        "'=1+1",
        "a,b",
        'say "x"',
        "ünï😀",
        "+2",
        "'@x",
        "'-x",
        "' =x",
        "text",
        "text",
    ]
    assert [row["outputs.text"] for row in rows[-2:]] == ["two\nlines!", "'\tx!"]
    assert (await pipeline_gateway.http.get(path, params={"format": "csv"})).text == response.text
    assert [each["name"] for each in await pipeline_gateway.results(batch_id)] == [*hostile, "text", "text"]

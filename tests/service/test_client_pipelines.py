"""Pipelines and batches in the Python client, synchronous and asyncio, with a gateway and a real orchestrator."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.client import (
    AsyncHuggingGPT,
    Batch,
    BatchItem,
    BatchResult,
    FileId,
    Given,
    HuggingGPT,
    InvalidRequest,
    Item,
    NotFound,
    Port,
    Refused,
    Url,
)
from protos.hugginggpt.v1.artifact_pb2 import Value
from protos.hugginggpt.v1.expert_pb2 import InferRequest
from services.orchestrator.settings import Settings
from tests.support.cut_connection import after_bytes, cutting_proxy
from tests.support.orchestrator import END, ScriptedPeers, task
from tests.support.pipeline_gateway import PINNED, PLAN, PipelineGateway, start_pipeline_gateway

LOOK = [{"id": 1, "task": "image-to-text", "arguments": {"image": {"input": "photo"}}}]
PIXEL = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HUGGINGGPT_URL", "HUGGINGGPT_API_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
async def pipeline_gateway(peers: ScriptedPeers, settings: Settings, tmp_path: Path) -> AsyncIterator[PipelineGateway]:
    async with start_pipeline_gateway(peers, settings, tmp_path, fetch_urls=False) as pipeline_gateway:
        peers.infer["model"] = describe_inputs
        yield pipeline_gateway


@pytest.fixture
async def client(pipeline_gateway: PipelineGateway) -> AsyncIterator[AsyncHuggingGPT]:
    async with AsyncHuggingGPT(url(pipeline_gateway)) as client:
        yield client


def url(pipeline_gateway: PipelineGateway) -> str:
    return f"http://127.0.0.1:{pipeline_gateway.gateway.http_port}"


async def describe_inputs(request: InferRequest) -> dict[str, Value]:
    """Returns the image's name, or the note with an exclamation mark; fails for a bad note."""
    if "image" in request.inputs:
        return {"text": Value(text=request.inputs["image"].artifact.name)}
    if "bad" in (note := request.inputs["text"].text):
        raise ValueError(note)
    return {"text": Value(text=f"{note}!")}


async def test_pipelines_are_saved_listed_and_deleted(
    client: AsyncHuggingGPT, pipeline_gateway: PipelineGateway
) -> None:
    port = Port(name="note", modality="text", description="what to shorten")
    first = await client.save_pipeline("short", PLAN, description="shortens", policy="local", inputs=[port])
    assert first.version == 1
    assert first.inputs[0].description == "what to shorten"
    assert first.policy == "local"
    assert await client.save_pipeline("short", PLAN, description="shortens", policy="local", inputs=[port]) == first
    second = await client.save_pipeline("short", PLAN, pin_models=True)
    assert second.plan[0]["pinned_model"] == "model"
    assert await client.pipeline("short") == second
    assert await client.pipeline("short", 1) == first
    await client.save_pipeline("a", PINNED)
    page = await client.pipelines(page_size=1)
    assert [each.name for each in (*page, *await client.pipelines(page_token=page.next))] == ["a", "short"]
    assert [each.version for each in await client.pipeline_versions("short")] == [2, 1]
    await client.delete_pipeline("short", 2)
    assert await client.pipeline("short") == first
    await client.delete_pipeline("short")
    with pytest.raises(NotFound) as raised:
        await client.pipeline("short")
    assert raised.value.code == "PIPELINE"


async def test_saved_plan_of_run_runs_without_planning(
    client: AsyncHuggingGPT, pipeline_gateway: PipelineGateway
) -> None:
    pipeline_gateway.peers.plan(task(1), END)
    run = await client.ask("shorten it")
    by_run, by_id = await client.save_pipeline("a", run), await client.save_pipeline("b", run.run_id, pin_models=True)
    assert by_run.source_run_id == run.run_id
    assert by_id.plan[0]["pinned_model"] == "model"
    stored = await client.save_pipeline("short", PLAN)
    await client.save_pipeline("short", PINNED)
    pipeline_gateway.peers.planned.clear()
    for pipeline, version in ((stored, 1), ("short", 2), ("short@1", 1)):
        again = await client.ask(pipeline=pipeline, inputs={"note": "a long note"})
        assert again.is_completed
        assert again.spec["pipeline"]["version"] == version
        assert again.tasks[0].outputs["text"] == "a long note!"
    assert pipeline_gateway.peers.planned == []
    with pytest.raises(InvalidRequest, match="short@1"):
        await client.ask(pipeline="short@first")


async def test_named_inputs_are_files_text_or_json(
    client: AsyncHuggingGPT, pipeline_gateway: PipelineGateway, tmp_path: Path
) -> None:
    (tmp_path / "here.png").write_bytes(PIXEL)
    await client.save_pipeline("look", LOOK)
    stored = await client.upload(tmp_path / "here.png")
    for given, name in ((tmp_path / "here.png", "here.png"), (PIXEL, "photo"), (stored, "here.png")):
        run = await client.ask(pipeline="look", inputs={"photo": given})
        assert run.tasks[0].outputs["text"] == name
    assert (await client.ask(pipeline="look", inputs={"photo": FileId(stored.id)})).is_completed
    wrong: list[tuple[Given, str]] = [
        ("words", "is a text"),
        ({"a": 1}, "is JSON"),
        (Url("https://a.org"), "fetching URLs is disabled"),
    ]
    for raised, parts in wrong:
        with pytest.raises(Refused, match=parts):
            await client.ask(pipeline="look", inputs={"photo": raised})


def _by_waiting(address: str, folder: Path) -> tuple[Batch, list[BatchItem], list[BatchResult], int]:
    ready: list[int] = []
    with HuggingGPT(address) as client:
        batch = client.start_batch(_items(folder), ready.append, plan=LOOK)
        shown = list(client.watch_batch(batch.batch_id))
        assert _planless(client.wait_batch(batch.batch_id)) == _planless(shown[-1])
        items, results = list(client.batch_items(batch.batch_id)), list(client.batch_results(batch.batch_id))
    return shown[-1], items, results, ready[-1]


async def _on_asyncio(address: str, folder: Path) -> tuple[Batch, list[BatchItem], list[BatchResult], int]:
    ready: list[int] = []
    async with AsyncHuggingGPT(address) as client:
        batch = await client.start_batch(_items(folder), ready.append, plan=LOOK)
        shown = [each async for each in client.watch_batch(batch.batch_id)]
        assert _planless(await client.wait_batch(batch.batch_id)) == _planless(shown[-1])
        items = [item async for item in client.batch_items(batch.batch_id)]
        results = [result async for result in client.batch_results(batch.batch_id)]
    return shown[-1], items, results, ready[-1]


def _planless(batch: Batch) -> Batch:
    """The batch without its plan, as in events after the first."""
    assert batch.pipeline
    spec = {field: value for field, value in batch.spec.items() if field != "plan"}
    return batch.model_copy(update={"pipeline": batch.pipeline.model_copy(update={"plan": ()}), "spec": spec})


def _items(folder: Path) -> list[Item]:
    """Twenty names of four different images; one file is missing, one is empty, one is not an image."""
    for number in range(20):
        (folder / f"{number}.png").write_bytes(PIXEL + bytes([number % 4]))
    (folder / "5.png").unlink()
    (folder / "6.png").write_bytes(b"")
    (folder / "7.png").write_bytes(b"\x89PNG, not")
    return [Item({"photo": folder / f"{number}.png"}, f"item {number}") for number in range(20)]


@pytest.mark.parametrize("waiting", [True, False], ids=["waiting", "asyncio"])
async def test_unsendable_file_fails_only_its_item(
    pipeline_gateway: PipelineGateway, tmp_path: Path, waiting: bool
) -> None:
    started: Callable[[], Any] = lambda: _by_waiting(url(pipeline_gateway), tmp_path)  # noqa: E731  # for a thread
    outcome = await (asyncio.to_thread(started) if waiting else _on_asyncio(url(pipeline_gateway), tmp_path))
    batch, items, results, ready = outcome
    assert batch.state == "incomplete"
    assert batch.counts.completed == 17
    assert batch.counts.failed == 3
    assert batch.counts.ended == 20
    assert [item.index for item in items] == list(range(1, 21))
    assert ready == 20
    assert [result.outputs.get("text") for result in results[:5]] == [f"{number}.png" for number in range(5)]
    assert [result.state for result in results[5:8]] == ["failed"] * 3
    missing, empty, other = [item.failure for item in items[5:8] if item.failure]
    assert missing.reason == "FILE"
    assert str(tmp_path / "5.png") in missing.message
    assert empty.reason == "EMPTY_FILE"
    assert "6.png is empty" in empty.message
    assert other.reason == "FILE_TYPE"
    assert results[5].error
    assert results[5].error.message == missing.message
    assert (await pipeline_gateway.http.get("/v1/files")).json()["data"] == [], "uploads for a batch create no files"


async def test_batches_are_listed_cancelled_resumed_and_deleted(
    client: AsyncHuggingGPT, pipeline_gateway: PipelineGateway
) -> None:
    release = asyncio.Event()

    async def waits(request: InferRequest) -> dict[str, Value]:
        await release.wait()
        return await describe_inputs(request)

    pipeline_gateway.peers.infer["model"] = waits
    notes = [Item({"note": f"note {number}"}) for number in range(8)]
    started = await client.start_batch(notes, plan=PINNED, max_at_once=2, metadata={"of": "me"})
    await client.cancel_batch(started.batch_id)
    batch = await client.wait_batch(started.batch_id)
    assert batch.state == "cancelled"
    assert batch.spec["metadata"] == {"of": "me"}
    assert batch.pipeline
    assert batch.pipeline.plan[0]["task"] == "summarization"
    release.set()
    assert (await client.resume_batch(started.batch_id)).batch_id == started.batch_id
    assert (await client.wait_batch(started.batch_id)).state == "completed"
    assert [each.batch_id for each in await client.batches(states=["completed"])] == [started.batch_id]
    assert list(await client.batches(states=["failed"])) == []
    await client.delete_batch(started.batch_id)
    with pytest.raises(NotFound) as raised:
        await client.batch(started.batch_id)
    assert raised.value.code == "BATCH"


async def test_resume_failed_only_and_summary_lists_errors(
    client: AsyncHuggingGPT, pipeline_gateway: PipelineGateway
) -> None:
    parts = ["a", "bad one", "c", "bad two"]
    items = [Item({"note": each.replace("bad one", "bad\u2028one")}, each) for each in parts]
    started = await client.start_batch(items, plan=PINNED)
    await client.wait_batch(started.batch_id)
    summary = await client.batch_summary(started.batch_id)
    assert summary.state == "incomplete"
    assert summary.counts.failed == 2
    assert summary.errors[0]["count"] == 2
    assert {each["name"] for each in summary.slowest} == set(parts)
    failed = [item.name async for item in client.batch_items(started.batch_id, states=["failed"])]
    assert (
        failed == [item.name async for item in client.batch_results(started.batch_id, states=["failed"])] == parts[1::2]
    )
    pipeline_gateway.peers.infer["model"] = _all_good
    await client.resume_batch(started.batch_id, failed_only=True)
    assert (await client.wait_batch(started.batch_id)).state == "completed"
    after = [item.index async for item in client.batch_items(started.batch_id, after=2)]
    assert after == [3, 4]


async def _all_good(request: InferRequest) -> dict[str, Value]:
    return {"text": Value(text="good")}


async def test_broken_connections_start_one_batch_and_repeat_no_result(
    pipeline_gateway: PipelineGateway,
) -> None:
    items = [Item({"note": f"{number} {'x' * 400}"}, str(number)) for number in range(200)]
    async with (
        cutting_proxy(pipeline_gateway.gateway.http_port, lambda seen: 0, times=2) as proxy,
        AsyncHuggingGPT(proxy.url) as client,
    ):
        started = await client.start_batch(items, plan=PINNED)
    assert proxy.cuts == 2
    async with (
        cutting_proxy(pipeline_gateway.gateway.http_port, after_bytes(900), times=2) as proxy,
        AsyncHuggingGPT(proxy.url) as client,
    ):
        shown = [batch.counts.ended async for batch in client.watch_batch(started.batch_id)]
    assert proxy.cuts == 2
    assert shown == sorted(shown)
    assert shown[-1] == 200
    due = after_bytes(30_000)
    async with (
        cutting_proxy(pipeline_gateway.gateway.http_port, due, times=2) as proxy,
        AsyncHuggingGPT(proxy.url) as client,
    ):
        results = [result.name async for result in client.batch_results(started.batch_id)]
    assert proxy.cuts == 2
    assert results == [item.name for item in items]
    assert len((await pipeline_gateway.http.get("/v1/pipeline-batches")).json()["data"]) == 1


async def test_same_idempotency_key_starts_one_batch(
    client: AsyncHuggingGPT, pipeline_gateway: PipelineGateway
) -> None:
    items = [Item({"note": "a"}, "one")]
    for options in ({}, {"plan": PLAN, "request": "shorten"}):
        with pytest.raises(InvalidRequest, match="needs exactly one plan"):
            await client.start_batch(items, **options)  # type: ignore[arg-type]  # as mistaken as callers may be
    with pytest.raises(InvalidRequest) as raised:
        await client.start_batch([], plan=PLAN)
    assert raised.value.code == "EMPTY"
    pipeline_gateway.peers.plan(task(1), END)
    run = await client.ask("shorten")
    stored = await client.save_pipeline("short", PLAN)
    first = await client.start_batch(items, pipeline=stored, idempotency_key="key")
    assert (await client.start_batch(items, pipeline=stored, idempotency_key="key")).batch_id == first.batch_id
    by_run = await client.start_batch([Item({}, "none")], run=run)
    assert by_run.spec["run_id"] == run.run_id


async def test_cancelled_start_creates_no_batch(client: AsyncHuggingGPT, pipeline_gateway: PipelineGateway) -> None:
    upload_started, resume_upload = threading.Event(), threading.Event()

    def items() -> Iterator[Item]:
        upload_started.set()
        resume_upload.wait(30)
        yield Item({"note": "a"})

    starting = asyncio.create_task(client.start_batch(items(), plan=PLAN))
    assert await asyncio.to_thread(upload_started.wait, 30)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    resume_upload.set()
    assert (await pipeline_gateway.http.get("/v1/pipeline-batches")).json()["data"] == []


async def test_exception_in_items_creates_no_batch(client: AsyncHuggingGPT, pipeline_gateway: PipelineGateway) -> None:
    def items() -> Iterator[Item]:
        yield Item({"note": "a"})
        raise LookupError("no more")

    with pytest.raises(LookupError):
        await client.start_batch(items(), plan=PLAN)
    assert (await pipeline_gateway.http.get("/v1/pipeline-batches")).json()["data"] == []

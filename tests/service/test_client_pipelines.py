"""The Python client, waiting and on asyncio: pipelines and batches at a gateway before a real orchestrator."""

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
from tests.support.cut_connection import after_bytes, cutting
from tests.support.orchestrator import END, Cast, task
from tests.support.pipeline_gateway import PINNED, PLAN, Keeping, opened_keeping

LOOK = [{"id": 1, "task": "image-to-text", "arguments": {"image": {"input": "photo"}}}]
PIXEL = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HUGGINGGPT_URL", "HUGGINGGPT_API_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
async def keeping(cast: Cast, settings: Settings, tmp_path: Path) -> AsyncIterator[Keeping]:
    async with opened_keeping(cast, settings, tmp_path, fetch_urls=False) as keeping:
        cast.infer["model"] = said
        yield keeping


@pytest.fixture
async def house(keeping: Keeping) -> AsyncIterator[AsyncHuggingGPT]:
    async with AsyncHuggingGPT(url(keeping)) as house:
        yield house


def url(keeping: Keeping) -> str:
    return f"http://127.0.0.1:{keeping.doors.http_port}"


async def said(request: InferRequest) -> dict[str, Value]:
    """What comes of a note, or the name of a picture; nothing of a bad note."""
    if "image" in request.inputs:
        return {"text": Value(text=request.inputs["image"].artifact.name)}
    if "bad" in (note := request.inputs["text"].text):
        raise ValueError(note)
    return {"text": Value(text=f"{note}!")}


async def test_plans_are_kept_listed_and_deleted(house: AsyncHuggingGPT, keeping: Keeping) -> None:
    port = Port(name="note", modality="text", description="what to shorten")
    first = await house.save_pipeline("short", PLAN, description="shortens", policy="local", inputs=[port])
    assert (first.version, first.inputs[0].description, first.policy) == (1, "what to shorten", "local")
    assert await house.save_pipeline("short", PLAN, description="shortens", policy="local", inputs=[port]) == first
    second = await house.save_pipeline("short", PLAN, pin_models=True)
    assert second.plan[0]["pinned_model"] == "model"
    assert await house.pipeline("short") == second
    assert await house.pipeline("short", 1) == first
    await house.save_pipeline("a", PINNED)
    page = await house.pipelines(page_size=1)
    assert [each.name for each in (*page, *await house.pipelines(page_token=page.next))] == ["a", "short"]
    assert [each.version for each in await house.pipeline_versions("short")] == [2, 1]
    await house.delete_pipeline("short", 2)
    assert await house.pipeline("short") == first
    await house.delete_pipeline("short")
    with pytest.raises(NotFound) as refused:
        await house.pipeline("short")
    assert refused.value.code == "PIPELINE"


async def test_the_plan_of_a_run_is_kept_and_run_again_without_planning(
    house: AsyncHuggingGPT, keeping: Keeping
) -> None:
    keeping.cast.plan(task(1), END)
    run = await house.ask("shorten it")
    by_run, by_id = await house.save_pipeline("a", run), await house.save_pipeline("b", run.run_id, pin_models=True)
    assert (by_run.source_run_id, by_id.plan[0]["pinned_model"]) == (run.run_id, "model")
    kept = await house.save_pipeline("short", PLAN)
    await house.save_pipeline("short", PINNED)
    keeping.cast.planned.clear()
    for pipeline, version in ((kept, 1), ("short", 2), ("short@1", 1)):
        again = await house.ask(pipeline=pipeline, inputs={"note": "a long note"})
        assert (again.is_completed, again.spec["pipeline"]["version"]) == (True, version)
        assert again.tasks[0].outputs["text"] == "a long note!"
    assert keeping.cast.planned == []
    with pytest.raises(InvalidRequest, match="short@1"):
        await house.ask(pipeline="short@first")


async def test_named_inputs_are_files_text_or_json(house: AsyncHuggingGPT, keeping: Keeping, tmp_path: Path) -> None:
    (tmp_path / "here.png").write_bytes(PIXEL)
    await house.save_pipeline("look", LOOK)
    kept = await house.upload(tmp_path / "here.png")
    for given, name in ((tmp_path / "here.png", "here.png"), (PIXEL, "photo"), (kept, "here.png")):
        run = await house.ask(pipeline="look", inputs={"photo": given})
        assert run.tasks[0].outputs["text"] == name
    assert (await house.ask(pipeline="look", inputs={"photo": FileId(kept.id)})).is_completed
    wrong: list[tuple[Given, str]] = [("words", "is a text"), ({"a": 1}, "is JSON"), (Url("https://a.org"), "fetched")]
    for refused, words in wrong:
        with pytest.raises(Refused, match=words):
            await house.ask(pipeline="look", inputs={"photo": refused})


def _by_waiting(address: str, folder: Path) -> tuple[Batch, list[BatchItem], list[BatchResult], int]:
    ready: list[int] = []
    with HuggingGPT(address) as house:
        batch = house.start_batch(_items(folder), ready.append, plan=LOOK)
        shown = list(house.watch_batch(batch.batch_id))
        assert _planless(house.wait_batch(batch.batch_id)) == _planless(shown[-1])
        items, results = list(house.batch_items(batch.batch_id)), list(house.batch_results(batch.batch_id))
    return shown[-1], items, results, ready[-1]


async def _on_asyncio(address: str, folder: Path) -> tuple[Batch, list[BatchItem], list[BatchResult], int]:
    ready: list[int] = []
    async with AsyncHuggingGPT(address) as house:
        batch = await house.start_batch(_items(folder), ready.append, plan=LOOK)
        shown = [each async for each in house.watch_batch(batch.batch_id)]
        assert _planless(await house.wait_batch(batch.batch_id)) == _planless(shown[-1])
        items = [item async for item in house.batch_items(batch.batch_id)]
        results = [result async for result in house.batch_results(batch.batch_id)]
    return shown[-1], items, results, ready[-1]


def _planless(batch: Batch) -> Batch:
    """As events after the first one tell of it."""
    assert batch.pipeline
    spec = {field: said for field, said in batch.spec.items() if field != "plan"}
    return batch.model_copy(update={"pipeline": batch.pipeline.model_copy(update={"plan": ()}), "spec": spec})


def _items(folder: Path) -> list[Item]:
    """Twenty pictures under different names, of which there are four; one is missing, one empty, one no picture."""
    for number in range(20):
        (folder / f"{number}.png").write_bytes(PIXEL + bytes([number % 4]))
    (folder / "5.png").unlink()
    (folder / "6.png").write_bytes(b"")
    (folder / "7.png").write_bytes(b"\x89PNG, not")
    return [Item({"photo": folder / f"{number}.png"}, f"item {number}") for number in range(20)]


@pytest.mark.parametrize("waiting", [True, False], ids=["waiting", "asyncio"])
async def test_a_file_that_cannot_be_sent_costs_one_line(keeping: Keeping, tmp_path: Path, waiting: bool) -> None:
    started: Callable[[], Any] = lambda: _by_waiting(url(keeping), tmp_path)  # noqa: E731  # for a thread
    outcome = await (asyncio.to_thread(started) if waiting else _on_asyncio(url(keeping), tmp_path))
    batch, items, results, ready = outcome
    assert (batch.state, batch.counts.completed, batch.counts.failed, batch.counts.over) == ("incomplete", 17, 3, 20)
    assert ([item.index for item in items], ready) == (list(range(1, 21)), 20)
    assert [result.outputs.get("text") for result in results[:5]] == [f"{number}.png" for number in range(5)]
    assert [result.state for result in results[5:8]] == ["failed"] * 3
    missing, empty, other = [item.failure for item in items[5:8] if item.failure]
    assert (missing.reason, str(tmp_path / "5.png") in missing.message) == ("FILE", True)
    assert (empty.reason, "6.png is empty" in empty.message) == ("EMPTY_FILE", True)
    assert other.reason == "FILE_TYPE"
    assert results[5].error
    assert results[5].error.message == missing.message
    held = (await keeping.http.get("/v1/files")).json()["data"]
    assert len(held) == 4, "each once"


async def test_batches_are_listed_cancelled_gone_on_with_and_deleted(house: AsyncHuggingGPT, keeping: Keeping) -> None:
    go_on = asyncio.Event()

    async def waits(request: InferRequest) -> dict[str, Value]:
        await go_on.wait()
        return await said(request)

    keeping.cast.infer["model"] = waits
    notes = [Item({"note": f"note {number}"}) for number in range(8)]
    begun = await house.start_batch(notes, plan=PINNED, max_at_once=2, metadata={"of": "me"})
    await house.cancel_batch(begun.batch_id)
    batch = await house.wait_batch(begun.batch_id)
    assert (batch.state, batch.spec["metadata"]) == ("cancelled", {"of": "me"})
    assert batch.pipeline
    assert batch.pipeline.plan[0]["task"] == "summarization"
    go_on.set()
    assert (await house.resume_batch(begun.batch_id)).batch_id == begun.batch_id
    assert (await house.wait_batch(begun.batch_id)).state == "completed"
    assert [each.batch_id for each in await house.batches(states=["completed"])] == [begun.batch_id]
    assert list(await house.batches(states=["failed"])) == []
    await house.delete_batch(begun.batch_id)
    with pytest.raises(NotFound) as refused:
        await house.batch(begun.batch_id)
    assert refused.value.code == "BATCH"


async def test_the_failed_only_run_again_and_a_summary_tells_of_them(house: AsyncHuggingGPT, keeping: Keeping) -> None:
    words = ["a", "bad one", "c", "bad two"]
    items = [Item({"note": each.replace("bad one", "bad\u2028one")}, each) for each in words]
    begun = await house.start_batch(items, plan=PINNED)
    await house.wait_batch(begun.batch_id)
    summary = await house.batch_summary(begun.batch_id)
    assert (summary.state, summary.counts.failed, summary.errors[0]["count"]) == ("incomplete", 2, 2)
    assert {each["name"] for each in summary.slowest} == set(words)
    failed = [item.name async for item in house.batch_items(begun.batch_id, states=["failed"])]
    assert failed == [item.name async for item in house.batch_results(begun.batch_id, states=["failed"])] == words[1::2]
    keeping.cast.infer["model"] = _all_good
    await house.resume_batch(begun.batch_id, failed_only=True)
    assert (await house.wait_batch(begun.batch_id)).state == "completed"
    after = [item.index async for item in house.batch_items(begun.batch_id, after=2)]
    assert after == [3, 4]


async def _all_good(request: InferRequest) -> dict[str, Value]:
    return {"text": Value(text="good")}


async def test_over_broken_wires_one_batch_is_started_and_each_result_told_once(keeping: Keeping) -> None:
    items = [Item({"note": f"{number} {'x' * 400}"}, str(number)) for number in range(200)]
    async with cutting(keeping.doors.http_port, lambda seen: 0, times=2) as wire, AsyncHuggingGPT(wire.url) as house:
        begun = await house.start_batch(items, plan=PINNED)
    assert wire.cuts == 2
    async with cutting(keeping.doors.http_port, after_bytes(900), times=2) as wire, AsyncHuggingGPT(wire.url) as house:
        shown = [batch.counts.over async for batch in house.watch_batch(begun.batch_id)]
    assert (wire.cuts, shown, shown[-1]) == (2, sorted(shown), 200)
    due = after_bytes(30_000)
    async with cutting(keeping.doors.http_port, due, times=2) as wire, AsyncHuggingGPT(wire.url) as house:
        results = [result.name async for result in house.batch_results(begun.batch_id)]
    assert (wire.cuts, results) == (2, [item.name for item in items])
    assert len((await keeping.http.get("/v1/batches")).json()["data"]) == 1


async def test_one_thing_is_run_and_the_same_key_starts_it_once(house: AsyncHuggingGPT, keeping: Keeping) -> None:
    items = [Item({"note": "a"}, "one")]
    for options in ({}, {"plan": PLAN, "request": "shorten"}):
        with pytest.raises(InvalidRequest, match="one thing"):
            await house.start_batch(items, **options)  # type: ignore[arg-type]  # as mistaken as callers may be
    with pytest.raises(InvalidRequest) as refused:
        await house.start_batch([], plan=PLAN)
    assert refused.value.code == "EMPTY"
    keeping.cast.plan(task(1), END)
    run = await house.ask("shorten")
    kept = await house.save_pipeline("short", PLAN)
    first = await house.start_batch(items, pipeline=kept, idempotency_key="key")
    assert (await house.start_batch(items, pipeline=kept, idempotency_key="key")).batch_id == first.batch_id
    by_run = await house.start_batch([Item({}, "none")], run=run)
    assert by_run.spec["run_id"] == run.run_id


async def test_a_start_that_is_given_up_starts_nothing(house: AsyncHuggingGPT, keeping: Keeping) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def items() -> Iterator[Item]:
        begun.set()
        go_on.wait(30)
        yield Item({"note": "a"})

    starting = asyncio.create_task(house.start_batch(items(), plan=PLAN))
    assert await asyncio.to_thread(begun.wait, 30)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    go_on.set()
    assert (await keeping.http.get("/v1/batches")).json()["data"] == []


async def test_what_the_iterable_raises_starts_nothing(house: AsyncHuggingGPT, keeping: Keeping) -> None:
    def items() -> Iterator[Item]:
        yield Item({"note": "a"})
        raise LookupError("no more")

    with pytest.raises(LookupError):
        await house.start_batch(items(), plan=PLAN)
    assert (await keeping.http.get("/v1/batches")).json()["data"] == []

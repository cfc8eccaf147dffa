"""Batch results, tables, summaries and the parsing of batch bodies."""

import asyncio
import csv
import io
from collections.abc import AsyncIterator, Iterable
from datetime import timedelta

import pytest

from gateway.core.batch_items import PAGE_BYTES, PAGE_INPUTS, PAGE_ITEMS, SubmittedItem, paginate
from gateway.http.batch_request import numbered_lines
from gateway.http.batch_results import MAX_ERROR_GROUPS, buffered, result, summary, table
from protos.hugginggpt.v1.artifact_pb2 import Artifact, NamedValue, Value
from protos.hugginggpt.v1.batch_pb2 import Batch, BatchCounts, BatchItem, NewItem
from protos.hugginggpt.v1.failure_pb2 import Failure
from protos.hugginggpt.v1.pipeline_pb2 import Pipeline
from protos.hugginggpt.v1.run_pb2 import RUN_STATE_COMPLETED, RUN_STATE_FAILED, RUN_STATE_QUEUED, RUN_STATE_RUNNING
from protos.hugginggpt.v1.task_pb2 import Port
from protos.hugginggpt.v1.usage_pb2 import Usage
from services.common.errors import InvalidRequest

ARTIFACT = Artifact(sha256="ab" * 32, media_type="audio/wav", size_bytes=5, name="speech.wav")


BATCH = Batch(batch_id="b", state=RUN_STATE_RUNNING, counts=BatchCounts(total=1))


async def each(items: Iterable[BatchItem]) -> AsyncIterator[BatchItem]:
    for item in items:
        yield item


async def chunks(*content: bytes) -> AsyncIterator[bytes]:
    for chunk in content:
        yield chunk


def done(index: int, seconds: float, **outputs: Value) -> BatchItem:
    usage = Usage(input_tokens=2, output_tokens=1, cost=0.5, pool_seconds={"cpu": 2, "gpu-l4": 0.25})
    usage.busy.FromTimedelta(timedelta(seconds=seconds))
    return BatchItem(index=index, name=f"n{index}", state=RUN_STATE_COMPLETED, outputs=outputs, usage=usage)


def failed(index: int, message: str) -> BatchItem:
    failure = Failure(reason="BROKEN", message=message, remedy="mend it")
    return BatchItem(index=index, name=f"n{index}", state=RUN_STATE_FAILED, failure=failure)


def rows(content: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(content.decode(), newline="")))


def test_item_result_always_has_the_same_fields() -> None:
    waiting = result(BatchItem(index=1, state=RUN_STATE_QUEUED))
    assert waiting == {
        "index": 1,
        "name": "",
        "state": "queued",
        "run_id": None,
        "outputs": {},
        "error": None,
        "seconds": None,
        "input_tokens": 0,
        "output_tokens": 0,
        "cost": 0.0,
    }
    row = result(done(2, 1.5, audio=Value(artifact=ARTIFACT), labels=Value(json="[1]")))
    assert row.keys() == waiting.keys()
    assert row["outputs"]["audio"]["artifact"]["name"] == "speech.wav"
    assert row["outputs"]["labels"] == [1]
    assert row["seconds"] == 1.5
    assert result(failed(3, "x"))["error"] == {"reason": "BROKEN", "message": "x", "remedy": "mend it"}


async def test_table_has_a_column_for_every_output() -> None:
    batch = Batch(pipeline=Pipeline(outputs=[Port(name="audio"), Port(name="text"), Port(name="labels")]))
    items = [
        done(1, 1, audio=Value(artifact=ARTIFACT), text=Value(text="=HYPERLINK()"), labels=Value(json='{"a":-1}')),
        done(2, 1, text=Value(text="-12.5e3"), labels=Value(json="-3")),
        failed(3, "@sum"),
    ]
    first, second, third = rows(b"".join([row async for row in table(batch, each(items))]))
    assert first["outputs.audio"] == f"/v1/artifacts/{ARTIFACT.sha256}"
    assert first["outputs.text"] == "'=HYPERLINK()"
    assert first["outputs.labels"] == '{"a":-1}'
    assert second["outputs.audio"] == ""
    assert second["outputs.text"] == "-12.5e3"
    assert second["outputs.labels"] == "-3"
    assert third["error.message"] == "'@sum"
    assert third["seconds"] == ""


async def test_buffered_chunks_have_the_same_bytes() -> None:
    assert [piece async for piece in buffered(chunks(b"a", b"b" * 70_000, b"c"))] == [b"a" + b"b" * 70_000, b"c"]
    assert b"".join([piece async for piece in buffered(chunks())]) == b""


async def test_durations_come_from_items_that_have_them() -> None:
    figures = await summary(BATCH, each([*(done(n, float(n)) for n in range(1, 21)), failed(21, "x")]))
    assert figures["seconds"] == {"total": 210.0, "median": 10.5, "p95": 19.0}
    assert [entry["index"] for entry in figures["slowest"]] == [20, 19, 18, 17, 16]
    assert figures["input_tokens"] == 40
    assert figures["output_tokens"] == 20
    assert figures["cost"] == 10.0
    assert figures["pool_seconds"] == {"cpu": 40.0, "gpu-l4": 5.0}
    empty = await summary(BATCH, each([]))
    assert empty["seconds"] == {"total": 0, "median": 0, "p95": 0}
    assert empty["slowest"] == []
    assert empty["errors"] == []


async def test_number_of_error_groups_is_bounded() -> None:
    items = [failed(index, f"error {min(index, 150)}") for index in range(1, 201)]
    errors = (await summary(BATCH, each(items)))["errors"]
    assert sum(error["count"] for error in errors) == 200
    assert len(errors) <= MAX_ERROR_GROUPS + 2
    assert errors[0]["message"] == ""
    assert errors[0]["count"] == 100
    assert errors[0]["names"] == ["n101", "n102", "n103"]


async def test_errors_are_grouped_regardless_of_file_name() -> None:
    messages = ["a.b: bad a.b", "(a.b)", "xa.b and a.b_ differ", "a.b"]
    items = [failed(index, message) for index, message in enumerate(messages * 2, 1)]
    for item in items:
        item.name = "in/a.b"
    errors = (await summary(BATCH, each(items)))["errors"]
    assert {error["message"] for error in errors} == {"…: bad …", "(…)", "xa.b and a.b_ differ", "…"}


async def test_pages_are_limited_by_items_inputs_and_bytes() -> None:
    async def sent(items: Iterable[NewItem], length: int) -> AsyncIterator[tuple[SubmittedItem, int]]:
        for item in items:
            yield SubmittedItem("", item), length

    async def sizes(items: Iterable[NewItem], length: int = 0) -> list[int]:
        turns = list[int]()

        async def other() -> None:
            while True:
                turns.append(0)
                await asyncio.sleep(0)

        other_task = asyncio.create_task(other())
        found = [len(page) async for page in paginate(sent(items, length))]
        other_task.cancel()
        assert len(turns) >= len(found) - 1
        return found

    wide = NewItem(inputs=[NamedValue()] * (PAGE_INPUTS // 2))
    assert await sizes([NewItem()] * (3 * PAGE_ITEMS + 1)) == [PAGE_ITEMS] * 3 + [1]
    assert await sizes([wide] * 5) == [2, 2, 1]
    assert await sizes([NewItem()] * 5, PAGE_BYTES // 2) == [2, 2, 1]


async def test_line_numbers_do_not_depend_on_chunks() -> None:
    content = b'{"a":1}\r\n\n  \n{"b":2}\n{"c":3}'
    for size in range(1, len(content)):
        cut = chunks(*(content[start : start + size] for start in range(0, len(content), size)))
        found = [(number, line.strip()) async for number, line in numbered_lines(cut)]
        assert found == [(1, b'{"a":1}'), (4, b'{"b":2}'), (5, b'{"c":3}')]


async def test_unterminated_long_line_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.http.batch_request.JSON_BYTES", 100)
    with pytest.raises(InvalidRequest) as raised:
        _ = [line async for line in numbered_lines(chunks(b"{}\n", *[b"x" * 60] * 2))]
    assert raised.value.reason == "TOO_LARGE"
    assert raised.value.message.split(" is")[0] == "line 2"

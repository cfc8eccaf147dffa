"""Serialization of batch items as JSON lines, and upload of their files."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from gateway.client import Artifact, Attachment, Failure, FileId, Given, InvalidRequest, Item, Json, Unreachable, Url
from gateway.client.batch_items import CONCURRENT_UPLOADS, IN_MEMORY_BYTES, ItemWriter, JsonLinesBody

A = Artifact(sha256="a" * 64, name="a.png")


def never(file: Attachment) -> Artifact:
    raise AssertionError(file)


def read(writer: ItemWriter, *items: Item) -> list[Any]:
    """Parsed lines after the first, which has the spec."""
    return [json.loads(line) for line in writer.lines({}, items)][1:]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("words", {"text": "words"}),
        ({"a": [1]}, {"json": {"a": [1]}}),
        ([1, "b"], {"json": [1, "b"]}),
        (2.5, {"json": 2.5}),
        (None, {"json": None}),
        (Json("words"), {"json": "words"}),
        (Json({"a": [1]}), {"json": {"a": [1]}}),
        (FileId("file_1"), {"file_id": "file_1"}),
        (Url("https://example.org/a.png"), {"url": "https://example.org/a.png"}),
        (A, {"artifact": {"sha256": "a" * 64, "name": "a.png"}}),
    ],
)
def test_input_values_determine_their_type(given: Given, expected: dict[str, Any]) -> None:
    (line,) = read(ItemWriter(never), Item({"x": given}, "one"))
    assert line == {"name": "one", "inputs": [{"name": "x", **expected}]}


def test_files_upload_concurrently_once_and_items_keep_order(tmp_path: Path) -> None:
    together, sent = threading.Barrier(CONCURRENT_UPLOADS, timeout=10), list[str]()

    def upload(file: Attachment) -> Artifact:
        sent.append(file.name)
        if len(sent) <= CONCURRENT_UPLOADS:
            together.wait()
        with file.open() as opened:
            return Artifact(sha256=_digest(opened.read()), name=file.name)

    contents = [b"%d" % (number % (2 * CONCURRENT_UPLOADS)) for number in range(100)]
    items = [Item({"x": Attachment(f"{number}.bin", content)}) for number, content in enumerate(contents)]
    lines = read(ItemWriter(upload), *items)
    artifacts = [line["inputs"][0]["artifact"] for line in lines]
    assert [each["name"] for each in artifacts] == [f"{number}.bin" for number in range(100)]
    assert [each["sha256"] for each in artifacts] == [_digest(content) for content in contents]
    assert len(sent) == 2 * CONCURRENT_UPLOADS


def _digest(content: bytes) -> str:
    return sha256(content).hexdigest()


def test_file_changed_during_upload_is_what_was_sent() -> None:
    lines = read(ItemWriter(lambda file: A), *(Item({"x": b"same"}) for _ in range(2)))
    assert {line["inputs"][0]["artifact"]["sha256"] for line in lines} == {"a" * 64}


def test_unsendable_file_becomes_failed_item(tmp_path: Path) -> None:
    def refuse(file: Attachment) -> Artifact:
        raise InvalidRequest("the file is not an image", code="FILE_TYPE", remedy="send one", status=400)

    failure = Failure(reason="ROW", message="too few columns")
    missing, rejected, known = read(
        ItemWriter(refuse),
        Item({"x": tmp_path / "gone \udcff.png"}),
        Item({"x": b"text"}, "two"),
        Item({}, "three", failure=failure),
    )
    assert missing["failure"]["reason"] == "FILE"
    assert "No such file" in missing["failure"]["message"]
    why = {"reason": "FILE_TYPE", "message": "the file is not an image", "remedy": "send one"}
    assert rejected == {"name": "two", "failure": why}
    assert known == {"name": "three", "inputs": [], "failure": {"reason": "ROW", "message": "too few columns"}}


def test_unreachable_gateway_stops_writer() -> None:
    def upload(file: Attachment) -> Artifact:
        raise Unreachable("gone", code="UNREACHABLE")

    with pytest.raises(Unreachable):
        read(ItemWriter(upload), *(Item({"x": b"%d" % number}) for number in range(500)))


def test_writer_can_be_stopped_from_other_thread() -> None:
    def endless() -> Iterator[Item]:
        while True:
            yield Item({"x": "words"})

    writer = ItemWriter(never, lambda ready: writer.stop() if ready == 3 else None)
    with pytest.raises(CancelledError):
        JsonLinesBody(writer.lines({}, endless()))


def test_long_body_is_sent_repeatedly_from_file() -> None:
    line = b"x" * 999 + b"\n"
    body = JsonLinesBody(line for _ in range(IN_MEMORY_BYTES // 1000 + 1))
    assert body.headers["Content-Length"] == str(sum(map(len, body))) == str(sum(map(len, body)))
    body.close()

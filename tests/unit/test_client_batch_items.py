"""Serialization of batch items as JSON lines, and upload of their files."""

import itertools
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from gateway.client import (
    Artifact,
    Attachment,
    Failure,
    FileId,
    Given,
    InvalidRequest,
    Item,
    Json,
    Refused,
    Unreachable,
    Url,
)
from gateway.client.batch_items import (
    BYTES_PER_UPLOAD,
    CONCURRENT_UPLOADS,
    FILES_PER_UPLOAD,
    IN_MEMORY_BYTES,
    LOOKAHEAD,
    ItemWriter,
    JsonLinesBody,
)

A = Artifact(sha256="a" * 64, name="a.png")


Send = Callable[[Sequence[Attachment]], list[Artifact | Refused]]


def never(files: Sequence[Attachment]) -> list[Artifact | Refused]:
    raise AssertionError(files)


def artifact(file: Attachment) -> Artifact:
    with file.open() as opened:
        return Artifact(sha256=_digest(opened.read()), name=file.name)


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


def test_files_upload_concurrently_once_and_items_keep_order() -> None:
    together, sent = threading.Barrier(CONCURRENT_UPLOADS, timeout=10), list[str]()
    requests = itertools.count(1)

    def send(files: Sequence[Attachment]) -> list[Artifact | Refused]:
        if next(requests) <= CONCURRENT_UPLOADS:
            together.wait()
        sent.extend(file.name for file in files)
        return [artifact(file) for file in files]

    distinct = (CONCURRENT_UPLOADS + 1) * FILES_PER_UPLOAD
    contents = [b"%d" % (number % distinct) for number in range(LOOKAHEAD)]
    items = [Item({"x": Attachment(f"{number}.bin", content)}) for number, content in enumerate(contents)]
    lines = read(ItemWriter(send), *items)
    artifacts = [line["inputs"][0]["artifact"] for line in lines]
    assert [each["name"] for each in artifacts] == [f"{number}.bin" for number in range(LOOKAHEAD)]
    assert [each["sha256"] for each in artifacts] == [_digest(content) for content in contents]
    assert len(sent) == distinct


def recording_send(groups: list[list[str]], first: threading.Event) -> Send:
    """An upload that records the names it gets; the first requests wait for an event, so that further files wait."""

    def send(files: Sequence[Attachment]) -> list[Artifact | Refused]:
        groups.append([file.name for file in files])
        assert first.wait(10)
        return [artifact(file) for file in files]

    return send


def test_waiting_files_are_sent_together() -> None:
    groups, all_read, opened = list[list[str]](), threading.Event(), itertools.count(1)

    class CountedAttachment(Attachment):
        def open(self) -> BinaryIO:
            if next(opened) == LOOKAHEAD:
                all_read.set()
            return super().open()

    names = [f"{number}.bin" for number in range(LOOKAHEAD)]
    items = (Item({"x": CountedAttachment(name, name.encode())}) for name in names)
    read(ItemWriter(recording_send(groups, all_read)), *items)
    assert sorted(itertools.chain(*groups)) == sorted(names)
    assert max(map(len, groups)) == FILES_PER_UPLOAD
    assert len(groups) < 2 * LOOKAHEAD / FILES_PER_UPLOAD


def test_large_file_is_sent_alone() -> None:
    groups, first = list[list[str]](), threading.Event()
    first.set()
    large = bytes(BYTES_PER_UPLOAD + 1)
    read(
        ItemWriter(recording_send(groups, first)),
        *(Item({"x": Attachment(name, large + name.encode())}) for name in ("a.bin", "b.bin", "c.bin")),
    )
    assert sorted(groups) == [["a.bin"], ["b.bin"], ["c.bin"]]


def test_file_truncated_during_upload_fails_alone() -> None:
    def send(files: Sequence[Attachment]) -> list[Artifact | Refused]:
        if any(file.name == "bad.bin" for file in files):
            raise InvalidRequest("bad.bin was truncated while it was sent", code="FILE")
        return [artifact(file) for file in files]

    names = [f"{number}.bin" for number in range(20)] + ["bad.bin"]
    lines = read(ItemWriter(send), *(Item({"x": Attachment(name, name.encode())}, name) for name in names))
    assert [line["name"] for line in lines if "failure" in line] == ["bad.bin"]


def _digest(content: bytes) -> str:
    return sha256(content).hexdigest()


def test_file_changed_during_upload_is_what_was_sent() -> None:
    lines = read(ItemWriter(lambda files: [A] * len(files)), *(Item({"x": b"same"}) for _ in range(2)))
    assert {line["inputs"][0]["artifact"]["sha256"] for line in lines} == {"a" * 64}


def test_unsendable_file_becomes_failed_item(tmp_path: Path) -> None:
    def refuse(files: Sequence[Attachment]) -> list[Artifact | Refused]:
        error = InvalidRequest("the file is not an image", code="FILE_TYPE", remedy="send one", status=400)
        return [error] * len(files)

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
    def send(files: Sequence[Attachment]) -> list[Artifact | Refused]:
        raise Unreachable("gone", code="UNREACHABLE")

    with pytest.raises(Unreachable):
        read(ItemWriter(send), *(Item({"x": b"%d" % number}) for number in range(500)))


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

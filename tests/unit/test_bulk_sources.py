"""Inputs of bulk jobs: files, patterns and tables, with the versions by which a rerun finds what has changed."""

import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from experts.bulk.pipeline import ResolvedPipeline, read_experts, resolve
from experts.bulk.sources import SourceRow, read_rows
from services.common.errors import InvalidRequest, NotFound
from tests.support.bulk import CLASSIFY
from tests.support.s3 import Bucket

ASK = {
    "format": "hugginggpt/pipeline/1",
    "name": "ask",
    "plan": [
        {
            "id": 1,
            "task": "document-question-answering",
            "args": {"image": {"input": "page"}, "question": {"input": "what"}},
        }
    ],
}


@pytest.fixture(scope="module")
def letters() -> ResolvedPipeline:
    return resolve(CLASSIFY, read_experts(["lite"]))


@pytest.fixture(scope="module")
def questions() -> ResolvedPipeline:
    return resolve(ASK, read_experts(["lite"]))


def read(pipeline: ResolvedPipeline, *sources: str | Path) -> list[SourceRow]:
    return list(read_rows(map(str, sources), pipeline))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b.txt", "a.txt", "sub/c.txt", ".hidden", ".git/config"):
        file = tmp_path / "in" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)
    return tmp_path / "in"


def test_folder_has_the_files_of_its_subfolders_except_hidden_ones(folder: Path, letters: ResolvedPipeline) -> None:
    assert [row.input for row in read(letters, folder)] == [
        f"{folder}/{name}" for name in ("a.txt", "b.txt", "sub/c.txt")
    ]


def test_pattern_has_the_files_that_match(folder: Path, letters: ResolvedPipeline) -> None:
    assert [row.input for row in read(letters, f"{folder}/**/c.*")] == [f"{folder}/sub/c.txt"]


def test_file_of_two_sources_is_listed_once(folder: Path, letters: ResolvedPipeline) -> None:
    assert len(read(letters, folder, folder / "a.txt")) == 3


def test_version_of_a_file_changes_with_its_modification_time(folder: Path, letters: ResolvedPipeline) -> None:
    before = {row.input: row.version for row in read(letters, folder)}
    os.utime(folder / "a.txt", (1, 1))
    after = {row.input: row.version for row in read(letters, folder)}
    assert {name for name in after if after[name] != before[name]} == {f"{folder}/a.txt"}


@pytest.mark.parametrize("source", ["absent", "*.absent"])
def test_source_without_files_is_not_found(folder: Path, letters: ResolvedPipeline, source: str) -> None:
    with pytest.raises(NotFound):
        read(letters, folder / source)


def test_web_address_is_refused(letters: ResolvedPipeline) -> None:
    with pytest.raises(InvalidRequest, match="http:// is not supported"):
        read(letters, "http://127.0.0.1/a.txt")


def test_files_for_a_pipeline_with_two_inputs_are_refused(folder: Path, questions: ResolvedPipeline) -> None:
    with pytest.raises(InvalidRequest, match="page, what") as caught:
        read(questions, folder)
    assert "--set" in caught.value.remedy


def write_table(file: Path) -> Path:
    rows = [{"page": "a.png", "what": "Total?"}, {"page": "s3://bucket/b.png", "what": "Date?"}]
    match file.suffix:
        case ".parquet":
            pq.write_table(pa.Table.from_pylist(rows), file)
        case ".csv":
            file.write_text("page,what\na.png,Total?\ns3://bucket/b.png,Date?\n")
        case _:
            file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl"])
def test_table_has_a_column_for_each_input(tmp_path: Path, questions: ResolvedPipeline, suffix: str) -> None:
    table = write_table(tmp_path / f"questions.{suffix}")
    first, second = read(questions, table)
    assert first.input == f"{table}#1"
    assert first.values == {"page": {"url": f"{tmp_path}/a.png"}, "what": {"text": "Total?"}}
    assert second.values["page"] == {"url": "s3://bucket/b.png"}


def test_version_of_a_row_changes_with_the_file_that_it_names(tmp_path: Path, questions: ResolvedPipeline) -> None:
    table = write_table(tmp_path / "questions.csv")
    before = [row.version for row in read(questions, table)]
    (tmp_path / "a.png").write_bytes(b"new")
    after = [row.version for row in read(questions, table)]
    assert after[0] != before[0]
    assert after[1] == before[1]


def test_table_without_a_required_column_is_refused(tmp_path: Path, questions: ResolvedPipeline) -> None:
    (tmp_path / "t.csv").write_text("page,other\na.png,b\n")
    with pytest.raises(InvalidRequest, match=r"has no column what; its columns are page, other"):
        read(questions, tmp_path / "t.csv")


@pytest.mark.parametrize(("name", "content"), [("t.jsonl", "[1]\n"), ("t.jsonl", "{\n"), ("t.parquet", "no")])
def test_invalid_table_is_refused(tmp_path: Path, questions: ResolvedPipeline, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(InvalidRequest, match="cannot read the table"):
        read(questions, tmp_path / name)


def test_objects_of_a_bucket_have_their_etag_as_version(bucket: Bucket, letters: ResolvedPipeline) -> None:
    for name in ("in/a.txt", "in/sub/b.txt", "in/.hidden", "other/c.txt"):
        bucket.overwrite(name, name.encode())
    before = read(letters, f"{bucket.url}/in/")
    assert [row.input for row in before] == [f"{bucket.url}/in/{name}" for name in ("a.txt", "sub/b.txt")]
    bucket.overwrite("in/a.txt", b"changed!")
    after = read(letters, f"{bucket.url}/in/")
    assert [one.version == other.version for one, other in zip(before, after, strict=True)] == [False, True]


def test_pattern_of_a_bucket_has_the_objects_that_match(bucket: Bucket, letters: ResolvedPipeline) -> None:
    for name in ("in/a.txt", "in/sub/b.txt", "in/sub/b.png"):
        bucket.overwrite(name, b"x")
    assert [row.input for row in read(letters, f"{bucket.url}/in/**/*.txt")] == [
        f"{bucket.url}/in/{name}" for name in ("a.txt", "sub/b.txt")
    ]
    assert [row.input for row in read(letters, f"{bucket.url}/in/*.txt")] == [f"{bucket.url}/in/a.txt"]

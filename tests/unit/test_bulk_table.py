"""Table of results: parts, keys of what is done, and replacement of rows that are computed again."""

from pathlib import Path

import pyarrow as pa
import pytest

from experts.bulk.storage import OutputFolder
from experts.bulk.table import ResultTable, to_csv, to_json_lines
from tests.support.s3 import Bucket

ERROR = pa.struct([("code", pa.string()), ("message", pa.string()), ("remedy", pa.string()), ("task", pa.int64())])
FAILURE = {"code": "INVALID", "message": "cannot decode", "remedy": "send another", "task": 1}
PIPELINE = "test@1"


def rows(*names: str, version: str = "1", pipeline: str = PIPELINE, failed: bool = False) -> pa.Table:
    count = len(names)
    return pa.table(
        {
            "input": list(names),
            "version": [version] * count,
            "pipeline": [pipeline] * count,
            "text": [f"{name} {version}" for name in names],
            "error": pa.array([FAILURE if failed else None] * count, ERROR),
        }
    )


@pytest.fixture
def table(tmp_path: Path) -> ResultTable:
    return ResultTable(OutputFolder(str(tmp_path / "out")))


def test_completed_inputs_have_their_version(table: ResultTable) -> None:
    table.append(rows("a", "b"))
    assert table.completed(PIPELINE) == {"a": "1", "b": "1"}


def test_failed_input_and_input_of_another_pipeline_version_are_not_completed(table: ResultTable) -> None:
    table.append(rows("a", failed=True))
    table.append(rows("b", pipeline="test@2"))
    assert not any(table.completed(PIPELINE).values())


def test_newest_row_of_an_input_counts(table: ResultTable) -> None:
    table.append(rows("a"))
    table.append(rows("a", version="2"))
    assert table.completed(PIPELINE) == {"a": "2"}


def test_superseded_rows_are_removed(table: ResultTable) -> None:
    table.append(rows("a", "b"))
    table.append(rows("c"))
    table.append(rows("a", version="2"))
    table.remove_superseded()
    assert [row["text"] for row in table.rows()] == ["b 1", "c 1", "a 2"]


def test_part_without_rows_is_deleted(table: ResultTable, tmp_path: Path) -> None:
    table.append(rows("a"))
    table.append(rows("a", version="2"))
    table.remove_superseded()
    assert [file.name for file in (tmp_path / "out").iterdir()] == list(table.parts)
    assert len(table.parts) == 1


def test_part_after_a_removed_one_has_a_higher_number(table: ResultTable) -> None:
    table.append(rows("a"))
    table.append(rows("b"))
    table.append(rows("c"))
    assert [part.split("-")[1] for part in table.parts] == ["000001", "000002", "000003"]


def test_incomplete_file_of_a_killed_job_is_no_part(table: ResultTable, tmp_path: Path) -> None:
    table.append(rows("a"))
    (tmp_path / "out" / f"{table.parts[0]}#1").write_bytes(b"PAR1")
    assert ResultTable(OutputFolder(str(tmp_path / "out"))).parts == table.parts


def test_parts_in_a_bucket_are_read_by_column(bucket: Bucket) -> None:
    table = ResultTable(OutputFolder(f"{bucket.url}/out/"))
    table.append(rows("a", "b"))
    again = ResultTable(OutputFolder(f"{bucket.url}/out/"))
    assert again.completed(PIPELINE) == {"a": "1", "b": "1"}
    assert bucket.keys() == {f"out/{name}" for name in table.parts}


def test_media_are_named_by_their_digest(tmp_path: Path) -> None:
    folder = OutputFolder(str(tmp_path))
    name = folder.write_media(b"sound", "audio/wav")
    assert name == folder.write_media(b"sound", "audio/wav")
    assert name.startswith("files/")
    assert (tmp_path / name).read_bytes() == b"sound"


def test_csv_has_a_column_for_each_field_of_an_error(table: ResultTable) -> None:
    table.append(rows("a", failed=True))
    text = b"".join(to_csv(table.rows(), table.columns())).decode()
    assert text.splitlines()[0] == "input,version,pipeline,text,error.code,error.message,error.remedy,error.task"
    assert text.splitlines()[1] == "a,1,test@1,a 1,INVALID,cannot decode,send another,1"


def test_json_lines_have_a_line_for_each_row(table: ResultTable) -> None:
    table.append(rows("a", "b"))
    assert len(list(to_json_lines(table.rows()))) == 2

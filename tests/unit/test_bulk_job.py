"""Job files, the limit of errors, and progress."""

import json
from pathlib import Path

import pytest

from experts.bulk.job import ErrorLimit, Job, read_job
from services.common.errors import InvalidRequest


@pytest.mark.parametrize(
    ("text", "failed", "done", "reached"),
    [
        ("", 100, 100, False),
        ("3", 2, 2, False),
        ("3", 3, 1000, True),
        ("5%", 2, 10, False),  # too few rows for a share
        ("5%", 2, 40, False),
        ("5%", 3, 40, True),
    ],
)
def test_error_limit(text: str, failed: int, done: int, *, reached: bool) -> None:
    assert ErrorLimit.parse(text).is_reached(failed, done) is reached


@pytest.mark.parametrize("text", ["many", "-1", "101%", "5.5"])
def test_invalid_error_limit_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="is no number of errors"):
        ErrorLimit.parse(text)


@pytest.mark.parametrize(
    ("to", "folder", "file"),
    [("out/", "out/", ""), ("s3://b/out/", "s3://b/out/", ""), ("o.jsonl", "o.jsonl.parts", "o.jsonl")],
)
def test_output_is_a_folder_or_a_file_next_to_its_parts(to: str, folder: str, file: str) -> None:
    job = Job({}, ["in"], to)
    assert job.folder == folder
    assert job.file == file


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("no", "cannot read the job"),
        ("{}", "is no job"),
        (json.dumps({"pipeline": {}, "sources": ["a"], "to": "o", "size": 1}), "has no field size"),
        (json.dumps({"pipeline": {}, "sources": [], "to": "o"}), "has no inputs"),
        (json.dumps({"pipeline": {}, "sources": ["a"]}), "has no output"),
        (json.dumps({"pipeline": {}, "sources": ["a"], "to": "o", "runner": "spark"}), "'spark' is no runner"),
        (json.dumps({"pipeline": {}, "sources": ["a"], "to": "o", "media": "rows"}), "media cannot be 'rows'"),
        (json.dumps({"pipeline": {}, "sources": ["a"], "to": "o.csv", "media": "columns"}), "o.csv cannot have media"),
    ],
)
def test_invalid_job_file_is_refused(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "job.json"
    file.write_text(content)
    with pytest.raises(InvalidRequest, match=message):
        read_job(file)

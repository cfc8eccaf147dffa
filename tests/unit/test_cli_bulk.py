"""The command bulk: options, pipeline files, and the job that it writes."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from experts.bulk.job import read_job
from gateway.cli import app
from gateway.cli import bulk as bulk_command

PIPELINE = """\
format: hugginggpt/pipeline/1
name: read
plan:
  - {id: 1, task: image-to-text, args: {image: {input: page}}}
"""


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    file = tmp_path / "read.yaml"
    file.write_text(PIPELINE)
    return file


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[Mapping[str, Any]]:
    """Jobs that the command would run."""
    found: list[Mapping[str, Any]] = []

    def run(job: Mapping[str, Any]) -> int:
        found.append(json.loads(json.dumps(job)))
        return 1

    monkeypatch.setattr(bulk_command, "_run", run)
    return found


def test_job_has_the_options_and_the_content_of_the_pipeline(pipeline: Path, jobs: list[Mapping[str, Any]]) -> None:
    options = ["--from", "a", "--from", "s3://b/", "--to", "out/", "--experts", "lite, ../colours", "--set", "what=a=b"]
    options += ["--media", "columns"]
    ended = CliRunner().invoke(app, ["bulk", str(pipeline), *options])
    (job,) = jobs
    assert job["pipeline"]["plan"][0]["task"] == "image-to-text"
    assert job["sources"] == ["a", "s3://b/"]
    assert job["experts"] == ["lite", "../colours"]
    assert job["values"] == {"what": "a=b"}
    assert job["media"] == "columns"
    assert ended.exit_code == 1, "the exit status is that of the job"


def test_error_in_the_file_names_the_line(pipeline: Path, jobs: list[Mapping[str, Any]]) -> None:
    pipeline.write_text(PIPELINE.replace("task: ", "tsk: "))
    ended = CliRunner().invoke(app, ["bulk", str(pipeline), "--from", "a", "--to", "out/"])
    assert ended.exit_code == 2
    assert "read.yaml, line 4: plan.0" in ended.stderr
    assert jobs == []


def test_plan_without_a_format_is_accepted(tmp_path: Path, jobs: list[Mapping[str, Any]]) -> None:
    file = tmp_path / "run.json"
    file.write_text(json.dumps({"plan": [{"id": 1, "task": "image-to-text", "args": {"image": {"input": "page"}}}]}))
    CliRunner().invoke(app, ["bulk", str(file), "--from", "a", "--to", "out/"])
    assert jobs[0]["pipeline"]["name"] == "run"


def test_job_file_is_written_without_an_engine_and_nothing_runs(
    pipeline: Path, jobs: list[Mapping[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "daft", None)
    file = tmp_path / "job.json"
    options = ["--from", "s3://b/in/", "--to", "s3://b/out/", "--runner", "ray", "--job-file", str(file)]
    ended = CliRunner().invoke(app, ["bulk", str(pipeline), *options])
    assert ended.exit_code == 0
    assert read_job(file).runner == "ray"
    assert jobs == []


def test_job_file_that_cannot_be_written_is_reported(pipeline: Path, tmp_path: Path) -> None:
    file = tmp_path / "missing" / "job.json"
    ended = CliRunner().invoke(app, ["bulk", str(pipeline), "--from", "a", "--to", "out/", "--job-file", str(file)])
    assert ended.exit_code == 1
    assert "cannot write" in ended.stderr


def test_setting_without_a_value_is_refused(pipeline: Path, jobs: list[Mapping[str, Any]]) -> None:
    ended = CliRunner().invoke(app, ["bulk", str(pipeline), "--from", "a", "--to", "out/", "--set", "what"])
    assert ended.exit_code == 2
    assert "'what' is not NAME=VALUE" in ended.stderr


def test_missing_engine_is_reported_with_the_command_that_installs_it(
    pipeline: Path, jobs: list[Mapping[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "daft", None)
    ended = CliRunner().invoke(app, ["bulk", str(pipeline), "--from", "a", "--to", "out/"])
    assert ended.exit_code == 1
    assert "bulk]" in ended.stderr
    assert jobs == []

"""Bulk jobs run by `python -m experts.bulk`: rows, errors, reruns and interruptions."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.support.bulk import CLASSIFY, EndedJob, read_table, run_job, start_job, write_job
from tests.support.s3 import Bucket

LETTERS = {
    "glad.txt": "I am so happy with this wonderful house. The garden is lovely.",
    "sad.txt": "This is a terrible, awful day. Everything is broken and I hate it.",
    "plain.txt": "The train leaves at nine. It arrives at ten.",
}


def write_letters(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in LETTERS.items():
        (folder / name).write_text(text)
    (folder / "broken.txt").write_bytes(b"\xff\xfe\x00broken")
    return folder


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, EndedJob]:
    """A job over three letters and a file that is no text."""
    folder = tmp_path_factory.mktemp("bulk")
    letters = write_letters(folder / "in")
    return folder, run_job(folder, [letters], folder / "out")


def test_every_input_has_a_row(first: tuple[Path, EndedJob]) -> None:
    folder, job = first
    assert set(read_table(folder / "out")) == {*LETTERS, "broken.txt"}
    assert job.summary["done"] == 4


def test_row_has_outputs_models_and_digest(first: tuple[Path, EndedJob]) -> None:
    row = read_table(first[0] / "out")["glad.txt"]
    assert row["task2.text"] == "positive"
    assert json.loads(row["task3.statistics"])["words"] == 12
    assert row["task2.model"].startswith("vaderSentiment@")
    assert row["size"] == len(LETTERS["glad.txt"])
    assert len(row["digest"]) == 64
    assert row["error"] is None


def test_broken_file_costs_its_row_an_error_and_nothing_else(first: tuple[Path, EndedJob]) -> None:
    folder, job = first
    error = read_table(folder / "out")["broken.txt"]["error"]
    assert error["code"] == "NOT_UTF8"
    assert error["task"] == 1
    assert job.summary["failed"] == 1
    assert job.status == 1


def test_job_without_anything_to_do_loads_no_engine(first: tuple[Path, EndedJob]) -> None:
    folder, _ = first
    again = run_job(folder, [folder / "in" / "glad.txt"], folder / "out", {"PYTHONPROFILEIMPORTTIME": "1"})
    imported = {line.rpartition("|")[2].strip() for line in again.errors.splitlines()}
    assert again.summary["skipped"] == 1
    assert "experts.bulk.runner" in imported
    assert imported.isdisjoint({"daft", "pandas", "experts.host.servicer"})


@pytest.mark.slow
def test_rerun_does_only_what_failed_or_changed(tmp_path: Path) -> None:
    letters = write_letters(tmp_path / "in")
    run_job(tmp_path, [letters], tmp_path / "out")
    (letters / "sad.txt").write_text("Now I am happy and everything is wonderful.")
    (letters / "broken.txt").write_text("It is fine.")
    again = run_job(tmp_path, [letters], tmp_path / "out")
    assert again.summary["done"] == 2
    assert again.summary["skipped"] == 2
    assert again.status == 0
    rows = read_table(tmp_path / "out")
    assert rows["sad.txt"]["task2.text"] == "positive"
    assert rows["broken.txt"]["error"] is None


@pytest.mark.slow
def test_killed_job_continues_with_what_is_missing(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for index in range(400):
        (folder / f"{index:03}.txt").write_text(f"Letter {index} is good.")
    file = write_job(tmp_path, [folder], tmp_path / "out", part_rows=16, as_json=False)
    with start_job(file) as process:
        assert process.stderr
        next(line for line in process.stderr if line.split(" of ")[0].isdigit())  # the first tenth has ended
        os.killpg(process.pid, signal.SIGKILL)
    written = len(read_table(tmp_path / "out"))
    assert 0 < written < 400
    again = run_job(tmp_path, [folder], tmp_path / "out")
    assert again.summary["skipped"] == written
    assert again.summary["done"] == 400 - written
    assert len(read_table(tmp_path / "out")) == 400


@pytest.mark.slow
def test_interrupted_job_writes_the_rows_that_have_ended(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for index in range(2000):
        (folder / f"{index:04}.txt").write_text(f"Letter {index} is good.")
    with start_job(write_job(tmp_path, [folder], tmp_path / "out", as_json=False)) as process:
        assert process.stderr
        next(line for line in process.stderr if line.split(" of ")[0].isdigit())
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate()
    assert process.returncode == 130
    assert "interrupted" in out
    assert 0 < len(read_table(tmp_path / "out")) < 2000


@pytest.mark.slow
def test_too_many_errors_stop_the_job(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for index in range(200):
        (folder / f"{index:03}.txt").write_bytes(b"\xff\xfe\x00")
    job = run_job(tmp_path, [folder], tmp_path / "out", stop_after_errors="10%")
    assert job.summary["stopped"]
    assert job.summary["done"] < 200
    assert job.status == 1


@pytest.mark.slow
def test_dry_run_writes_nothing_and_forecasts_all(tmp_path: Path) -> None:
    letters = write_letters(tmp_path / "in")
    job = run_job(tmp_path, [letters], tmp_path / "out", dry_run=True)
    assert job.summary["forecast"]["rows"] == 4
    assert job.summary["forecast"]["seconds"] >= 0
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
def test_output_may_be_one_file(tmp_path: Path, suffix: str) -> None:
    letters = write_letters(tmp_path / "in")
    job = run_job(tmp_path, [letters], tmp_path / f"out.{suffix}", limit=2)
    text = (tmp_path / f"out.{suffix}").read_text()
    assert len(text.splitlines()) == (2 if suffix == "jsonl" else 3)
    assert job.summary["inputs"] == 2


def test_invalid_pipeline_ends_with_a_remedy(tmp_path: Path) -> None:
    plan = [{"id": 1, "task": "depth-estimation", "args": {"image": {"input": "photo"}}}]
    job = run_job(tmp_path, [tmp_path], tmp_path / "out", pipeline={**CLASSIFY, "plan": plan})
    assert job.status == 2
    assert "lite has no task depth-estimation" in job.errors
    assert "--experts" in job.errors


@pytest.fixture(scope="module")
def failing_expert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An expert whose model cannot be loaded."""
    folder = tmp_path_factory.mktemp("experts") / "failing"
    folder.mkdir()
    (folder / "tasks.py").write_text(
        "from services.common.errors import FailedPrecondition\n\n\n"
        "def load(model_id, device):\n"
        "    raise FailedPrecondition('the weights are absent', remedy='prefetch them')\n\n\n"
        "TASKS = {'text-classification': load}\n"
    )
    card = {"id": "absent", "revision": "1", "task": "text-classification", "description": "None.", "license": "MIT"}
    (folder / "models.json").write_text(json.dumps([card]))
    return folder


@pytest.mark.slow
def test_model_that_cannot_be_loaded_ends_the_job(tmp_path: Path, failing_expert: Path) -> None:
    letters = write_letters(tmp_path / "in")
    plan = [{"id": 1, "task": "text-classification", "args": {"text": {"input": "letter"}}}]
    job = run_job(
        tmp_path, [letters], tmp_path / "out", pipeline={**CLASSIFY, "plan": plan}, experts=[str(failing_expert)]
    )
    assert job.status == 1
    assert "cannot load model absent: the weights are absent" in job.errors
    assert "prefetch them" in job.errors
    assert "Traceback" not in job.errors


@pytest.mark.slow
def test_inputs_and_results_may_be_in_a_bucket(tmp_path: Path, bucket: Bucket) -> None:
    for name, text in LETTERS.items():
        bucket.overwrite(f"in/{name}", text.encode())
    plan = [{"id": 1, "task": "text-to-speech", "args": {"text": {"input": "letter"}}}]
    target = f"{bucket.url}/out/"
    fields = {"pipeline": {**CLASSIFY, "plan": plan}}
    job = run_job(tmp_path, [f"{bucket.url}/in/*.txt"], target, **fields)
    assert job.status == 0, job.errors
    keys = bucket.keys()
    assert len([key for key in keys if key.startswith("out/files/") and key.endswith(".wav")]) == len(LETTERS)
    bucket.overwrite("in/sad.txt", b"It is over.")
    again = run_job(tmp_path, [f"{bucket.url}/in/*.txt"], target, **fields)
    assert again.summary["done"] == 1
    assert again.summary["skipped"] == len(LETTERS) - 1


@pytest.mark.slow
def test_media_may_be_columns(tmp_path: Path) -> None:
    plan = [{"id": 1, "task": "text-to-speech", "args": {"text": {"input": "letter"}}}]
    fields: dict[str, Any] = {"pipeline": {**CLASSIFY, "plan": plan}, "media": "columns"}
    job = run_job(tmp_path, [write_letters(tmp_path / "in") / "glad.txt"], tmp_path / "out", **fields)
    assert job.status == 0, job.errors
    sound = read_table(tmp_path / "out")["glad.txt"]["audio"]
    assert sound["media_type"] == "audio/wav"
    assert sound["content"].startswith(b"RIFF")
    assert not (tmp_path / "out" / "files").exists()


@pytest.mark.slow
def test_rows_of_a_table_are_inputs(tmp_path: Path) -> None:
    table = tmp_path / "letters.csv"
    table.write_text("letter\nI love it.\nI hate it.\n")
    job = run_job(tmp_path, [table], tmp_path / "out")
    assert job.status == 0, job.errors
    rows = read_table(tmp_path / "out")
    assert [rows[f"letters.csv#{number}"]["task2.text"] for number in (1, 2)] == ["positive", "negative"]


CRASHING = """
import os

from experts.host.handler import single


def load(model_id, device):
    def size(inputs, parameters):
        if inputs["image"].content.endswith(b"crash"):
            os.abort()
        return {"text": str(len(inputs["image"].content))}

    return single(size)


TASKS = {"image-to-text": load}
"""


DYING = """
import os

from experts.host.handler import single


def load(model_id, device):
    return single(lambda inputs, parameters: os._exit(3))


TASKS = {"text-classification": load}
"""


@pytest.mark.slow
def test_worker_process_that_dies_ends_the_job(tmp_path: Path) -> None:
    expert = tmp_path / "dying"
    expert.mkdir()
    (expert / "tasks.py").write_text(DYING)
    card = {"id": "dies", "revision": "1", "task": "text-classification", "description": "None.", "license": "MIT"}
    (expert / "models.json").write_text(json.dumps([card]))
    plan = [{"id": 1, "task": "text-classification", "args": {"text": {"input": "letter"}}}]
    letters = write_letters(tmp_path / "in")
    fields: dict[str, Any] = {"pipeline": {**CLASSIFY, "plan": plan}, "experts": [str(expert)]}
    job = run_job(tmp_path, [letters], tmp_path / "out", **fields)
    assert job.status == 1
    assert "a worker process ended" in job.errors
    assert "the same command continues" in job.errors


@pytest.mark.slow
def test_file_that_crashes_the_model_costs_only_its_row(tmp_path: Path) -> None:
    expert, pictures = tmp_path / "sizes", tmp_path / "in"
    expert.mkdir()
    pictures.mkdir()
    (expert / "tasks.py").write_text(CRASHING)
    card = {"id": "size", "revision": "1", "task": "image-to-text", "description": "Its size.", "license": "MIT"}
    (expert / "models.json").write_text(json.dumps([card]))
    for index in range(40):
        (pictures / f"{index:02}.png").write_bytes(b"\x89PNG\r\n\x1a\n" + (b"crash" if index == 7 else b"fine"))
    plan = [{"id": 1, "task": "image-to-text", "args": {"image": {"input": "image"}}}]
    fields: dict[str, Any] = {"pipeline": {**CLASSIFY, "plan": plan}, "experts": [str(expert)]}
    job = run_job(tmp_path, [pictures], tmp_path / "out", **fields)
    assert job.summary["done"] == 40, job.errors
    rows = read_table(tmp_path / "out")
    assert [name for name, row in rows.items() if row["error"]] == ["07.png"]
    assert rows["07.png"]["error"]["code"] == "DECODE_CRASH"
    assert "07.png" in rows["07.png"]["error"]["message"]
    assert rows["08.png"]["text"] == "12"

"""hugginggpt batch and related commands with a real gateway and orchestrator and a scripted expert."""

import asyncio
import csv
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gateway.cli import app
from protos.hugginggpt.tasks import standard_tasks
from protos.hugginggpt.v1.task_pb2 import CatalogTask
from services.orchestrator.settings import Settings
from tests.support.batches import given as named
from tests.support.orchestrator import END, ScriptedPeers, task
from tests.support.shell import AUDIO_BYTES, ReadAloud, picture, start_read_aloud

pytestmark = pytest.mark.slow


@pytest.fixture
async def read_aloud(peers: ScriptedPeers, settings: Settings, tmp_path: Path) -> AsyncIterator[ReadAloud]:
    async with start_read_aloud(peers, settings, tmp_path) as read_aloud:
        yield read_aloud


def lines(folder: Path) -> list[Any]:
    return [json.loads(line) for line in (folder / "results.jsonl").read_text("utf-8").splitlines()]


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "results.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


async def test_each_invalid_file_fails_only_its_item(read_aloud: ReadAloud) -> None:
    read_aloud.pictures(a="one", b="broken", c="two", g="one")
    folder, out = read_aloud.folder / "in", read_aloud.folder / "out"
    (folder / "d.png").write_bytes(b"")
    (folder / "e.png").symlink_to("nowhere")
    (folder / "f.txt").write_text("no picture")
    output = await read_aloud.shell.type("batch", "aloud", "--folder", "in", "--out", "out")
    assert output.status == 1, output
    assert "7 items: 3 completed, 4 failed" in output.out, output
    assert "1 × b.png is damaged  (b.png)" in output.out
    found = lines(out)
    assert [(line["index"], line["name"], line["state"]) for line in found] == [
        (1, "a.png", "completed"),
        (2, "b.png", "failed"),
        (3, "c.png", "completed"),
        (4, "d.png", "failed"),
        (5, "e.png", "failed"),
        (6, "f.txt", "failed"),
        (7, "g.png", "completed"),
    ]
    assert [line["error"]["message"] for line in found if line["error"]] == [
        "b.png is damaged",
        "d.png is empty",
        "cannot read in/e.png: No such file or directory",
        "input picture is a text, but the plan takes an image",
    ]
    assert [line["outputs"]["audio"]["path"] for line in found if not line["error"]] == [
        "files/0001-a.audio.wav",
        "files/0003-c.audio.wav",
        "files/0007-g.audio.wav",
    ]
    assert (out / "files/0003-c.audio.wav").read_bytes() == b"two".ljust(AUDIO_BYTES, b".")
    assert [row["outputs.audio"] for row in rows(out)][:3] == ["files/0001-a.audio.wav", "", "files/0003-c.audio.wav"]
    assert rows(out)[1]["error.message"] == "b.png is damaged"
    summary = json.loads((out / "summary.json").read_text())
    assert summary["counts"]["completed"] == 3
    assert len(summary["errors"]) == 4
    assert {path.name for path in out.iterdir()} == {"results.jsonl", "results.csv", "summary.json", "files"}
    assert all(request.goal.HasField("check") for request in read_aloud.gateway.peers.planned)


async def test_table_columns_are_parameters(read_aloud: ReadAloud) -> None:
    read_aloud.pictures(a="one", b="two")
    (read_aloud.folder / "in/items.csv").write_text("picture,question,name\na.png,Which?,first\nb.png,=1+1,\na.png,,\n")
    output = await read_aloud.shell.type("batch", "asking@1", "--items", "in/items.csv", "--json")
    result = json.loads(output.out)
    assert output.status == 1, output
    assert result["state"] == "incomplete", output
    assert result["saved"][0] == "out/results.jsonl", output
    found = lines(read_aloud.folder / "out")
    assert [(line["name"], line["outputs"].get("text")) for line in found] == [
        ("first", "Which? one"),
        ("b.png", "=1+1 two"),
        ("a.png", None),
    ]
    assert found[2]["error"]["message"] == "input question is missing"
    assert rows(read_aloud.folder / "out")[1]["outputs.text"] == "'=1+1 two"


async def test_json_lines_combine_with_common_settings(read_aloud: ReadAloud) -> None:
    read_aloud.pictures(a="one")
    stored = await read_aloud.gateway.http.post("/v1/files", files={"file": ("kept.png", picture("two"))})
    items = [{"picture": "in/a.png"}, {"picture": stored.json()["id"], "name": "kept"}]
    (read_aloud.folder / "items.jsonl").write_text("\n".join(map(json.dumps, items)))
    output = await read_aloud.shell.type("batch", "asking", "--items", "items.jsonl", "--set", "question=Who?")
    assert output.status == 0, output
    assert output.err.count("of 2") == output.err.count("\n") - 1, output
    assert [line["outputs"]["text"] for line in lines(read_aloud.folder / "out")] == ["Who? one", "Who? two"]


@pytest.mark.parametrize(("pipeline", "lists"), [("asking", False), ("aloud", True)], ids=["text", "audio"])
async def test_items_are_listed_only_for_outputs_that_are_files(
    read_aloud: ReadAloud, capsys: pytest.CaptureFixture[str], pipeline: str, *, lists: bool
) -> None:
    read_aloud.pictures(a="one")
    settings = () if lists else ("--set", "question=Who?")
    output = await read_aloud.shell.type("batch", pipeline, "--folder", "in", *settings)
    assert output.status == 0, output
    requests = capsys.readouterr().out
    assert "route=/v1/pipeline-batches/{batch_id}/results" in requests
    assert ("route=/v1/pipeline-batches/{batch_id}/items" in requests) is lists


async def test_request_is_planned_on_first_readable_item(read_aloud: ReadAloud) -> None:
    read_aloud.pictures(b="one", c="two")
    (read_aloud.folder / "in/a.png").write_bytes(b"")
    read_aloud.gateway.peers.plan(task(1, "image-to-text", image=named("file1")), END)
    read_aloud.gateway.gateway.selector.tasks = [CatalogTask(spec=standard_tasks()["image-to-text"])]
    command = ("batch", "--request", "read it", "--folder", "in", "--policy", "local")
    unconfirmed = await read_aloud.shell.type(*command)
    assert unconfirmed.status == 2
    assert "the plan cannot be confirmed" in unconfirmed.err
    assert not (read_aloud.folder / "out").exists()
    output = await read_aloud.shell.type(*command, "--yes")
    assert output.status == 1, output
    assert "image-to-text  image ← file1" in output.err, output
    assert "file1  image  The picture.\n" in output.err
    assert [line["outputs"].get("text") for line in lines(read_aloud.folder / "out")] == [None, "one", "two"]
    (planned,) = [request for request in read_aloud.gateway.peers.planned if not request.goal.HasField("check")]
    assert planned.inputs[0].value.artifact.name == "b.png"


async def test_printed_plan_runs_on_files_of_a_pattern(read_aloud: ReadAloud) -> None:
    read_aloud.pictures(a="one", b="two")
    plan = [{"id": 1, "task": "image-to-text", "args": {"image": {"input": "it"}}, "model": None, "depends_on": []}]
    (read_aloud.folder / "run.json").write_text(json.dumps({"plan": plan}))
    output = await read_aloud.shell.type("batch", "--plan", "run.json", "--files", "in/*.png", "--out", "deep/out")
    assert output.status == 0, output
    assert [line["outputs"]["text"] for line in lines(read_aloud.folder / "deep/out")] == ["one", "two"]


ERRORS_BEFORE_START = (
    ("batch aloud --folder empty", 2, "empty has no files"),
    ("batch aloud --files none-*.png", 2, "no file matches"),
    ("batch aloud --items gone.csv", 2, "cannot read gone.csv"),
    ("batch aloud --items wrong.csv", 2, "line 2 of wrong.csv has image, which is not a parameter of aloud@1"),
    ("batch asking --items right.csv", 2, "right.csv has no value for question"),
    ("batch asking --folder in", 2, "--set has no value for question"),
    ("batch aloud@9 --folder in", 1, "there is no pipeline aloud version 9"),
    ("batch aloud@new --folder in", 2, "has no valid version"),
    ("batch --plan newer.yaml --folder in", 2, "newer"),
    ("batch aloud --folder in --out in/a.png/out", 2, "cannot write to in/a.png/out"),
    ("batch aloud --folder in --set colour=red", 2, "--set has colour, which is not a parameter of aloud@1"),
    ("batch aloud --plan newer.yaml --folder in", 2, "give exactly one plan to run"),
    ("batch aloud --folder in --files x", 2, "give exactly one set of items"),
    ("batch aloud --folder texts", 2, "no item is valid: input picture is a text"),
    ("resume batch_1", 1, "there is no batch batch_1"),
    ("watch batch_1", 1, "there is no batch batch_1"),
)


async def test_batch_errors_are_reported_before_start(read_aloud: ReadAloud, monkeypatch: pytest.MonkeyPatch) -> None:
    read_aloud.pictures(a="one")
    folder = read_aloud.folder
    (folder / "empty").mkdir()
    (folder / "texts").mkdir()
    (folder / "texts/a.txt").write_text("words")
    (folder / "wrong.csv").write_text("image\nin/a.png\n")
    (folder / "right.csv").write_text("picture\nin/a.png\n")
    (folder / "newer.yaml").write_text("format: hugginggpt/pipeline/9\nname: aloud\n")
    monkeypatch.chdir(folder)
    for arguments, status, output in ERRORS_BEFORE_START:
        result = await asyncio.to_thread(CliRunner().invoke, app, arguments.split(), env=read_aloud.shell.environment())
        assert result.exit_code == status, (arguments, result.stderr)
        assert output in result.stderr, (arguments, result.stderr)
    assert (await read_aloud.gateway.http.get("/v1/pipeline-batches")).json()["data"] == []
    assert not list(folder.glob("out/*"))


async def test_results_of_other_batch_are_not_overwritten(read_aloud: ReadAloud) -> None:
    read_aloud.pictures(a="one")
    assert (await read_aloud.shell.type("batch", "aloud", "--folder", "in")).status == 0
    before = (read_aloud.folder / "out/results.jsonl").read_bytes()
    again = await read_aloud.shell.type("batch", "aloud", "--folder", "in")
    assert again.status == 2
    assert "out has the results of batch batch_" in again.err
    assert (read_aloud.folder / "out/results.jsonl").read_bytes() == before
    (read_aloud.folder / "other").mkdir()
    (read_aloud.folder / "other/results.csv").write_text("mine")
    other = await read_aloud.shell.type("batch", "aloud", "--folder", "in", "--out", "other")
    assert other.status == 2
    assert "other has the results of an unknown source" in other.err


async def test_batch_is_listed_watched_fetched_and_deleted(read_aloud: ReadAloud) -> None:
    read_aloud.pictures(a="one", b="broken")
    made = json.loads((await read_aloud.shell.type("batch", "aloud", "--folder", "in", "--json")).out)
    batch_id = made["batch_id"]
    listed = await read_aloud.shell.type("batches", "--state", "incomplete")
    assert listed.status == 0
    assert listed.out.split()[0] == batch_id
    assert "aloud@1" in listed.out
    watched = await read_aloud.shell.type("watch", batch_id)
    assert watched.status == 1
    assert "2 items: 1 completed, 1 failed" in watched.out
    fetched = await read_aloud.shell.type("get", batch_id, "--out", "fetched")
    assert fetched.status == 1
    for name in ("results.jsonl", "results.csv", "files/0001-a.audio.wav"):
        assert (read_aloud.folder / "fetched" / name).read_bytes() == (read_aloud.folder / "out" / name).read_bytes()
    deleted = await read_aloud.shell.type("delete", batch_id, "--json")
    assert json.loads(deleted.out) == {"batch_id": batch_id, "deleted": True}
    assert (await read_aloud.shell.type("batches")).out == ""

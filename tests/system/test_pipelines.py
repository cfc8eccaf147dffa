"""Pipelines in a local stack: a saved plan runs on other files, and can be exported and imported."""

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.client import HuggingGPT, Item
from tests.system.conftest import ROOT, LocalStack

pytestmark = pytest.mark.slow

SIGN, INVOICE = ROOT / "tests" / "data" / "sign.png", ROOT / "tests" / "data" / "invoice.png"


def told(local_stack: LocalStack, *arguments: str) -> Any:
    said = local_stack.run_cli(*arguments, "--json", seconds=90)
    assert said.status == 0, said.err
    return json.loads(said.out)


def test_request_can_be_saved_as_a_pipeline(local_stack: LocalStack, tmp_path: Path) -> None:
    out = ("--out", str(tmp_path / "out"))
    asked = told(
        local_stack, "ask", "Read the text in this image aloud", "--file", str(SIGN), "--save", "voiced-sign", *out
    )
    assert asked["pipeline"]["name"] == "voiced-sign"
    ran = told(local_stack, "run", "voiced-sign", "--file", str(INVOICE), *out)
    assert [task["task"] for task in ran["plan"]] == [task["task"] for task in asked["plan"]]
    assert "INV-2024-0117" in ran["results"][0]["outputs"]["text"]
    assert Path(ran["artifacts"][0]["path"]).read_bytes().startswith(b"RIFF")
    (tmp_path / "kept.yaml").write_text(local_stack.run_cli("export", "voiced-sign").out)
    (tmp_path / "run.json").write_text(json.dumps(asked))
    assert local_stack.run_cli("delete", "voiced-sign").status == 0
    assert local_stack.run_cli("run", "voiced-sign", "--file", str(SIGN), *out).status == 1
    assert told(local_stack, "import", str(tmp_path / "kept.yaml"))["inputs"][0]["modality"] == "image"
    assert told(local_stack, "import", str(tmp_path / "run.json"), "--name", "voiced-sign")["version"] == 3
    again = told(local_stack, "run", "voiced-sign@2", "--set", f"file1={SIGN}", *out)
    assert [each["outputs"] for each in again["results"]] == [each["outputs"] for each in asked["results"]]


def test_unavailable_model_error_names_alternatives(local_stack: LocalStack, tmp_path: Path) -> None:
    plan = {"id": 1, "task": "image-to-text", "args": {"image": {"input": "photo"}}}
    for gone, words in (
        ({"model": "gone", "revision": "1a"}, ("image-to-text by gone@1a", "rapidocr")),
        (
            {"task": "video-to-text", "args": {"video": {"input": "film"}}},
            ("no expert offers the task video-to-text", "image-to-text"),
        ),
        ({"task": "dancing"}, ("no expert offers the task dancing", "image-to-text")),
    ):
        file = tmp_path / "plan.json"
        file.write_text(json.dumps([plan | gone]))
        said = local_stack.run_cli("import", str(file), "--name", "gone")
        assert said.status in (1, 2), said.err
        assert [word for word in words if word not in said.err] == [], said.err
        assert "takes a picture" not in said.err


def test_client_runs_a_stored_pipeline_on_many_files(local_stack: LocalStack, tmp_path: Path) -> None:
    (tmp_path / "broken.png").write_bytes(SIGN.read_bytes()[:200])
    with HuggingGPT(local_stack.url) as client:
        run = client.ask("Read the text in this image", [SIGN])
        kept = client.save_pipeline("read", run, pin_models=True)
        (port,) = kept.inputs
        files = [SIGN, tmp_path / "broken.png", tmp_path / "gone.png", INVOICE]
        begun = client.start_batch([Item({port.name: file}, file.name) for file in files], pipeline=kept)
        batch = client.wait_batch(begun.batch_id)
        sign, broken, gone, invoice = client.batch_results(batch.batch_id)
        assert batch.state == "incomplete"
        assert batch.counts.completed == 2
        assert batch.counts.failed == 2
        assert "happy" in sign.outputs["text"]
        assert "INV-2024-0117" in invoice.outputs["text"]
        assert broken.error
        assert gone.error
        assert "gone.png" in gone.error.message
        client.delete_batch(batch.batch_id)
        client.delete_pipeline("read")

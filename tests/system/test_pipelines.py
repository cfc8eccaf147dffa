"""Pipelines in a local stack: a saved plan runs on other files, and can be exported and imported."""

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.client import HuggingGPT, Item
from tests.system.conftest import ROOT, LocalStack

pytestmark = pytest.mark.slow

SIGN, INVOICE = ROOT / "tests" / "data" / "sign.png", ROOT / "tests" / "data" / "invoice.png"


def run_json_command(local_stack: LocalStack, *arguments: str) -> Any:
    result = local_stack.run_cli(*arguments, "--json", seconds=90)
    assert result.status == 0, result.err
    return json.loads(result.out)


def test_request_can_be_saved_as_a_pipeline(local_stack: LocalStack, tmp_path: Path) -> None:
    out = ("--out", str(tmp_path / "out"))
    result = run_json_command(
        local_stack, "ask", "Read the text in this image aloud", "--file", str(SIGN), "--save", "voiced-sign", *out
    )
    assert result["pipeline"]["name"] == "voiced-sign"
    ran = run_json_command(local_stack, "run", "voiced-sign", "--file", str(INVOICE), *out)
    assert [task["task"] for task in ran["plan"]] == [task["task"] for task in result["plan"]]
    assert "INV-2024-0117" in ran["results"][0]["outputs"]["text"]
    assert Path(ran["artifacts"][0]["path"]).read_bytes().startswith(b"RIFF")
    (tmp_path / "exported.yaml").write_text(local_stack.run_cli("export", "voiced-sign").out)
    (tmp_path / "run.json").write_text(json.dumps(result))
    assert local_stack.run_cli("delete", "voiced-sign").status == 0
    assert local_stack.run_cli("run", "voiced-sign", "--file", str(SIGN), *out).status == 1
    assert run_json_command(local_stack, "import", str(tmp_path / "exported.yaml"))["inputs"][0]["modality"] == "image"
    assert run_json_command(local_stack, "import", str(tmp_path / "run.json"), "--name", "voiced-sign")["version"] == 3
    again = run_json_command(local_stack, "run", "voiced-sign@2", "--set", f"file1={SIGN}", *out)
    assert [each["outputs"] for each in again["results"]] == [each["outputs"] for each in result["results"]]


def test_unavailable_model_error_names_alternatives(local_stack: LocalStack, tmp_path: Path) -> None:
    plan = {"id": 1, "task": "image-to-text", "args": {"image": {"input": "photo"}}}
    for missing, parts in (
        ({"model": "gone", "revision": "1a"}, ("image-to-text by gone@1a", "rapidocr")),
        (
            {"task": "video-to-text", "args": {"video": {"input": "film"}}},
            ("no expert offers the task video-to-text", "image-to-text"),
        ),
        ({"task": "dancing"}, ("no expert offers the task dancing", "automatic-speech-recognition")),
    ):
        file = tmp_path / "plan.json"
        file.write_text(json.dumps([plan | missing]))
        result = local_stack.run_cli("import", str(file), "--name", "gone")
        assert result.status in (1, 2), result.err
        assert [part for part in parts if part not in result.err] == [], result.err
        assert "takes a picture" not in result.err


def test_client_runs_a_stored_pipeline_on_many_files(local_stack: LocalStack, tmp_path: Path) -> None:
    (tmp_path / "broken.png").write_bytes(SIGN.read_bytes()[:200])
    with HuggingGPT(local_stack.url) as client:
        run = client.ask("Read the text in this image", [SIGN])
        pipeline = client.save_pipeline("read", run, pin_models=True)
        (port,) = pipeline.inputs
        files = [SIGN, tmp_path / "broken.png", tmp_path / "gone.png", INVOICE]
        started = client.start_batch([Item({port.name: file}, file.name) for file in files], pipeline=pipeline)
        batch = client.wait_batch(started.batch_id)
        sign, broken, missing, invoice = client.batch_results(batch.batch_id)
        assert batch.state == "incomplete"
        assert batch.counts.completed == 2
        assert batch.counts.failed == 2
        assert "happy" in sign.outputs["text"]
        assert "INV-2024-0117" in invoice.outputs["text"]
        assert broken.error
        assert missing.error
        assert "gone.png" in missing.error.message
        client.delete_batch(batch.batch_id)
        client.delete_pipeline("read")

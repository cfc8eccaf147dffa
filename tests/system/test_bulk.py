"""Bulk jobs by the command line: equality with a batch of the same files, and an expert of one's own."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from tests.data.signs import png, sign
from tests.support.bulk import read_table
from tests.system.conftest import ROOT, LocalStack, run_cli
from tests.system.test_custom_expert import APPLE, NAME, TASK, folder

pytestmark = pytest.mark.slow

__all__ = ["folder"]

PIPELINE = """\
format: hugginggpt/pipeline/1
name: compared
plan:
  - {id: 1, task: image-to-text, args: {image: {input: image}}}
  - {id: 2, task: text-to-speech, args: {text: {task_id: 1, output: text}}}
  - {id: 3, task: text-classification, args: {text: {task_id: 1, output: text}}, model: vaderSentiment}
"""


@pytest.fixture
def signs(tmp_path: Path) -> Path:
    """Two pictures, a broken one, and one whose content is not what its name says."""
    signs = tmp_path / "signs"
    signs.mkdir()
    (signs / "glad.png").write_bytes(png(sign([("We are so happy", 56), ("to see you!", 56)])))
    (signs / "sad.png").write_bytes(png(sign([("Train cancelled", 56), ("We regret the trouble", 56)])))
    (signs / "broken.png").write_bytes((signs / "sad.png").read_bytes()[:3000])
    (signs / "wrong.png").write_text("no picture")
    return signs


def run_batch(local_stack: LocalStack, signs: Path, out: Path) -> dict[str, Any]:
    """Runs the stored pipeline as a batch and returns the results by name."""
    done = local_stack.run_cli("batch", "compared", "--folder", str(signs), "--out", str(out), seconds=180)
    assert done.status == 1, done.err
    lines = (out / "results.jsonl").read_text("utf-8").splitlines()
    return {result["name"]: result for result in map(json.loads, lines)}


@pytest.mark.timeout(600)  # a batch and a job, on a machine that may be busy
def test_results_equal_those_of_a_batch(local_stack: LocalStack, signs: Path, tmp_path: Path) -> None:
    (tmp_path / "compared.yaml").write_text(PIPELINE)
    assert local_stack.run_cli("import", str(tmp_path / "compared.yaml")).status == 0
    service = run_batch(local_stack, signs, tmp_path / "batch")
    done = local_stack.run_cli("bulk", "compared", "--from", str(signs), "--to", f"{tmp_path}/bulk/", seconds=180)
    assert done.status == 1, done.err
    bulk = read_table(tmp_path / "bulk")
    assert bulk.keys() == service.keys()
    for name in ("glad.png", "sad.png"):
        outputs = service[name]["outputs"]
        assert bulk[name]["task3.text"] == outputs["task3.text"]
        assert json.loads(bulk[name]["task3.labels"]) == outputs["task3.labels"]
        media = (tmp_path / "bulk" / bulk[name]["task2.audio"]).read_bytes()
        assert hashlib.sha256(media).hexdigest() == outputs["task2.audio"]["artifact"]["sha256"]
    for name in ("broken.png", "wrong.png"):
        assert bulk[name]["error"]["message"] == service[name]["error"]["message"]
        assert bulk[name]["error"]["code"] == service[name]["error"]["reason"]


def test_expert_of_the_tutorial_works_unchanged(folder: Path, tmp_path: Path) -> None:
    plan = f"[{{id: 1, task: {TASK}, args: {{image: {{input: photo}}}}}}]"
    (tmp_path / "colours.yaml").write_text(f"format: hugginggpt/pipeline/1\nname: {NAME}\nplan: {plan}\n")
    target = tmp_path / "named.jsonl"
    command = ("bulk", str(tmp_path / "colours.yaml"), "--from", str(APPLE), "--to", str(target))
    done = run_cli(tmp_path, *command, "--experts", str(folder), seconds=120)
    assert done.status == 0, done.err
    (row,) = map(json.loads, target.read_text().splitlines())
    assert row["text"] == "blue and red"
    assert row["task1.model"] == "nearest-colour@1"
    assert row["input"] == str(ROOT / "tests" / "data" / "apple.png")

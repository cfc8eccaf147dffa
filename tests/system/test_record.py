"""Records of runs: content, durations, and verification by replay."""

import json
from pathlib import Path

import pytest

from tests.support.changing_expert.tasks import TAMPERED
from tests.system.conftest import ROOT, LocalStack, eventually, run_expert

pytestmark = pytest.mark.slow

SIGN = ROOT / "tests" / "data" / "sign.png"
DEMO = "Read the text in this image aloud and tell me whether it sounds happy"


def test_record_of_a_run_is_verified_by_replay(local_stack: LocalStack) -> None:
    result = local_stack.ask(DEMO, SIGN)
    output = local_stack.run_cli("record", result["run_id"], "--json")
    record = json.loads(output.out)
    assert output.status == 0
    assert record["state"] == "completed"
    assert record["policy"] == "open"
    assert record["planning"][0]["version"].startswith("weights:")
    assert record["inputs"][0]["media_type"] == "image/png"
    assert {task["task"] for task in record["tasks"]} == {task["task"] for task in result["plan"]}
    for task in record["tasks"]:
        assert task["model"]["revision"]
        assert task["model"]["expert_version"]
        assert task["outputs"]
    read = next(result for result in result["results"] if result["task"] == "image-to-text")["outputs"]["text"]
    for text in ("aloud", "sign.png", read):
        assert text not in output.out
    shown = local_stack.run_cli("record", result["run_id"])
    assert all(task["model"]["model_id"] in shown.out for task in record["tasks"])

    output = local_stack.run_cli("verify", result["run_id"], "--json")
    found = json.loads(output.out)
    assert output.status == 0, output.out
    assert found["verified"] is True, output.out
    assert {task["outcome"] for task in found["tasks"]} == {"same"}
    again = json.loads(local_stack.run_cli("record", found["again_run_id"], "--json").out)
    assert not any(task["reused"] for task in again["tasks"])


def test_record_shows_durations(local_stack: LocalStack) -> None:
    result = local_stack.ask(DEMO, SIGN, fresh=True)
    found = json.loads(local_stack.run_cli("trace", result["run_id"], "--json").out)
    spans = found["spans"]
    assert [span["kind"] for span in spans if not span["task_id"]] == ["plan", "answer"]
    assert {span["task_id"] for span in spans} == {0, *(task["id"] for task in result["plan"])}
    for span in spans:
        assert 0 <= span["begin"] <= span["end"] <= found["seconds"]
        if span["kind"] == "attempt":
            assert 0 < span["work_seconds"] <= span["seconds"]
    assert 0 < found["work_seconds"] < found["usage"]["elapsed"] * len(result["plan"])
    shown = local_stack.run_cli("trace", result["run_id"])
    assert shown.status == 0
    assert shown.err == ""
    assert all(task["task"] in shown.out for task in result["plan"])


def test_replay_names_an_expert_with_different_outputs(local_stack: LocalStack, tmp_path: Path) -> None:
    def is_offered() -> bool:
        return "letter-counting" in local_stack.run_cli("tasks").out

    plan, tampered = tmp_path / "plan.json", local_stack.home / TAMPERED
    plan.write_text(json.dumps([{"id": 1, "task": "letter-counting", "arguments": {"text": "secret"}}]))
    with run_expert(local_stack.home, "tests.support.changing_expert") as address:
        local_stack.run_cli("experts", "add", address)
        eventually(is_offered)
        run_id = json.loads(local_stack.run_cli("ask", "--plan", str(plan), "--json").out)["run_id"]
        output = local_stack.run_cli("verify", run_id)
        assert output.status == 0, output.out + output.err
        assert "the same" in output.out, output.out + output.err
        tampered.touch()
        output = local_stack.run_cli("verify", run_id)
        assert output.status == 1
        assert "letter-counting: different  tally@1 on changing_expert" in output.out
        assert "NOT the same" in output.out
    local_stack.run_cli("experts", "forget", "changing_expert")
    eventually(lambda: not is_offered())
    output = local_stack.run_cli("verify", run_id)
    assert output.status == 1
    assert "model tally is no longer available" in output.out

"""hugginggpt ask against a scripted gateway."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from gateway.cli import app
from tests.support.scripted_gateway import ScriptedGateway

DOWN = "the LLM small cannot be reached"
BY_LLM = {"controller": "llm", "llm_model": "small"}
BY_RANK = {"controller": "rank", "reason": "the only one"}
COMPOSED = {"controller": "composed", "llm_model": "small", "fell_back_because": DOWN}
USAGE = {"input_tokens": 20, "output_tokens": 10, "cost": 0.0}
FAILURE = {"reason": "MODEL_FAILED", "message": "the model broke", "remedy": "send another picture"}


def candidate(model: str) -> dict[str, Any]:
    return {"model_id": model, "revision": "v3", "expert": "lite"}


def planned(number: int, task: str, arguments: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"task_id": number, "task_planned": {"task": {"id": number, "task": task, "arguments": arguments, **more}}}


def started(number: int, model: str, attempt: int = 1) -> dict[str, Any]:
    return {"task_id": number, "attempt": attempt, "task_started": {"by": candidate(model)}}


def ended(number: int, state: str, **result: Any) -> dict[str, Any]:
    return {"task_id": number, "task_ended": {"state": state, "result": result}}


@pytest.fixture
def scripted_gateway() -> Iterator[ScriptedGateway]:
    scripted_gateway = ScriptedGateway()
    speech = scripted_gateway.add_artifact(b"RIFF", "../speech.wav", "audio/wav")
    scripted_gateway.events = [
        {"run_accepted": {"spec": {"request": "read it"}}},
        planned(1, "image-to-text", {"image": {"input": "file1"}}, parameters={"language": "en"}),
        planned(2, "text-to-speech", {"text": {"task_id": 1, "output": "text"}}),
        {"plan_note": {"kind": "unmapped", "text": "nothing bakes cakes"}},
        {"plan_completed": {"tasks": 2, "decision": BY_LLM}},
        {
            "task_id": 1,
            "task_selected": {"candidates": [candidate("rapidocr"), candidate("other")], "decision": BY_RANK},
        },
        started(1, "rapidocr"),
        {"task_id": 1, "task_progress": {"fraction": 0.5, "message": "page 1"}},
        {"taken_over": {"owner": "two"}},
        {"task_id": 1, "attempt_failed": {"failure": FAILURE, "next": "retry"}},
        started(1, "rapidocr", attempt=2),
        ended(1, "succeeded", outputs={"text": "OPEN"}, by=candidate("rapidocr")),
        started(2, "espeak-ng"),
        ended(2, "succeeded", outputs={"audio": speech}, by=candidate("espeak-ng")),
        {"answer_chunk": {"text": "It says "}},
        {"answer_chunk": {"text": "**OPEN**.", "decision": COMPOSED}},
        {"run_ended": {"state": "completed", "usage": USAGE}},
    ]
    with scripted_gateway.running():
        yield scripted_gateway


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HUGGINGGPT_URL", raising=False)
    monkeypatch.setenv("HUGGINGGPT_HOME", str(tmp_path / "home"))
    (tmp_path / "sign.png").write_bytes(b"a picture")
    return tmp_path


def run_ask(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["ask", *arguments], env={"COLUMNS": "200", "NO_COLOR": "1"})


def run_with_output(out: Any, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Runs the command as a separate process whose standard output is `out`."""
    known = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), **environment}
    command = [sys.executable, "-m", "gateway.cli", "ask", *arguments]
    return subprocess.run(command, env=known, stdout=out, stderr=subprocess.PIPE, text=True, check=False, timeout=60)


def test_json_output_has_plan_results_answer_and_files(scripted_gateway: ScriptedGateway, folder: Path) -> None:
    result = run_ask("read it", "--file", "sign.png", "--url", scripted_gateway.url, "--json")
    assert result.exit_code == 0
    assert result.stderr == ""
    document = json.loads(result.stdout)
    assert document == {
        "run_id": "run-1",
        "status": "completed",
        "plan": [
            {
                "id": 1,
                "task": "image-to-text",
                "args": {"image": {"input": "file1"}},
                "parameters": {"language": "en"},
                "model": "rapidocr",
                "revision": "v3",
                "depends_on": [],
            },
            {
                "id": 2,
                "task": "text-to-speech",
                "args": {"text": {"task_id": 1, "output": "text"}},
                "parameters": {},
                "model": "espeak-ng",
                "revision": "v3",
                "depends_on": [1],
            },
        ],
        "results": [
            {
                "task_id": 1,
                "task": "image-to-text",
                "model": "rapidocr",
                "expert": "lite",
                "outputs": {"text": "OPEN"},
                "error": None,
                "seconds": 5.0,
                "decision": BY_RANK,
            },
            {
                "task_id": 2,
                "task": "text-to-speech",
                "model": "espeak-ng",
                "expert": "lite",
                "outputs": document["results"][1]["outputs"],
                "error": None,
                "seconds": 1.0,
                "decision": {},
            },
        ],
        "answer": "It says **OPEN**.",
        "artifacts": [{"name": "../speech.wav", "media_type": "audio/wav", "path": "out/speech.wav"}],
        "decisions": {"plan": BY_LLM, "answer": COMPOSED},
        "usage": USAGE,
    }
    assert (folder / "out" / "speech.wav").read_bytes() == b"RIFF"


def test_ask_sends_request_and_files(scripted_gateway: ScriptedGateway, folder: Path) -> None:
    also = ("--policy", "local", "--mode", "hybrid", "--timeout", "9", "--fresh")
    run_ask("read it", "-f", "sign.png", "--url", scripted_gateway.url, *also)
    assert scripted_gateway.spec() == {
        "request": "read it",
        "policy": "local",
        "inference_mode": "hybrid",
        "budget": {"wall_time": 9.0},
        "bypass_memo": True,
    }
    (body,) = [body for _, path, body in scripted_gateway.requests if path == "/v1/runs"]
    assert b'name="file"; filename="sign.png"' in body
    assert b"a picture" in body


def test_without_terminal_steps_go_to_stderr_and_answer_to_stdout(
    scripted_gateway: ScriptedGateway, folder: Path
) -> None:
    result = run_ask("read it", "--file", "sign.png", "--url", scripted_gateway.url)
    assert result.exit_code == 0
    assert result.stdout == "It says **OPEN**.\n"
    assert result.stderr.splitlines() == [
        "planning",
        "1 image-to-text: planned",
        "2 text-to-speech: planned",
        "note: nothing bakes cakes",
        "planned by the LLM small",
        "1 image-to-text: running on rapidocr",
        "note: another orchestrator continues the run",
        "1 image-to-text: the model broke; retrying",
        "1 image-to-text: running on rapidocr attempt 2",
        "1 image-to-text: succeeded 5.00 s",
        "2 text-to-speech: running on espeak-ng",
        "2 text-to-speech: succeeded 1.00 s",
        "answer composed from the results: the LLM small cannot be reached",
        "saved out/speech.wav  audio/wav",
    ]


@pytest.mark.parametrize(("state", "status"), [("completed", 0), ("incomplete", 1), ("failed", 1), ("cancelled", 1)])
def test_only_completed_run_exits_with_zero(
    scripted_gateway: ScriptedGateway, folder: Path, state: str, status: int
) -> None:
    failure = {} if state == "completed" else {"failure": FAILURE}
    scripted_gateway.events[-1] = {"run_ended": {"state": state, **failure}}
    result = run_ask("read it", "--url", scripted_gateway.url, "--json")
    assert result.exit_code == status
    assert json.loads(result.stdout)["status"] == state
    assert ("send another picture" in result.stderr) is bool(failure)


def test_printed_plan_can_be_sent_again(scripted_gateway: ScriptedGateway, folder: Path) -> None:
    first = run_ask("read it", "--file", "sign.png", "--url", scripted_gateway.url, "--json")
    (folder / "run.json").write_text(first.stdout)
    assert run_ask("--plan", "run.json", "--file", "sign.png", "--url", scripted_gateway.url).exit_code == 0
    assert scripted_gateway.spec() == {"request": "", "plan": json.loads(first.stdout)["plan"]}


def test_broken_stream_resumes_after_last_event(scripted_gateway: ScriptedGateway, folder: Path) -> None:
    scripted_gateway.break_after = 6
    result = run_ask("read it", "--url", scripted_gateway.url, "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["answer"] == "It says **OPEN**."
    assert [path for _, path, _ in scripted_gateway.requests if path.startswith("/v1/runs")] == [
        "/v1/runs",
        "/v1/runs/run-1/events",
    ]


def test_permanent_stream_error_is_reported(scripted_gateway: ScriptedGateway, folder: Path) -> None:
    scripted_gateway.break_after, scripted_gateway.final_bytes = (
        6,
        b'event: problem\ndata: {"detail": "all is lost", "status": 500}\n\n',
    )
    result = run_ask("read it", "--url", scripted_gateway.url)
    assert result.exit_code == 1
    assert "error: all is lost" in result.stderr


def test_stopping_gateway_is_retried(scripted_gateway: ScriptedGateway, folder: Path) -> None:
    scripted_gateway.break_after, scripted_gateway.final_bytes = 6, b": going away\n\n"
    result = run_ask("read it", "--url", scripted_gateway.url, "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["answer"] == "It says **OPEN**."


def test_saved_file_never_overwrites_existing_file(scripted_gateway: ScriptedGateway, folder: Path) -> None:
    (folder / "out").mkdir()
    (folder / "out" / "speech.wav").write_bytes(b"mine")
    paths = [
        json.loads(run_ask("read it", "--url", scripted_gateway.url, "--json").stdout)["artifacts"][0]["path"]
        for _ in range(2)
    ]
    assert paths == ["out/speech-2.wav"] * 2
    assert (folder / "out" / "speech.wav").read_bytes() == b"mine"
    assert (folder / "out" / "speech-2.wav").read_bytes() == b"RIFF"


def test_corrupted_artifact_is_not_saved(scripted_gateway: ScriptedGateway, folder: Path) -> None:
    scripted_gateway.artifacts = dict.fromkeys(scripted_gateway.artifacts, b"RIFX")
    result = run_ask("read it", "--url", scripted_gateway.url)
    assert result.exit_code == 1
    assert "was corrupted in transfer" in result.stderr
    assert "It says **OPEN**." in result.stdout
    assert list((folder / "out").iterdir()) == []
    document = json.loads(run_ask("read it", "--url", scripted_gateway.url, "--json").stdout)
    assert document["answer"] == "It says **OPEN**."
    assert document["artifacts"] == []


def test_unencodable_characters_are_replaced_in_output(scripted_gateway: ScriptedGateway, folder: Path) -> None:
    scripted_gateway.events[-2] = {"answer_chunk": {"text": "größer 😀"}}
    command = ("read it", "--url", scripted_gateway.url)
    completed = run_with_output(subprocess.PIPE, *command, PYTHONIOENCODING="ascii")
    assert completed.returncode == 0
    assert completed.stdout == "It says gr??er ?\n"
    completed = run_with_output(subprocess.PIPE, *command, "--json", PYTHONIOENCODING="ascii")
    assert json.loads(completed.stdout)["answer"] == "It says größer 😀"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a file that is always full")
def test_full_disk_is_reported_without_traceback(scripted_gateway: ScriptedGateway, folder: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        result = run_with_output(full, "read it", "--url", scripted_gateway.url)
    assert result.returncode != 0
    assert "No space left" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([""], "the request is empty"),
        (["  \n"], "the request is empty"),
        (["\udcff"], "not valid UTF-8"),
        (["x", "--file", "missing.png"], "cannot read missing.png: No such file"),
        (["x", "--file", "."], "is a folder"),
        (["x", "--file", "pipe"], "is not a regular file"),
        (["x", "--file", "nothing.txt"], "nothing.txt is empty"),
        (["x", "--file", "*.gif"], "no file matches *.gif"),
        (["-", "--file", "-"], "both the request and a file"),
        (["x", "--file", "-"], "standard input is empty"),
        (["x", "--continue"], "there is no earlier run to continue"),
        (["--plan", "missing.json"], "cannot read missing.json"),
        (["--plan", "sign.png"], "contains no plan"),
        (["--plan", "latin.json"], "not UTF-8"),
        (["--plan", "empty.json"], "contains no plan"),
        (["x", "--out", "sign.png"], "cannot write to sign.png"),
        (["x", "--url", "localhost:8080"], "is not a valid gateway URL"),
        (["x", "--url", "http://[::1"], "is not a valid gateway URL"),
        (["x", "--url", "http://localhost:99999"], "is not a valid gateway URL"),
        (["x", "--policy", "maybe"], "maybe"),
        (["x", "--mode", "far"], "far"),
        (["x", "--timeout", "-1"], "timeout"),
        (["x", "--fiel", "sign.png"], "fiel"),
    ],
)
def test_invalid_arguments_are_reported_before_sending(
    scripted_gateway: ScriptedGateway, folder: Path, arguments: list[str], message: str
) -> None:
    os.mkfifo(folder / "pipe")
    (folder / "nothing.txt").touch()
    (folder / "empty.json").write_text("{}")
    (folder / "latin.json").write_bytes(b'["\xff"]')
    where = [] if "--url" in arguments else ["--url", scripted_gateway.url]
    result = run_ask(*arguments, *where)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert message in result.stderr
    assert not scripted_gateway.requests


@pytest.mark.parametrize(("status", "exit_status"), [(400, 2), (413, 2), (415, 2), (403, 1), (429, 1), (503, 1)])
def test_rejection_is_reported_with_remedy(
    scripted_gateway: ScriptedGateway, folder: Path, status: int, exit_status: int
) -> None:
    scripted_gateway.error = (status, {"detail": "no such task", "code": "TASK", "remedy": "use another"})
    result = run_ask("read it", "--url", scripted_gateway.url, "--json")
    assert result.exit_code == exit_status
    assert result.stdout == ""
    assert result.stderr == "error: no such task\n  use another\n"


@pytest.mark.parametrize("health", [{"status": "ok"}, ["hugginggpt"], {"service": "something"}])
def test_other_server_at_address_is_an_error(scripted_gateway: ScriptedGateway, folder: Path, health: Any) -> None:
    scripted_gateway.health = health
    result = run_ask("read it", "--url", scripted_gateway.url)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert "is not a HuggingGPT gateway" in result.stderr
    assert "--url" in result.stderr
    assert [path for _, path, _ in scripted_gateway.requests] == ["/healthz"]


def test_unreachable_explicit_gateway_is_an_error(folder: Path) -> None:
    result = run_ask("read it", "--url", "http://127.0.0.1:9")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert "cannot connect to a gateway at http://127.0.0.1:9" in result.stderr


def test_control_characters_do_not_reach_the_terminal(scripted_gateway: ScriptedGateway, folder: Path) -> None:
    scripted_gateway.events[-2] = {"answer_chunk": {"text": "\x1b]0;owned\x07"}}
    scripted_gateway.events[3] = {"plan_note": {"text": "\x1b[2J"}}
    result = run_ask("read it", "--url", scripted_gateway.url)
    assert "\x1b" not in result.stdout + result.stderr


def test_ctrl_c_cancels_run_and_exits_with_130(scripted_gateway: ScriptedGateway, folder: Path) -> None:
    scripted_gateway.block_before_end = threading.Event()
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "gateway.cli", "ask", "read it", "--url", scripted_gateway.url]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr
        assert "planning\n" in iter(process.stderr.readline, "")
        assert "1 image-to-text: planned\n" in iter(process.stderr.readline, "")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert out == ""
    assert err.splitlines()[-1] == "error: cancelled"
    assert ("POST", "/v1/runs/run-1/cancel", b"") in scripted_gateway.requests

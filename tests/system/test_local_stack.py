"""The local stack: start, runs, restarts of killed processes, added experts, stop."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.system.conftest import (
    ANY_PORTS,
    ROOT,
    LocalStack,
    environment,
    eventually,
    run_cli,
    run_expert,
    start_local_stack,
    wait_for_exit,
)

pytestmark = pytest.mark.slow

SIGN = ROOT / "tests" / "data" / "sign.png"
DEMO = "Read the text in this image aloud and tell me whether it sounds happy"


def events(local_stack: LocalStack, request: str, *files: Path) -> Iterator[dict[str, Any]]:
    """Events of a new run, as they arrive, without cached results."""
    parts = [("file", (file.name, file.read_bytes())) for file in files]
    form: list[tuple[str, Any]] = [("spec", (None, json.dumps({"request": request, "bypass_memo": True}))), *parts]
    with httpx.stream(
        "POST", f"{local_stack.url}/v1/runs", files=form, headers={"Accept": "text/event-stream"}, timeout=60
    ) as reply:
        for line in reply.iter_lines():
            if line.startswith("data:"):
                yield json.loads(line.removeprefix("data:"))


def test_run_over_several_modalities_completes(local_stack: LocalStack) -> None:
    run = local_stack.ask(DEMO, SIGN)
    assert run["status"] == "completed"
    assert {task["task"] for task in run["plan"]} == {"image-to-text", "text-to-speech", "text-classification"}
    assert {task["task"]: task["depends_on"] for task in run["plan"]} == {
        "image-to-text": [],
        "text-to-speech": [1],
        "text-classification": [1],
    }
    (speech,) = [artifact for artifact in run["artifacts"] if artifact["media_type"].startswith("audio/")]
    assert Path(speech["path"]).read_bytes().startswith(b"RIFF")
    assert all(result["error"] is None and result["expert"] == "lite" for result in run["results"])
    assert run["answer"]


def test_stored_plan_can_be_rerun(local_stack: LocalStack, tmp_path: Path) -> None:
    run = local_stack.ask(DEMO, SIGN)
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(run))
    command = local_stack.run_cli("ask", "--plan", str(plan), "--file", str(SIGN), "--out", str(tmp_path), "--json")
    again = json.loads(command.out)
    assert command.status == 0
    assert again["plan"] == run["plan"]


def test_killed_expert_fails_only_its_task(local_stack: LocalStack) -> None:
    alive, ends = [local_stack.children["lite"]], []
    for event in events(local_stack, "Read the text in this image", SIGN):
        if "task_started" in event and alive:
            os.kill(alive.pop(), signal.SIGKILL)
        if "run_ended" in event:
            ends.append(event["run_ended"]["state"])
    assert not alive
    assert ends[0] in ("completed", "incomplete", "failed")
    assert local_stack.ask("Read the text in this image", SIGN)["status"] == "completed"
    assert '"child died, restarting"' in local_stack.log.read_text()


def test_new_task_is_planned_without_a_restart(local_stack: LocalStack) -> None:
    def offered() -> bool:
        return "text-shouting" in local_stack.run_cli("tasks").out

    assert not offered()
    with run_expert(local_stack.home, "tests.support.uppercase_expert") as address:
        assert local_stack.run_cli("experts", "add", address).status == 0
        eventually(offered)
        run = local_stack.ask('Shout the sentence "good morning"')
        assert [(result["task"], result["outputs"]["text"]) for result in run["results"]] == [
            ("text-shouting", "GOOD MORNING")
        ]
    local_stack.run_cli("experts", "forget", "uppercase_expert")
    eventually(lambda: not offered())


def test_unsupported_request_is_reported(local_stack: LocalStack) -> None:
    command = local_stack.run_cli("ask", "Bake me a cake", "--json")
    run = json.loads(command.out)
    assert command.status == 1
    assert run["status"] == "failed"
    assert run["plan"] == []
    assert command.err


def test_doctor_reports_no_problem(local_stack: LocalStack) -> None:
    command = local_stack.run_cli("doctor", "--json")
    assert command.status == 0, command.out
    assert json.loads(command.out)["ok"], command.out


@pytest.mark.parametrize("name", [signal.SIGINT, signal.SIGTERM])
def test_one_signal_stops_all_processes(tmp_path: Path, name: signal.Signals) -> None:
    with start_local_stack(tmp_path, "--experts", "") as local_stack:
        local_stack.process.send_signal(name)
        assert local_stack.process.wait(20) == 0
        wait_for_exit(*local_stack.children.values())


def test_killed_supervisor_leaves_no_processes(tmp_path: Path) -> None:
    with start_local_stack(tmp_path, "--experts", "", "--orchestrators", "2") as local_stack:
        assert set(local_stack.children) == {"services", "orchestrator-1", "orchestrator-2"}
        local_stack.process.kill()
        wait_for_exit(*local_stack.children.values())


@pytest.mark.parametrize("option", ["--http", "--grpc"])
def test_port_in_use_is_reported(tmp_path: Path, option: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        command = run_cli(tmp_path, "up", *ANY_PORTS, option, address)
    assert command.status == 1
    assert command.out == ""
    assert address in command.err
    assert option in command.err


def test_unwritable_home_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    command = run_cli(tmp_path / "file", "up", *ANY_PORTS)
    assert command.status == 1
    assert "set HUGGINGGPT_HOME" in command.err


def test_non_loopback_address_without_authentication_is_rejected(tmp_path: Path) -> None:
    command = run_cli(tmp_path, "up", *ANY_PORTS, "--experts", "", "--http", "0.0.0.0:0")
    assert command.status == 1
    assert "only listens on loopback addresses" in command.err


@pytest.mark.parametrize("name", ["vison", "host", "endpoints", "torch_host"])
def test_unknown_expert_is_reported(tmp_path: Path, name: str) -> None:
    command = run_cli(tmp_path, "up", *ANY_PORTS, "--experts", f"lite,{name}")
    assert command.status == 1
    assert f"there is no expert {name}" in command.err
    assert "audio, diffusion, lite, llm, remote, served, text, video, vision" in command.err


def test_up_prints_its_address_and_stops_on_ctrl_c(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gateway.cli", "up", *ANY_PORTS, "--experts", ""]
    with subprocess.Popen(command, env=environment(tmp_path), stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        assert "HuggingGPT is ready\n" in iter(process.stderr.readline, "")
        assert "/docs" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)
    assert process.returncode == 0


def start_ask(home: Path, *options: str) -> "subprocess.Popen[str]":
    """Runs `ask` where no gateway runs."""
    arguments = ["ask", DEMO, "--file", str(SIGN), "--out", str(home / "out"), *options]
    program = "from gateway.cli import app, connect; connect.DEFAULT_URL = 'http://127.0.0.1:9'; "
    command = [sys.executable, "-c", f"{program} app({arguments!r})"]
    return subprocess.Popen(
        command,
        env=environment(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_ask_starts_a_local_stack_if_none_runs(tmp_path: Path) -> None:
    with start_ask(tmp_path, "--json") as process:
        out, err = process.communicate(timeout=90)
    assert process.returncode == 0
    assert err == ""
    assert json.loads(out)["status"] == "completed"


def test_ctrl_c_during_start_leaves_no_processes(tmp_path: Path) -> None:
    def is_used() -> bool:
        """Whether the environment of any process contains the folder."""
        environments = (process.info["environ"] or {} for process in psutil.process_iter(["environ"]))
        return any(str(tmp_path) in environment.values() for environment in environments)

    with start_ask(tmp_path) as process:
        eventually((tmp_path / "journal.sqlite").exists)  # the orchestrator runs, the expert still loads
        assert is_used()
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == "Starting local services…\nerror: cancelled\n"
    eventually(lambda: not is_used())

"""The house as its user meets it: it stands, answers, survives its parts, takes in new ones, and goes."""

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

from tests.system.conftest import ANY_PORTS, ROOT, House, cli, environment, eventually, expert, gone, standing

pytestmark = pytest.mark.slow

SIGN = ROOT / "tests" / "data" / "sign.png"
DEMO = "Read the text in this image aloud and tell me whether it sounds happy"


def events(house: House, request: str, *files: Path) -> Iterator[dict[str, Any]]:
    """A run's events, as they come; nothing is taken from earlier runs."""
    parts = [("file", (file.name, file.read_bytes())) for file in files]
    form: list[tuple[str, Any]] = [("spec", (None, json.dumps({"request": request, "bypass_memo": True}))), *parts]
    with httpx.stream(
        "POST", f"{house.url}/v1/runs", files=form, headers={"Accept": "text/event-stream"}, timeout=60
    ) as reply:
        for line in reply.iter_lines():
            if line.startswith("data:"):
                yield json.loads(line.removeprefix("data:"))


def test_run_over_several_modalities_completes(house: House) -> None:
    told = house.ask(DEMO, SIGN)
    assert (told["status"], {task["task"] for task in told["plan"]}) == (
        "completed",
        {"image-to-text", "text-to-speech", "text-classification"},
    )
    assert {task["task"]: task["depends_on"] for task in told["plan"]} == {
        "image-to-text": [],
        "text-to-speech": [1],
        "text-classification": [1],
    }
    (speech,) = [artifact for artifact in told["artifacts"] if artifact["media_type"].startswith("audio/")]
    assert Path(speech["path"]).read_bytes().startswith(b"RIFF")
    assert all(result["error"] is None and result["expert"] == "lite" for result in told["results"])
    assert told["answer"]


def test_stored_plan_can_be_rerun(house: House, tmp_path: Path) -> None:
    told = house.ask(DEMO, SIGN)
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(told))
    said = house.cli("ask", "--plan", str(plan), "--file", str(SIGN), "--out", str(tmp_path), "--json")
    again = json.loads(said.out)
    assert (said.status, again["plan"]) == (0, told["plan"])


def test_killed_expert_fails_only_its_task(house: House) -> None:
    alive, ends = [house.children["lite"]], []
    for event in events(house, "Read the text in this image", SIGN):
        if "task_started" in event and alive:
            os.kill(alive.pop(), signal.SIGKILL)
        if "run_ended" in event:
            ends.append(event["run_ended"]["state"])
    assert not alive
    assert ends[0] in ("completed", "incomplete", "failed")
    assert house.ask("Read the text in this image", SIGN)["status"] == "completed"
    assert '"child died, restarting"' in house.log.read_text()


def test_new_task_is_planned_without_a_restart(house: House) -> None:
    def offered() -> bool:
        return "text-shouting" in house.cli("tasks").out

    assert not offered()
    with expert(house.home, "tests.support.shouting") as address:
        assert house.cli("experts", "add", address).status == 0
        eventually(offered)
        told = house.ask('Shout the sentence "good morning"')
        assert [(result["task"], result["outputs"]["text"]) for result in told["results"]] == [
            ("text-shouting", "GOOD MORNING")
        ]
    house.cli("experts", "forget", "shouting")
    eventually(lambda: not offered())


def test_unsupported_request_is_reported(house: House) -> None:
    said = house.cli("ask", "Bake me a cake", "--json")
    told = json.loads(said.out)
    assert (said.status, told["status"], told["plan"]) == (1, "failed", [])
    assert said.err


def test_doctor_reports_no_problem(house: House) -> None:
    said = house.cli("doctor", "--json")
    assert (said.status, json.loads(said.out)["ok"]) == (0, True), said.out


@pytest.mark.parametrize("name", [signal.SIGINT, signal.SIGTERM])
def test_one_signal_stops_all_processes(tmp_path: Path, name: signal.Signals) -> None:
    with standing(tmp_path, "--experts", "") as house:
        house.process.send_signal(name)
        assert house.process.wait(20) == 0
        gone(*house.children.values())


def test_killed_supervisor_leaves_no_processes(tmp_path: Path) -> None:
    with standing(tmp_path, "--experts", "", "--orchestrators", "2") as house:
        assert set(house.children) == {"light", "orchestrator-1", "orchestrator-2"}
        house.process.kill()
        gone(*house.children.values())


@pytest.mark.parametrize("option", ["--http", "--grpc"])
def test_port_in_use_is_reported(tmp_path: Path, option: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        said = cli(tmp_path, "up", *ANY_PORTS, option, address)
    assert (said.status, said.out) == (1, "")
    assert address in said.err
    assert option in said.err


def test_unwritable_home_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    said = cli(tmp_path / "file", "up", *ANY_PORTS)
    assert said.status == 1
    assert "set HUGGINGGPT_HOME" in said.err


def test_non_loopback_address_without_authentication_is_rejected(tmp_path: Path) -> None:
    said = cli(tmp_path, "up", *ANY_PORTS, "--experts", "", "--http", "0.0.0.0:0")
    assert said.status == 1
    assert "only listens on loopback addresses" in said.err


@pytest.mark.parametrize("name", ["vison", "host", "endpoints", "torch_host"])
def test_unknown_expert_is_reported(tmp_path: Path, name: str) -> None:
    said = cli(tmp_path, "up", *ANY_PORTS, "--experts", f"lite,{name}")
    assert said.status == 1
    assert f"there is no expert {name}" in said.err
    assert "audio, diffusion, lite, remote, served, text, video, vision" in said.err


def test_up_prints_its_address_and_stops_on_ctrl_c(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gateway.cli", "up", *ANY_PORTS, "--experts", ""]
    with subprocess.Popen(command, env=environment(tmp_path), stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        assert "HuggingGPT is ready\n" in iter(process.stderr.readline, "")
        assert "/docs" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)
    assert process.returncode == 0


def asking(home: Path, *options: str) -> "subprocess.Popen[str]":
    """Asks on a machine where no gateway runs."""
    arguments = ["ask", DEMO, "--file", str(SIGN), "--out", str(home / "out"), *options]
    program = "from gateway.cli import app, door; door.DEFAULT_URL = 'http://127.0.0.1:9'; "
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
    with asking(tmp_path, "--json") as process:
        out, err = process.communicate(timeout=90)
    assert (process.returncode, err, json.loads(out)["status"]) == (0, "", "completed")


def test_ctrl_c_during_start_leaves_no_processes(tmp_path: Path) -> None:
    def is_used() -> bool:
        """Whether the environment of any process names the folder."""
        environments = (process.info["environ"] or {} for process in psutil.process_iter(["environ"]))
        return any(str(tmp_path) in environment.values() for environment in environments)

    with asking(tmp_path) as process:
        eventually((tmp_path / "journal.sqlite").exists)  # the orchestrator runs, the expert still loads
        assert is_used()
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "starting the house\nerror: cancelled\n")
    eventually(lambda: not is_used())

"""Run commands and piped input, with a real gateway and scripted services."""

import asyncio
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from protos.hugginggpt.v1.artifact_pb2 import Artifact, Value
from protos.hugginggpt.v1.event_pb2 import AnswerChunk, ApprovalRequested, RunEnded, RunEvent, TaskEnded, TaskPlanned
from protos.hugginggpt.v1.run_pb2 import RUN_STATE_COMPLETED, TASK_STATE_SUCCEEDED, TaskResult
from protos.hugginggpt.v1.task_pb2 import Task
from tests.fakes import ScriptedOrchestrator
from tests.support.api_keys import start_keyed_gateway
from tests.support.gateway import GatewayUnderTest, start_gateway

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Output:
    """Exit status and output of a command."""

    status: int
    out: str
    err: str


@dataclass(frozen=True)
class Shell:
    """A folder in which commands run, and the gateway that they call."""

    gateway: GatewayUnderTest
    folder: Path

    def environment(self, **more: str) -> dict[str, str]:
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("HUGGINGGPT_", "LLM_"))}
        ours = {
            "PYTHONPATH": str(ROOT),
            "HUGGINGGPT_URL": f"http://127.0.0.1:{self.gateway.http_port}",
            "HUGGINGGPT_HOME": str(self.folder / "home"),
            "NO_COLOR": "1",
            "COLUMNS": "200",
        }
        return {**inherited, **ours, **more}

    async def type(self, *arguments: str, stdin: bytes | None = None, **environment: str) -> Output:
        """Runs hugginggpt with standard input, or without any."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "gateway.cli", *arguments),
            cwd=self.folder,
            env=self.environment(**environment),
            stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        async with asyncio.timeout(60):
            out, err = await process.communicate(stdin)
        return Output(process.returncode or 0, out.decode(), err.decode())


def made(artifact: Artifact) -> tuple[RunEvent, ...]:
    """A run with an output file."""
    done = TaskResult(task_id=1, outputs={"audio": Value(artifact=artifact)})
    return (
        RunEvent(task_id=1, task_planned=TaskPlanned(task=Task(id=1, task="text-to-speech"))),
        RunEvent(task_id=1, task_ended=TaskEnded(state=TASK_STATE_SUCCEEDED, result=done)),
        RunEvent(answer_chunk=AnswerChunk(text="Read.")),
        RunEvent(run_ended=RunEnded(state=RUN_STATE_COMPLETED)),
    )


@pytest.fixture
async def shell(tmp_path: Path) -> AsyncIterator[Shell]:
    orchestrator = ScriptedOrchestrator()
    async with start_gateway(tmp_path, orchestrator) as gateway:
        artifact = await gateway.store.put("default", b"RIFF", media_type="audio/wav", name="speech.wav")
        orchestrator.script = made(artifact)
        yield Shell(gateway, tmp_path)


async def test_piped_input_is_sent_as_file(shell: Shell) -> None:
    output = await shell.type("ask", "Summarise this", stdin=b"a long story")
    assert output.status == 0
    assert output.out == "Read.\n"
    (named,) = shell.gateway.orchestrator.runs["run_1"].spec.inputs
    assert named.value.artifact.name == "stdin"
    assert named.value.artifact.media_type == "text/plain"


async def test_dash_reads_request_or_file_from_stdin(shell: Shell) -> None:
    assert (await shell.type("ask", "-", stdin="Größe?".encode())).status == 0
    assert (await shell.type("ask", "look", "--file", "-", stdin=b"\x89PNG\r\n\x1a\n....")).status == 0
    text_spec, file = (shell.gateway.orchestrator.runs[name].spec for name in ("run_1", "run_2"))
    assert text_spec.request == "Größe?"
    assert len(text_spec.inputs) == 0
    assert file.inputs[0].value.artifact.media_type == "image/png"
    output = await shell.type("ask", "-", stdin=b"\xff")
    assert output.status == 2
    assert "not UTF-8" in output.err


async def test_silent_pipe_is_not_waited_for(shell: Shell) -> None:
    reading, writing = os.pipe()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gateway.cli", "ask", "hello"),
        cwd=shell.folder,
        env=shell.environment(),
        stdin=reading,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        _, err = await process.communicate()
    os.close(reading)
    os.close(writing)
    assert process.returncode == 0
    assert b"no data on standard input" in err
    assert not shell.gateway.orchestrator.runs["run_1"].spec.inputs


async def test_pattern_expands_to_sorted_files(shell: Shell) -> None:
    (shell.folder / "in").mkdir()
    for name in ("b.txt", "a.txt", "c.md"):
        (shell.folder / "in" / name).write_text(name)
    (shell.folder / "in" / "d[1].txt").write_text("brackets")
    output = await shell.type("ask", "look", "--file", "in/*.txt", "--file", "in/d[1].txt")
    assert output.status == 0, output.err
    inputs = shell.gateway.orchestrator.runs["run_1"].spec.inputs
    assert [named.value.artifact.name for named in inputs] == ["a.txt", "b.txt", "d[1].txt", "d[1].txt"]


async def test_continue_uses_last_or_given_run(shell: Shell) -> None:
    for arguments in (["first"], ["--continue", "second"], ["--after", "run_1", "third"], ["-c", "fourth"]):
        assert (await shell.type("ask", *arguments)).status == 0
    parents = [run.spec.parent_run_id for run in shell.gateway.orchestrator.runs.values()]
    assert parents == ["", "run_1", "run_1", "run_3"]


async def test_model_constraints_and_review_are_sent(shell: Shell) -> None:
    output = await shell.type("ask", "x", "--license", "mit", "--license", "apache-2.0", "--review", "--json")
    spec = shell.gateway.orchestrator.runs["run_1"].spec
    assert output.status == 0
    assert list(spec.constraints.licenses) == ["mit", "apache-2.0"]
    assert spec.mode == 2


async def test_runs_are_listed_watched_and_saved(shell: Shell) -> None:
    for request in ("first", "second\x1b[2J"):
        await shell.type("ask", request, "--out", "made")
    listed = await shell.type("runs", "--limit", "1")
    assert listed.out.split()[:2] == ["run_2", "completed"]
    assert "\x1b" not in listed.out
    assert "more: hugginggpt runs --page more" in listed.err
    assert [run["run_id"] for run in json.loads((await shell.type("runs", "--json")).out)["runs"]] == ["run_2", "run_1"]
    watched = await shell.type("watch", "run_1", "--json")
    document = json.loads(watched.out)
    assert watched.status == 0
    assert document["answer"] == "Read."
    assert document["artifacts"] == []
    speech = document["results"][0]["outputs"]["audio"]["artifact"]
    got = await shell.type("get", speech["sha256"], "--json")
    assert json.loads(got.out) == {"saved": ["out/speech.wav"]}
    assert (shell.folder / "out" / "speech.wav").read_bytes() == b"RIFF"


async def test_trace_shows_durations_of_active_run(shell: Shell) -> None:
    await shell.type("ask", "first")
    document = json.loads((await shell.type("trace", "run_1", "--json")).out)
    kinds = [span["kind"] for span in document["spans"]]
    assert document["run_id"] == "run_1"
    assert document["state"] == "completed"
    assert kinds == ["plan", "task", "select", "answer"]
    shell.gateway.orchestrator.script = shell.gateway.orchestrator.script[:1]
    await shell.gateway.ask()
    running = await shell.type("trace", "run_2")
    assert running.status == 0
    assert running.out.splitlines()[0].split()[:2] == ["run_2", "running"]
    assert "1 text-to-speech" in running.out
    unknown = await shell.type("trace", "run_9")
    assert unknown.status == 1
    assert "there is no run run_9" in unknown.err


async def test_runs_are_approved_cancelled_and_deleted(shell: Shell) -> None:
    run = json.loads((await shell.type("ask", "first", "--json")).out)
    (shell.folder / "plan.json").write_text(json.dumps(run))
    approved = await shell.type("approve", "run_1", "--plan", "plan.json")
    assert approved.status == 0
    assert approved.out == "Read.\n"
    assert shell.gateway.orchestrator.approved[0][1].tasks[0].task == "text-to-speech"
    assert (await shell.type("delete", "run_1")).out == "deleted run_1\n"
    for command in ("delete", "watch", "get", "cancel", "approve"):
        output = await shell.type(command, "run_1")
        assert output.status == 1
        assert "there is no run run_1" in output.err
        assert "Traceback" not in output.err


async def test_cancel_asks_an_active_run_to_stop(shell: Shell) -> None:
    shell.gateway.orchestrator.script = shell.gateway.orchestrator.script[:1]
    await shell.gateway.ask()
    output = await shell.type("cancel", "run_1", "--json")
    assert output.status == 0
    assert json.loads(output.out) == {"run_id": "run_1", "cancelled": True}
    assert shell.gateway.orchestrator.cancelled == ["run_1"]


async def test_cancel_of_a_completed_run_reports_that_nothing_was_cancelled(shell: Shell) -> None:
    await shell.type("ask", "first")
    output = await shell.type("cancel", "run_1")
    assert output.status == 1
    assert output.out == ""
    assert output.err == "error: run_1 is already completed: nothing was cancelled\n"
    as_json = await shell.type("cancel", "run_1", "--json")
    assert json.loads(as_json.out) == {"run_id": "run_1", "cancelled": False, "state": "completed"}


async def test_trace_of_run_awaiting_approval_shows_command(shell: Shell) -> None:
    shell.gateway.orchestrator.script = [
        shell.gateway.orchestrator.script[0],
        RunEvent(approval_requested=ApprovalRequested()),
    ]
    await shell.gateway.ask()
    output = await shell.type("trace", "run_1")
    assert output.out.splitlines()[0].startswith("run_1  awaiting approval")
    assert "running" not in output.out
    assert "hugginggpt approve run_1" in output.out
    assert json.loads((await shell.type("trace", "run_1", "--json")).out)["state"] == "awaiting_approval"
    assert (await shell.type("runs")).out.split()[:2] == ["run_1", "awaiting_approval"]


async def test_ctrl_c_in_watch_does_not_cancel_run(shell: Shell) -> None:
    shell.gateway.orchestrator.script = [RunEvent(answer_chunk=AnswerChunk(text="so far"))]
    run = (await shell.gateway.ask()).json()["run_id"]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gateway.cli", "watch", run, "--url", shell.environment()["HUGGINGGPT_URL"]),
        env=shell.environment(),
        stderr=subprocess.PIPE,
    )
    assert process.stderr
    async with asyncio.timeout(60):
        assert await process.stderr.readline() == b"connecting to the run\n"
        process.send_signal(signal.SIGINT)
        _, err = await process.communicate()
    assert process.returncode == 130
    assert err == b"error: stopped watching; the run continues\n"
    assert not shell.gateway.orchestrator.cancelled


async def test_api_key_comes_from_option_or_environment(tmp_path: Path) -> None:
    async with start_keyed_gateway(tmp_path) as holders:
        shell, token = Shell(holders.gateway, tmp_path), await holders.token("a")
        rejected = await shell.type("runs")
        assert rejected.status == 1
        assert "error: " in rejected.err
        assert (await shell.type("ask", "hello", HUGGINGGPT_API_KEY=token)).status == 0
        assert "run_1" in (await shell.type("runs", "--api-key", token)).out
        assert token not in rejected.err


async def test_shell_completes_commands_options_and_runs(shell: Shell) -> None:
    await shell.type("ask", "read it aloud")
    program = shell.folder / "bin" / "hugginggpt"
    program.parent.mkdir()
    python, run = shlex.quote(sys.executable), 'from gateway.cli import app; app(prog_name="hugginggpt")'
    program.write_text(f"#!/bin/sh\nexec {python} -c '{run}' \"$@\"\n")
    program.chmod(0o755)
    typed = """
        source <(_HUGGINGGPT_COMPLETE=source_bash hugginggpt)
        complete -p hugginggpt
        try() {
            COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
            _hugginggpt_completion "$1"
            echo "${COMPREPLY[*]}"
        }
        try hugginggpt canc
        try hugginggpt ask --lic
        try hugginggpt watch run_
        HUGGINGGPT_URL=http://127.0.0.1:9 try hugginggpt watch run_
    """
    process = await asyncio.create_subprocess_exec(
        *("bash", "--noprofile", "--norc", "-ec", typed),
        env=shell.environment(PATH=f"{program.parent}:{os.environ['PATH']}"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    async with asyncio.timeout(90):
        out, err = await process.communicate()
    assert process.returncode == 0
    assert err == b""
    registered, *completed = out.decode().splitlines()
    assert registered == "complete -o default -F _hugginggpt_completion hugginggpt"
    assert completed == ["cancel", "--license", "run_1", ""]

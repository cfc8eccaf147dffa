"""Pipeline commands with a gateway and a real orchestrator."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from protos.hugginggpt.internal.v1.planner_pb2 import PlanEvent
from protos.hugginggpt.pipeline_file import pipeline_schema
from protos.hugginggpt.v1.artifact_pb2 import Value
from protos.hugginggpt.v1.expert_pb2 import InferRequest
from services.orchestrator.settings import Settings
from tests.service.test_cli_runs import Output, Shell
from tests.support.batches import given, step
from tests.support.orchestrator import END, ScriptedPeers
from tests.support.pipeline_gateway import PLAN, PipelineGateway, start_pipeline_gateway

pytestmark = pytest.mark.slow

PIXEL = b"\x89PNG\r\n\x1a\n"
ANSWER = """\
format: hugginggpt/pipeline/1
name: answer
description: |
  Answers a question
  about a page.
policy: local
inputs:
  - {name: what, modality: text, description: The question.}
plan:
  - id: 1
    task: document-question-answering
    args:
      image: {input: page}
      question: {input: what}
"""


@dataclass(frozen=True)
class CommandLine:
    """A shell, and the gateway that its commands call."""

    shell: Shell
    pipeline_gateway: PipelineGateway

    @property
    def folder(self) -> Path:
        return self.shell.folder

    async def type(self, *arguments: str, stdin: bytes | None = None) -> Output:
        return await self.shell.type(*arguments, stdin=stdin)

    async def type_json(self, *arguments: str, stdin: bytes | None = None) -> Any:
        """Runs a command with --json and returns the document that it prints."""
        output = await self.type(*arguments, "--json", stdin=stdin)
        assert output.status == 0, output.err
        return json.loads(output.out)

    def write(self, name: str, text: str) -> Path:
        (self.folder / name).write_text(text, "utf-8")
        return self.folder / name


async def reads(request: InferRequest) -> dict[str, Value]:
    """Returns the image's name, after the question if there is one."""
    name = request.inputs["image"].artifact.name
    if "question" in request.inputs:
        return {"text": Value(text=f"{request.inputs['question'].text} {name}"), "details": Value(json="[]")}
    return {"text": Value(text=name)}


@pytest.fixture
async def command_line(peers: ScriptedPeers, settings: Settings, tmp_path: Path) -> AsyncIterator[CommandLine]:
    peers.infer["model"] = reads
    async with start_pipeline_gateway(peers, settings, tmp_path) as pipeline_gateway:
        (tmp_path / "sign.png").write_bytes(PIXEL)
        yield CommandLine(Shell(pipeline_gateway.gateway, tmp_path), pipeline_gateway)


@pytest.fixture
def plan_reading(peers: ScriptedPeers) -> None:
    """Plans the next request as reading an image."""
    peers.plan(PlanEvent(task=step(1, "image-to-text", image=given("file1"))), END)


@pytest.mark.usefixtures("plan_reading")
async def test_ask_saves_plan_that_runs_on_other_files(command_line: CommandLine) -> None:
    output = await command_line.type("ask", "Read this", "--file", "sign.png", "--save", "read")
    assert output.status == 0, output.err
    assert "saved as read, version 1: hugginggpt run read --file FILE" in output.err, output.err
    command_line.pipeline_gateway.peers.planned.clear()
    (command_line.folder / "other.png").write_bytes(PIXEL + b"!")
    assert "plan of pipeline read@1" in (await command_line.type("run", "read", "--file", "other.png")).err
    ran = await command_line.type_json("run", "read", "--file", "other.png")
    assert ran["status"] == "completed"
    assert ran["results"][0]["outputs"]["text"] == "other.png"
    assert command_line.pipeline_gateway.peers.planned == []
    listed = await command_line.type("pipelines")
    assert listed.out.split()[0] == "read@1"
    assert listed.out.rstrip().endswith("Read this")


@pytest.mark.usefixtures("plan_reading")
async def test_saved_run_can_be_pinned_and_is_shown_as_graph(command_line: CommandLine) -> None:
    run = await command_line.type_json(
        "ask", "Read this", "--file", "sign.png", "--save", "read", "--pin", "--policy", "local"
    )
    assert run["pipeline"] == {"name": "read", "version": 1}
    shown = (await command_line.type("show", "read@1")).out
    head, summary, _, root, leaf, *rest = shown.splitlines()
    assert head.startswith("read  version 1, saved 20")
    assert head.endswith(f" from {run['run_id']}, policy local")
    assert summary == "Read this"
    assert root.split()[:2] == ["file1", "image"]
    assert leaf.split()[1:] == ["1", "image-to-text", "image", "←", "file1", "model@1"]
    assert any(line.startswith("output text  text") for line in rest)
    assert (await command_line.type_json("show", "read"))["plan"][0]["pinned_model"] == "model"


async def test_plan_of_failed_run_is_not_saved(command_line: CommandLine) -> None:
    command_line.pipeline_gateway.peers.plan(
        PlanEvent(task=step(1, "text-to-speech", model="gone", text=given("file1"))), END
    )
    command_line.write("note.txt", "words")
    output = await command_line.type("ask", "Say this", "--file", "note.txt", "--save", "say")
    assert output.status == 1
    assert "the plan is not saved as say: the run is" in output.err
    assert "hugginggpt save run_" in output.err
    assert (await command_line.pipeline_gateway.http.get("/v1/pipelines")).json()["data"] == []


@pytest.mark.usefixtures("plan_reading")
async def test_plan_printed_by_ask_can_be_imported(command_line: CommandLine) -> None:
    printed = await command_line.type("ask", "Read this", "--file", "sign.png", "--json")
    command_line.write("run.json", printed.out)
    unnamed = await command_line.type("import", "run.json")
    assert unnamed.status == 2
    assert "add --name" in unnamed.err
    imported = await command_line.type_json("import", "run.json", "--name", "read")
    assert imported["version"] == 1
    assert imported["inputs"][0]["name"] == "file1"
    pipeline = await command_line.type_json("save", json.loads(printed.out)["run_id"], "read", "--pin")
    assert pipeline["source_run_id"] == json.loads(printed.out)["run_id"]
    assert (await command_line.type_json("ask", "--plan", "run.json", "--file", "sign.png"))["status"] == "completed"


async def test_exported_pipeline_is_valid_and_imports_unchanged(command_line: CommandLine) -> None:
    (command_line.folder / "answer.yaml").write_text(ANSWER)
    first = await command_line.type_json("import", "answer.yaml")
    exported = await command_line.type("export", "answer")
    assert (await command_line.type("export", "answer", "--out", "answer.yaml")).status == 0
    assert (command_line.folder / "answer.yaml").read_text("utf-8") == exported.out
    schema, origin, *lines = exported.out.splitlines()
    url = command_line.shell.environment()["HUGGINGGPT_URL"]
    assert schema == f"# yaml-language-server: $schema={url}/v1/pipeline.schema.json"
    assert origin.startswith("# answer, version 1, saved 20")
    assert set(ANSWER.splitlines()) - set(lines) == {"  - {name: what, modality: text, description: The question.}"}
    assert "  - {name: what, modality: text, required: true, description: The question.}" in lines
    Draft202012Validator(json.loads(pipeline_schema())).validate(yaml.safe_load(exported.out))
    again = await command_line.type_json("import", "-", stdin=exported.out.encode())
    assert again == first
    assert (await command_line.type_json("import", "-", "--name", "other", stdin=exported.out.encode()))[
        "name"
    ] == "other"


async def test_settings_and_files_fill_parameters(command_line: CommandLine) -> None:
    await command_line.type("import", str(command_line.write("answer.yaml", ANSWER)))
    for sent in (("--file", "sign.png"), ("--set", "page=sign.png")):
        ran = await command_line.type_json("run", "answer", *sent, "--set", "what=Due = when?")
        assert ran["results"][0]["outputs"]["text"] == "Due = when? sign.png"
    for arguments, texts in (
        (["--file", "sign.png"], "what is missing"),
        (["--set", "what"], "has no value"),
        (["--set", "who=me"], "which is not a parameter of answer@1"),
        (["--set", "page=gone.png", "--set", "what=x"], "No such file"),
    ):
        output = await command_line.type("run", "answer", *arguments)
        assert output.status == 2, output.err
        assert texts in output.err, output.err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("pipeline/1", "pipeline/2"), "line 1: hugginggpt/pipeline/2 is newer than the formats"),
        (("document-question-answering", "dancing"), "no expert offers dancing"),
        (("modality: text", "modality: image"), "the modality of input what is not that of the tasks that use it"),
        (("name: what,", "name: who,"), "task 1 uses what, which is not among the inputs (who)"),
    ],
)
async def test_invalid_pipeline_file_is_not_imported(
    command_line: CommandLine, change: tuple[str, str], message: str
) -> None:
    command_line.write("wrong.yaml", ANSWER.replace(*change))
    output = await command_line.type("import", "wrong.yaml")
    assert output.status in (1, 2), output.err
    assert message in output.err, output.err
    assert "Traceback" not in output.err, output.err
    assert len(output.err.splitlines()) == 2, "what is wrong, and what helps"
    assert (await command_line.pipeline_gateway.http.get("/v1/pipelines")).json()["data"] == []


async def test_pipeline_versions_are_listed_and_deleted(command_line: CommandLine) -> None:
    await command_line.pipeline_gateway.save("short", plan=PLAN)
    await command_line.pipeline_gateway.save("short")
    await command_line.pipeline_gateway.save("other")
    assert [line.split()[0] for line in (await command_line.type("pipelines")).out.splitlines()] == [
        "other@1",
        "short@2",
    ]
    page = await command_line.type("pipelines", "short", "--limit", "1")
    assert page.out.split()[0] == "short@2"
    rest = page.err.strip().removeprefix("more: hugginggpt ").split()
    assert (await command_line.type(*rest)).out.split()[0] == "short@1"
    assert (await command_line.type("delete", "short@2")).out == "deleted short@2\n"
    assert (await command_line.type_json("delete", "short")) == {"pipeline": "short", "deleted": True}
    for command in ("show", "export", "run", "delete", "pipelines"):
        output = await command_line.type(command, "short")
        assert output.status == 1, output.err
        assert "there is no pipeline short" in output.err, output.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ask", "x", "--save", "Not a name"], "is not a valid pipeline name"),
        (["ask", "x", "--save", "a", "--review"], "--review only plans"),
        (["ask", "x", "--pin"], "add --save"),
        (["import", "gone.yaml"], "cannot read gone.yaml"),
        (["import", "sign.png"], "not UTF-8"),
        (["show", "a@b"], "has no valid version"),
    ],
)
async def test_invalid_arguments_are_reported_before_any_call(
    command_line: CommandLine, arguments: list[str], message: str
) -> None:
    output = await command_line.type(*arguments)
    assert output.status == 2, output.err
    assert message in output.err, output.err


async def test_shell_completes_pipeline_names(command_line: CommandLine) -> None:
    await command_line.pipeline_gateway.save("read-aloud", plan=PLAN, description="Reads\naloud")
    program = "from gateway.cli import app; app(prog_name='hugginggpt')"
    environment = {"_HUGGINGGPT_COMPLETE": "complete_bash", "COMP_CWORD": "2"}
    for command in ("run", "show", "export", "delete"):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", program),
            env=command_line.shell.environment(COMP_WORDS=f"hugginggpt {command} re", **environment),
            stdout=subprocess.PIPE,
        )
        async with asyncio.timeout(60):
            out, _ = await process.communicate()
        assert out.split() == [b"read-aloud"]

"""The experts in README.md and experts/README.md: created as described, served from any folder, called and planned."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from protos.hugginggpt.v1 import expert_pb2 as pb
from protos.hugginggpt.v1 import expert_pb2_grpc as rpc
from protos.hugginggpt.v1.artifact_pb2 import Value
from services.common.channel import dial
from tests.readme import README
from tests.support.pages import read_section
from tests.system.conftest import ROOT, LocalStack, eventually, run_expert

pytestmark = pytest.mark.slow

APPLE = ROOT / "tests" / "data" / "apple.png"
EXPERTS_README = ROOT / "experts" / "README.md"
NAME, TASK, MODEL = "colours", "colour-naming", "nearest-colour"


def write_files(section: str, folder: Path) -> list[str]:
    """Writes the files of an expert that a section shows, each after a line that begins with its path."""
    path = rf"^`(?:\.\./)?{folder.name}/(\S+)`"
    files = re.findall(rf"{path}.*?^```\w+\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    folder.mkdir(parents=True)
    for name, text in files:
        (folder / name).write_text(text)
    return [name for name, _ in files]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The expert of the tutorial."""
    section = read_section(EXPERTS_README, "Write your own expert")
    folder = tmp_path / "anywhere" / NAME
    assert write_files(section, folder) == ["tasks.py", "models.json", "tasks.json"]
    entry = re.search(r"^```python\n(from experts.host.app.*?)^```$", section, re.DOTALL | re.MULTILINE)
    assert entry
    (folder / "__main__.py").write_text(entry[1].replace(f"experts.{NAME}", NAME))
    return folder


async def rewrite(home: Path, folder: Path, text: str) -> str:
    """Serves the folder and returns the output of its text2text-generation."""
    with run_expert(home, "experts.host", str(folder)) as address:
        async with dial(address) as channel:
            request = pb.InferRequest(task="text2text-generation", inputs={"text": Value(text=text)})
            reply = await rpc.ExpertServiceStub(channel).Infer(request, timeout=60, wait_for_ready=True)
    return reply.outputs["text"].text


async def test_shortest_expert_of_the_main_readme_answers(tmp_path: Path) -> None:
    folder = tmp_path / "shout"
    assert write_files(read_section(README, "Add an expert"), folder) == ["tasks.py", "models.json"]
    assert await rewrite(tmp_path, folder, "quiet") == "QUIET"


async def test_batched_handler_of_the_readme_answers(tmp_path: Path) -> None:
    section = read_section(EXPERTS_README, "Models that need more than a function")
    (code,) = re.findall(r"^```python\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    folder = tmp_path / "capitals"
    folder.mkdir()
    (folder / "tasks.py").write_text(code)
    (folder / "models.json").write_text(json.dumps([{"id": "capitalizer", "task": "text2text-generation"}]))
    assert await rewrite(tmp_path, folder, " hello ") == "Hello"


def test_readme_expert_with_new_modality_is_planned_and_called(local_stack: LocalStack, folder: Path) -> None:
    def offered() -> bool:
        return TASK in local_stack.run_cli("tasks").out

    assert not offered()
    with run_expert(local_stack.home, "experts.host", str(folder)) as address:
        assert local_stack.run_cli("experts", "add", address).out == f"added {NAME}: {address}\n"
        eventually(offered)
        result = local_stack.ask("Name the colours of this picture", APPLE)
        assert [(one["task"], one["expert"], one["model"], one["outputs"]) for one in result["results"]] == [
            (TASK, NAME, MODEL, {"text": "blue and red"})
        ]
        assert "blue and red" in result["answer"]
        assert local_stack.run_cli("check-expert", address).status == 0
        assert local_stack.run_cli("experts", "forget", NAME).status == 0
        assert not offered()


def test_readme_expert_entry_point_has_three_lines(folder: Path) -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(folder.parent), str(ROOT)))}
    command = [sys.executable, "-m", NAME, "--describe"]
    process = subprocess.run(command, env=env, capture_output=True, check=True, timeout=60)
    description = json.loads(process.stdout)
    assert description["expert"] == NAME
    assert [model["id"] for model in description["models"]] == [MODEL]

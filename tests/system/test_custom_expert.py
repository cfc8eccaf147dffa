"""The example expert of the README: created as described, served from any folder, planned and called."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.readme import README
from tests.system.conftest import ROOT, LocalStack, eventually, run_expert

pytestmark = pytest.mark.slow

APPLE = ROOT / "tests" / "data" / "apple.png"
NAME, TASK, MODEL = "colours", "colour-naming", "nearest-colour"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files of the example in the README, by name."""
    section = README.read_text(encoding="utf-8").partition("## Adding an expert\n")[2].partition("\n## ")[0]
    files = re.findall(rf"^`{NAME}/(\S+)`.*?^```\w+\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    assert [name for name, _ in files] == ["tasks.py", "models.json", "tasks.json"]
    whole = tmp_path / "elsewhere" / NAME
    whole.mkdir(parents=True)
    for name, text in files:
        (whole / name).write_text(text)
    entry = re.search(r"^```python\n(from experts.host.app.*?)^```$", section, re.DOTALL | re.MULTILINE)
    assert entry
    (whole / "__main__.py").write_text(entry[1].replace(f"experts.{NAME}", NAME))
    return whole


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

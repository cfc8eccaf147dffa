"""docker/README.md says what is there, and its own Compose file is one that an expert is found by."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docker" / "README.md").read_text(encoding="utf-8")
COMPOSE = ROOT / "docker" / "compose.yaml"
FULL = ROOT / "docker" / "full.env"


@pytest.fixture(params=[(), ("--env-file", str(FULL))], ids=["default", "full"])
def services(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """With the page's own file, as podman-compose reads them."""
    (own,) = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    file = tmp_path / "colours.yaml"
    file.write_text(own)
    command = [sys.executable, "-m", "podman_compose", *request.param, "--file", str(COMPOSE), "--file", str(file)]
    told = subprocess.run([*command, "config"], check=True, timeout=60, stdout=subprocess.PIPE, text=True)
    read: dict[str, Any] = yaml.safe_load(told.stdout)["services"]
    return read


def test_an_expert_of_ones_own_keeps_files_where_the_house_does_and_is_found(services: dict[str, Any]) -> None:
    colours, lite = services["colours"], services["expert-lite"]
    store = {name: value for name, value in lite["environment"].items() if name.startswith(("ARTIFACTS_", "AWS_"))}
    assert colours["environment"] == store
    assert (colours["volumes"], colours["networks"]) == (lite["volumes"], lite["networks"])


def test_no_command_has_a_terminal_add_to_what_it_prints() -> None:
    commands = re.findall(r"compose .*\bexec\b.*", PAGE)
    assert commands
    assert [command for command in commands if " exec -T " not in command] == []


def test_files_and_variables_it_names_are_there() -> None:
    files = re.findall(r"--(?:env-)?file (docker/[\w.]+)", PAGE)
    assert [file for file in files if not (ROOT / file).is_file()] == []
    told = PAGE[PAGE.index("## What it can be told") : PAGE.index("## Build the images")]
    named = re.findall(r"`([A-Z][A-Z_]+[A-Z])`", told)
    compose = COMPOSE.read_text()
    assert [name for name in named if not re.search(rf"\${{{name}\b|\b{name}: *[,}}\n]", compose)] == []

"""docker/README.md names existing files, variables and commands, and its example Compose file works."""

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
def compose_services(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """Services with the example Compose file of the page, as podman-compose resolves them."""
    (own,) = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    file = tmp_path / "colours.yaml"
    file.write_text(own)
    command = [sys.executable, "-m", "podman_compose", *request.param, "--file", str(COMPOSE), "--file", str(file)]
    done = subprocess.run([*command, "config"], check=True, timeout=60, stdout=subprocess.PIPE, text=True)
    resolved: dict[str, Any] = yaml.safe_load(done.stdout)["services"]
    return resolved


def test_example_expert_shares_artifact_store_and_network(compose_services: dict[str, Any]) -> None:
    colours, lite = compose_services["colours"], compose_services["expert-lite"]
    store = {name: value for name, value in lite["environment"].items() if name.startswith(("ARTIFACTS_", "AWS_"))}
    assert colours["environment"] == store
    assert colours["volumes"] == lite["volumes"]
    assert colours["networks"] == lite["networks"]


def test_exec_commands_allocate_no_terminal() -> None:
    commands = re.findall(r"compose .*\bexec\b.*", PAGE)
    assert commands
    assert [command for command in commands if " exec -T " not in command] == []


def test_named_files_exist() -> None:
    files = re.findall(r"--(?:env-)?file (docker/[\w.-]+)", PAGE)
    assert [file for file in files if not (ROOT / file).is_file()] == []


def test_documented_variables_are_used_by_compose() -> None:
    section = PAGE[PAGE.index("## Configuration") : PAGE.index("## Build the images")]
    named = re.findall(r"`([A-Z][A-Z_]+[A-Z])`", section)
    compose = COMPOSE.read_text()
    assert [name for name in named if not re.search(rf"\${{{name}\b|\b{name}: *[,}}\n]", compose)] == []

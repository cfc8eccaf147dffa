"""Errors at the command line name commands that help, not routes and fields of the HTTP API."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner, Result

from gateway.cli import app
from tests.system.conftest import ROOT, LocalStack

pytestmark = pytest.mark.slow

SIGN = str(ROOT / "tests" / "data" / "sign.png")
NOWHERE = "http://127.0.0.1:9"
SHA256 = "0" * 64

HTTP = re.compile(r"/v1/|\b(GET|HEAD|POST|PUT|PATCH|DELETE)\b|readyz|next_page_token|Retry-After")

WRONG: Sequence[tuple[str, ...]] = (
    ("approve", "run_9"),
    ("approve", "run_../../x"),
    ("ask", "hello", "--after", "run_9"),
    ("ask", "hello", "--file", "file_9"),
    ("ask", ""),
    ("batch", "nothing", SIGN, "--out", "results"),
    ("batches", "--page", "wrong"),
    ("cancel", "batch_9"),
    ("cancel", "run_9"),
    ("compare", "image-to-text", "--file", "file_9"),
    ("delete", "batch_9"),
    ("delete", "nothing"),
    ("delete", "run_9"),
    ("experts", "forget", "unknown"),
    ("experts", "forget", "lite"),
    ("export", "nothing"),
    ("get", ""),
    ("get", "batch_9"),
    ("get", "file_9"),
    ("get", "run_9"),
    ("get", SHA256),
    ("import", "wrong.yaml"),
    ("record", "run_9"),
    ("resume", "batch_9"),
    ("run", "nothing", "--file", SIGN),
    ("runs", "--page", "wrong"),
    ("save", "run_9", "name"),
    ("show", "nothing"),
    ("trace", "run_9"),
    ("verify", "run_9"),
    ("watch", "batch_9"),
    ("watch", "run_9"),
)

WITHOUT_GATEWAY = frozenset({"bulk", "check-expert", "keys", "up", "webhooks"})
"""Commands that do not call a gateway."""

UNREACHABLE: Sequence[tuple[str, ...]] = (
    ("doctor",),
    ("mcp",),
    ("models",),
    ("pipelines",),
    ("tasks",),
    ("experts",),
    *WRONG,
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wrong.yaml").write_text("format: hugginggpt/pipeline/v1\nname: nothing\ntasks: []\n")
    return tmp_path


def invoke(url: str, folder: Path, *arguments: str) -> Result:
    env = {"HUGGINGGPT_URL": url, "HUGGINGGPT_HOME": str(folder), "COLUMNS": "200", "NO_COLOR": "1"}
    return CliRunner().invoke(app, arguments, env=env)


@pytest.mark.parametrize("arguments", WRONG, ids=" ".join)
def test_gateway_error_remedy_names_commands(local_stack: LocalStack, folder: Path, arguments: tuple[str, ...]) -> None:
    result = invoke(local_stack.url, folder, *arguments)
    assert result.exit_code != 0
    assert "error: " in result.stderr or "Usage: " in result.stderr
    assert not HTTP.search(result.output)


@pytest.mark.parametrize("arguments", UNREACHABLE, ids=" ".join)
def test_connection_error_remedy_names_commands(folder: Path, arguments: tuple[str, ...]) -> None:
    result = invoke(NOWHERE, folder, *arguments)
    assert result.exit_code != 0
    assert not HTTP.search(result.output)


def test_cases_cover_every_command_that_calls_a_gateway() -> None:
    commands = frozenset(get_command(app).commands)  # type: ignore[attr-defined]  # it is a group
    assert {arguments[0] for arguments in UNREACHABLE} == commands - WITHOUT_GATEWAY


def test_unknown_run_names_the_command_that_lists_runs(local_stack: LocalStack, folder: Path) -> None:
    assert "hugginggpt runs lists them" in invoke(local_stack.url, folder, "watch", "run_9").stderr

"""Bad requests at the command line: each reports its cause and a remedy, and the services stay ready."""

import json
from pathlib import Path

import httpx
import pytest

from tests.support.corrupted_files import DATA, corrupted_files
from tests.system.conftest import LocalStack

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with corrupted and mislabelled files."""
    folder = tmp_path_factory.mktemp("bad")
    for name, content in corrupted_files().items():
        (folder / name).write_bytes(content)
    (folder / "cake.json").write_text(json.dumps([{"id": 1, "task": "cake-baking", "args": {}}]))
    loose = {"id": 1, "task": "text-to-speech", "args": {"text": {"task_id": 2, "output": "text"}}}
    (folder / "loose.json").write_text(json.dumps([loose]))
    (folder / "deep.json").write_text("[" * 100_000)
    (folder / "pinned.json").write_text(
        json.dumps([{"id": 1, "task": "text-to-speech", "args": {"text": "hello"}, "model": "nobody/has-it"}])
    )
    return folder


@pytest.fixture
def inside(bad: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(bad)


@pytest.mark.usefixtures("inside")
@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (
            ["Read the text in this image", "-f", "truncated.png"],
            1,
            "cannot decode truncated.png: the image data is corrupted",
        ),
        (["Read the text in this image", "-f", "bomb.png"], 1, "bomb.png has too many pixels"),
        (["Read the text in this image", "-f", "text.png"], 2, "its content is text/plain"),
        (["Summarise this letter", "-f", "truncated.pdf"], 1, "cannot read truncated.pdf: it is not a valid PDF"),
        (
            ["Summarise this", "-f", "latin.txt"],
            2,
            "cannot accept latin.txt: its name means text, but its content is not UTF-8",
        ),
        (["Transcribe this recording", "-f", "silent.wav"], 1, "silent.wav contains no audio samples"),
        (["Read the text in photo.png"], 1, "photo.png is named but was not sent"),
        (["Make a video of a dancing cat"], 1, "which no expert here offers"),
        (["--plan", "cake.json"], 2, "no expert offers the task cake-baking"),
        (["--plan", "loose.json"], 2, "port text refers to task 2, which is not there"),
        (["--plan", "deep.json"], 2, "deep.json is nested too deeply"),
        (["--plan", "pinned.json"], 1, "nobody/has-it"),
    ],
)
def test_failed_request_reports_cause_and_remedy(
    local_stack: LocalStack, bad: Path, arguments: list[str], status: int, message: str
) -> None:
    result = local_stack.run_cli("ask", *arguments, "--out", str(bad / "out"), "--json")
    assert result.status == status, result.err
    assert message in result.err
    assert "  " in result.err.splitlines()[1], "there is a remedy"
    if status == 1:
        assert json.loads(result.out)["status"] in ("failed", "incomplete")
    assert httpx.get(f"{local_stack.url}/readyz", timeout=10).is_success
    assert not list((bad / "out").glob("*"))


def test_services_are_ready_after_bad_input(local_stack: LocalStack) -> None:
    assert local_stack.ask("Read the text in this image", DATA / "sign.png")["status"] == "completed"
    assert '"unexpected error"' not in local_stack.log.read_text()

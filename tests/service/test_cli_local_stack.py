"""tasks, models, experts and doctor against a scripted gateway."""

import json
import socket
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from typer.testing import CliRunner, Result

from gateway.cli import app, doctor
from gateway.json_encoder import encode
from protos.hugginggpt.tasks import standard_tasks
from tests.support.scripted_gateway import ScriptedGateway

PAGES: dict[str, Any] = {
    "/v1/tasks": {
        "data": [
            {
                "name": "image-to-text",
                "description": "Reads what is written.",
                "examples": ["Read the text in this image", "What does this sign say?"],
                "inputs": [{"name": "image", "required": True}, {"name": "hint"}],
                "outputs": [{"name": "text", "required": True}],
                "experts": ["lite"],
            },
            {
                "name": "text-shouting",
                "description": "",
                "inputs": [],
                "outputs": [],
                "experts": ["a"],
                "dormant": True,
            },
        ]
    },
    "/v1/models": {
        "models": [
            {"id": "rapidocr", "task": "image-to-text", "expert": "lite", "state": "failed", "failure": "no file"},
            {"id": "org/large", "task": "text-to-image", "memory_class": "24GB", "exceeds_memory": True},
            {"id": "org/small", "task": "text-to-image", "memory_class": "cpu"},
        ]
    },
    "/v1/experts": {
        "data": [
            {"name": "lite", "addresses": ["127.0.0.1:5"], "tasks": ["image-to-text"]},
            {"name": "text", "dormant": True, "tasks": ["a"], "problems": ["does not answer"]},
        ]
    },
    "/readyz": {"ready": True},
}


@pytest.fixture
def scripted_gateway(no_llm: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedGateway]:
    monkeypatch.setenv("HUGGINGGPT_HOME", str(tmp_path))
    monkeypatch.delenv("ARTIFACTS_URL", raising=False)
    with ScriptedGateway(pages=dict(PAGES)).running() as scripted_gateway:
        monkeypatch.setenv("HUGGINGGPT_URL", scripted_gateway.url)
        yield scripted_gateway


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments, env={"COLUMNS": "200", "NO_COLOR": "1"})


def lines(result: Result) -> list[str]:
    return [" ".join(line.split()) for line in result.stdout.splitlines()]


@pytest.mark.parametrize(
    ("command", "path", "row"),
    [
        (["tasks"], "/v1/tasks", "image-to-text image, hint? → text lite"),
        (["tasks"], "/v1/tasks", "Reads what is written."),
        (["tasks"], "/v1/tasks", "for example: Read the text in this image"),
        (["tasks"], "/v1/tasks", "text-shouting → a (dormant)"),
        (["models"], "/v1/models", "rapidocr lite failed"),
        (["models"], "/v1/models", "org/large for 24GB, more than this expert has"),
        (["models"], "/v1/models", "org/small for cpu"),
        (["experts", "list"], "/v1/experts", "lite available 127.0.0.1:5"),
        (["experts", "list"], "/v1/experts", "text dormant"),
        (["experts", "list"], "/v1/experts", "does not answer"),
        (["experts"], "/v1/experts", "lite available 127.0.0.1:5"),
    ],
)
def test_lists_are_printed_as_lines_or_json(
    scripted_gateway: ScriptedGateway, command: list[str], path: str, row: str
) -> None:
    assert row in lines(run(*command))
    assert json.loads(run(*command, "--json").stdout) == PAGES[path]


@pytest.mark.parametrize(("command", "names"), [("tasks", standard_tasks()), ("experts", ("lite", "vision"))])
def test_entries_wrap_indented_at_80_columns(
    scripted_gateway: ScriptedGateway, command: str, names: Collection[str]
) -> None:
    specs = [{**encode(spec), "experts": ["lite", "vision", "remote"]} for spec in standard_tasks().values()]
    scripted_gateway.pages["/v1/tasks"] = {"data": specs}
    addresses = [f"127.0.0.1:{port}" for port in range(40001, 40008)]
    listed_experts = [
        {"name": name, "addresses": addresses, "tasks": list(standard_tasks())} for name in ("lite", "vision")
    ]
    scripted_gateway.pages["/v1/experts"] = {"data": listed_experts}
    shown = CliRunner().invoke(app, [command], env={"COLUMNS": "80", "NO_COLOR": "1"}).stdout.splitlines()
    assert max(map(len, shown)) <= 80
    assert [line.split()[0] for line in shown if not line.startswith(" ")] == list(names)


FAILED_MODELS = {
    "name": "remote",
    "addresses": ["127.0.0.1:5"],
    "tasks": ["translation"],
    "problems": [*(f"model m{number} has failed: no token" for number in range(5)), "model n has failed: no file"],
}


@pytest.mark.parametrize("command", ["experts", "doctor"])
def test_models_that_failed_for_the_same_reason_are_reported_together(
    scripted_gateway: ScriptedGateway, command: str
) -> None:
    scripted_gateway.pages["/v1/experts"] = {"data": [FAILED_MODELS]}
    shown = " ".join(lines(run(command)))
    assert "5 models have failed: no token (m0, m1, m2 and 2 more)" in shown
    assert "model n has failed: no file" in shown
    assert "m3" not in shown


def test_failed_model_has_its_reason_below(scripted_gateway: ScriptedGateway) -> None:
    shown = lines(run("models"))
    assert shown[shown.index("rapidocr lite failed") + 1] == "no file"


@pytest.fixture
def short_answer_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.cli.experts.ANSWER_SECONDS", 0.1)


def test_unreachable_expert_is_added_by_address(
    scripted_gateway: ScriptedGateway, tmp_path: Path, short_answer_timeout: None
) -> None:
    result = run("experts", "add", "127.0.0.1:9")
    assert result.stdout == "added 127.0.0.1:9: 127.0.0.1:9\n"
    assert "127.0.0.1:9 is not reachable yet" in result.stderr
    assert (tmp_path / "experts" / "127.0.0.1-9.address").read_text() == "127.0.0.1:9\n"


def test_address_added_twice_is_listed_once(
    scripted_gateway: ScriptedGateway, tmp_path: Path, short_answer_timeout: None
) -> None:
    folder = tmp_path / "experts"
    folder.mkdir()
    (folder / "older.address").write_text("127.0.0.1:9\n")
    (folder / "other.address").write_bytes(b"\xff")
    run("experts", "add", "127.0.0.1:9")
    assert sorted(file.name for file in folder.iterdir()) == ["127.0.0.1-9.address", "other.address"]


@pytest.mark.parametrize("name", ["text", "127.0.0.1:5060", "../mine"])
def test_forget_calls_the_gateway(scripted_gateway: ScriptedGateway, name: str) -> None:
    assert run("experts", "forget", name).exit_code == 0
    assert ("DELETE", f"/v1/experts/{quote(name, safe='')}", b"") in scripted_gateway.requests


@pytest.mark.parametrize(
    "arguments",
    [
        ["experts", "add", "nowhere"],
        ["experts", "add", "127.0.0.1:port"],
        ["experts", "add", "127.0.0.1:99999"],
        ["experts", "add", "127.0.0.1:0"],
        ["experts", "add", "dns:///name:50051"],
        ["experts", "add", "127.0.0.1:1,127.0.0.1:2"],
        ["experts", "remove", "text"],
    ],
)
def test_invalid_expert_addresses_are_rejected(
    scripted_gateway: ScriptedGateway, tmp_path: Path, arguments: list[str]
) -> None:
    assert run(*arguments).exit_code == 2
    assert not list(tmp_path.glob("**/*.address"))


def findings(result: Result) -> dict[str, Any]:
    return {finding["check"]: finding for finding in json.loads(result.stdout)["checks"]}


def test_doctor_reports_problems_with_remedies(scripted_gateway: ScriptedGateway) -> None:
    result = run("doctor", "--json")
    found = findings(result)
    assert result.exit_code == 1
    assert not json.loads(result.stdout)["ok"]
    assert {name: found[name]["level"] for name in ("python", "gateway", "readiness", "expert lite")} == {
        "python": "ok",
        "gateway": "ok",
        "readiness": "ok",
        "expert lite": "ok",
    }
    assert found["expert text"]["level"] == "wrong"
    assert "does not answer" in found["expert text"]["found"]
    assert found["expert text"]["remedy"]


def test_doctor_passes_with_healthy_services(scripted_gateway: ScriptedGateway) -> None:
    scripted_gateway.pages["/v1/experts"] = {"data": PAGES["/v1/experts"]["data"][:1]}
    result = run("doctor")
    assert result.exit_code == 0
    assert f"passed gateway answers at {scripted_gateway.url}" in lines(result)


def test_doctor_checks_engines_only_if_expert_is_installed(
    scripted_gateway: ScriptedGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "rapidocr" in findings(run("doctor", "--json"))
    monkeypatch.setattr("gateway.cli.doctor.find_spec", lambda name: None)
    assert not doctor.ENGINES.keys() & findings(run("doctor", "--json")).keys()


def test_doctor_reports_other_server_at_address(scripted_gateway: ScriptedGateway) -> None:
    scripted_gateway.health = {"status": "fine"}
    result = run("doctor", "--json")
    assert result.exit_code == 1
    assert findings(result)["gateway"]["level"] == "wrong"


def test_doctor_reports_unwritable_home(
    scripted_gateway: ScriptedGateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("HUGGINGGPT_HOME", str(tmp_path / "file"))
    found = findings(run("doctor", "--json"))
    assert [found[name]["level"] for name in ("home", "artifacts")] == ["wrong", "wrong"]


def test_doctor_reports_used_grpc_port(scripted_gateway: ScriptedGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HUGGINGGPT_URL")
    monkeypatch.setattr("gateway.cli.doctor.DEFAULT_URL", "http://127.0.0.1:9")
    with socket.create_server(("127.0.0.1", 0)) as other:
        monkeypatch.setattr("gateway.cli.doctor.GRPC_PORT", other.getsockname()[1])
        found = findings(run("doctor", "--json"))
    assert found["gateway"]["level"] == "ok"
    assert found["gRPC port"]["level"] == "warning"
    assert "--grpc" in found["gRPC port"]["remedy"]

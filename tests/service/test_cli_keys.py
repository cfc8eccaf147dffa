"""hugginggpt keys, run by an operator."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from gateway.auth.api_keys import parts
from gateway.cli import app
from tests.support.api_keys import bearer
from tests.support.gateway import start_gateway


@pytest.fixture
def gateway_database_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    path = str(tmp_path / "gateway.sqlite")
    monkeypatch.setenv("GATEWAY_DATABASE", path)
    return path


def keys(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["keys", *arguments])


def run_json(*arguments: str) -> Any:
    result = keys(*arguments)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_create_prints_only_the_key_to_stdout(gateway_database_path: str) -> None:
    result = keys("create", "--tenant", "shop", "--name", "bot")
    assert result.exit_code == 0
    assert parts(result.stdout.strip())
    assert "cannot be shown again" in result.stderr


def test_keys_are_listed_changed_and_revoked(gateway_database_path: str) -> None:
    made = run_json("create", "--tenant", "shop", "--policy", "local", "--expires", "30d", "--json")
    assert made["key"].startswith(f"hgpt_{made['id']}_")
    assert made["policy"] == "local"
    assert made["state"] == "active"
    changed = run_json("change", made["id"], "--concurrent-runs", "2", "--expires", "never", "--json")
    assert changed["limits"] == {"concurrent_runs": 2}
    assert changed["expires"] is None
    assert changed["policy"] == "local"
    assert keys("revoke", made["id"]).exit_code == 0
    (listed,) = run_json("list", "--json")["keys"]
    assert listed["state"] == "revoked"
    assert "key" not in listed
    assert run_json("list", "--tenant", "other", "--json") == {"keys": []}
    for text in (made["id"], "revoked", "shop"):
        assert text in keys("list").stdout


def test_audit_log_is_exported(gateway_database_path: str) -> None:
    made = run_json("create", "--json")
    keys("revoke", made["id"])
    entries = [json.loads(line) for line in keys("audit", "--export").stdout.splitlines()]
    assert [(entry["action"], entry["subject"]) for entry in entries] == [
        ("key.create", made["id"]),
        ("key.revoke", made["id"]),
    ]
    assert entries[0]["actor"].startswith("operator:")
    assert made["key"] not in str(entries)
    assert len(keys("audit").stdout.splitlines()) == 2


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("create", "--tenant", "A B"), 2, "lower-case letters"),
        (("create", "--expires", "soon"), 2, "30d"),
        (("change", "0123456789ab"), 2, "--help"),
        (("change", "0123456789ab", "--name", "x"), 1, "keys list"),
        (("revoke", "unknown"), 1, "keys list"),
        (("list", "--database", "mysql://x/y"), 2, "postgresql"),
        (("list", "--database", "/proc/none/x.sqlite"), 1, "written"),
    ],
    ids=str,
)
def test_errors_are_reported_with_remedy(
    gateway_database_path: str, arguments: tuple[str, ...], status: int, message: str
) -> None:
    result = keys(*arguments)
    assert result.exit_code == status
    assert message in result.stderr
    assert "Traceback" not in result.output


def test_help_has_examples(gateway_database_path: str) -> None:
    assert "kubectl exec" in keys("--help").stdout
    for command in ("create", "list", "change", "revoke", "audit"):
        assert keys(command, "--help").exit_code == 0


async def test_running_gateway_accepts_new_key(tmp_path: Path, gateway_database_path: str) -> None:
    async with start_gateway(
        tmp_path, settings={"authentication": "keys", "database": gateway_database_path}
    ) as gateway:
        made = await asyncio.to_thread(run_json, "create", "--json")
        assert (await gateway.http.get("/v1/tasks", headers=bearer(made["key"]))).status_code == 200

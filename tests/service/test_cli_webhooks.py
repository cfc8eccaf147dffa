"""hugginggpt webhooks, run by an operator."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from gateway.cli import app


@pytest.fixture
def gateway_database_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    path = str(tmp_path / "gateway.sqlite")
    monkeypatch.setenv("GATEWAY_DATABASE", path)
    return path


def webhooks(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["webhooks", *arguments])


def run_json(*arguments: str) -> Any:
    result = webhooks(*arguments)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_create_prints_only_the_secret_to_stdout(gateway_database_path: str) -> None:
    result = webhooks("create", "https://example.org/hooks", "--tenant", "shop")
    assert result.exit_code == 0
    assert result.stdout.startswith("whsec_")
    assert len(result.stdout.splitlines()) == 1
    assert "cannot be shown again" in result.stderr


def test_webhooks_are_listed_and_deleted(gateway_database_path: str) -> None:
    made = run_json("create", "https://example.org/hooks", "--tenant", "shop", "--name", "orders", "--json")
    (listed,) = run_json("list", "--json")["webhooks"]
    assert listed["tenant"] == "shop"
    assert listed["name"] == "orders"
    assert listed["url"] == "https://example.org/hooks"
    assert "secret" not in listed
    for text in (made["id"], "shop", "orders"):
        assert text in webhooks("list").stdout
    assert run_json("list", "--tenant", "other", "--json") == {"webhooks": []}
    assert webhooks("delete", made["id"]).exit_code == 0
    assert "there are no webhooks" in webhooks("list").stderr


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("create", "http://example.org/"), 2, "https"),
        (("create", "nonsense"), 2, "https"),
        (("create", "https://10.0.0.5/"), 1, "GATEWAY_FETCH_ALLOW"),
        (("create", "https://example.org/", "--tenant", "A B"), 2, "lower-case letters"),
        (("delete", "unknown"), 1, "list the webhooks"),
        (("list", "--database", "/proc/none/x.sqlite"), 1, "written"),
    ],
    ids=str,
)
def test_errors_are_reported_with_remedy(
    gateway_database_path: str, arguments: tuple[str, ...], status: int, message: str
) -> None:
    result = webhooks(*arguments)
    assert result.exit_code == status
    assert message in result.stderr
    assert "Traceback" not in result.output


def test_create_accepts_private_address_that_gateway_setting_names(
    gateway_database_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GATEWAY_FETCH_ALLOW", "10.0.0.0/8")
    assert webhooks("create", "https://10.0.0.5/hooks").exit_code == 0

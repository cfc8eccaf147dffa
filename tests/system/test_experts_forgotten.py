"""Experts added to and removed from local services by command: one name, and no task of theirs afterwards."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.conftest import LocalStack, eventually, run_expert, start_local_stack

pytestmark = pytest.mark.slow

REQUEST = 'Shout the sentence "good morning"'


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    """Services that wait for no expert that stops answering."""
    home = tmp_path_factory.mktemp("home")
    with start_local_stack(
        home, "--experts", "lite", "--orchestrators", "2", SELECTOR_FORGET_SECONDS="0"
    ) as local_stack:
        yield local_stack


def listed(services: LocalStack) -> dict[str, bool]:
    """Whether each expert is dormant."""
    found = json.loads(services.run_cli("experts", "--json").out)["data"]
    return {each["name"]: bool(each.get("dormant")) for each in found}


def offered(services: LocalStack) -> bool:
    return "text-shouting" in services.run_cli("tasks").out


def planned(services: LocalStack) -> list[str]:
    result = services.run_cli("ask", REQUEST, "--json")
    return [task["task"] for task in json.loads(result.out)["plan"]]


def test_forgotten_expert_is_not_called(services: LocalStack) -> None:
    with run_expert(services.home, "tests.support.uppercase_expert") as address:
        added = json.loads(services.run_cli("experts", "add", address, "--json").out)["name"]
        eventually(lambda: offered(services))
        assert added in listed(services)
        assert planned(services) == ["text-shouting"]
        forgotten = services.run_cli("experts", "forget", added)
        assert "text-shouting" not in planned(services)
        assert forgotten.status == 0
        assert added not in listed(services)
        assert list((services.home / "experts").iterdir()) == []


def test_forgotten_dormant_expert_is_not_planned(
    services: LocalStack, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("EXPERT_SCALES_TO_ZERO", "true")
    with run_expert(services.home, "tests.support.uppercase_expert") as address:
        services.run_cli("experts", "add", address)
        eventually(lambda: offered(services))
    eventually(lambda: listed(services) == {"lite": False, "uppercase_expert": True})
    assert services.run_cli("experts", "forget", "uppercase_expert").status == 0
    assert "text-shouting" not in planned(services)
    assert listed(services) == {"lite": False}


def test_expert_started_by_up_cannot_be_forgotten_while_it_answers(services: LocalStack) -> None:
    result = services.run_cli("experts", "forget", "lite")
    assert result.status == 1
    assert "expert lite is running" in result.err
    assert "--experts" in result.err


def test_unknown_expert_error_names_the_list_command(services: LocalStack) -> None:
    result = services.run_cli("experts", "forget", "unknown")
    assert result.status == 1
    assert "hugginggpt experts" in result.err

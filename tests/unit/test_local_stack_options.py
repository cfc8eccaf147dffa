"""Which processes the local stack starts."""

from argparse import Namespace
from pathlib import Path

import pytest

from services.common.errors import InvalidRequest
from services.local.__main__ import local_stack
from services.local.ports import Ports

OPTIONS = {"orchestrators": 1, "http": "127.0.0.1:0", "grpc": "127.0.0.1:0"}


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HUGGINGGPT_HOME", str(tmp_path))
    for name in ("LLM_BASE_URL", "LLM_MODEL", "EXPERT_LLM_BASE_URL", "EXPERT_LLM_MODEL"):
        monkeypatch.delenv(name, raising=False)


def experts(names: str | None) -> list[str]:
    with Ports() as ports:
        return list(local_stack(Namespace(experts=names, **OPTIONS), ports).experts)


def configure_llm(monkeypatch: pytest.MonkeyPatch, prefix: str = "") -> None:
    monkeypatch.setenv(f"{prefix}LLM_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv(f"{prefix}LLM_MODEL", "m")


def test_lite_is_the_only_default_expert_without_an_llm() -> None:
    assert experts(None) == ["lite"]


@pytest.mark.parametrize("prefix", ["", "EXPERT_"])
def test_configured_llm_is_an_expert_by_default(monkeypatch: pytest.MonkeyPatch, prefix: str) -> None:
    configure_llm(monkeypatch, prefix)
    assert experts(None) == ["lite", "llm"]


@pytest.mark.parametrize("names", ["lite", ""])
def test_named_experts_are_the_only_ones(monkeypatch: pytest.MonkeyPatch, names: str) -> None:
    configure_llm(monkeypatch)
    assert experts(names) == [name for name in [names] if name]


def test_invalid_llm_of_the_expert_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXPERT_LLM_BASE_URL", "no URL")
    with pytest.raises(InvalidRequest, match="expert's LLM"):
        experts(None)

"""LLM endpoint settings of roles."""

import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from services.llm.settings import LlmSettings, Price


@pytest.fixture
def llm_environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Sets an internal endpoint for all roles."""
    monkeypatch.setenv("LLM_BASE_URL", "http://127.0.0.1:8000/v1/")
    monkeypatch.setenv("LLM_MODEL", "small")
    monkeypatch.setenv("LLM_API_KEY", "common-key")
    monkeypatch.setenv("LLM_INTERNAL", "true")
    return monkeypatch


def test_settings_of_role_override_common_settings(llm_environment: pytest.MonkeyPatch) -> None:
    llm_environment.setenv("PLANNER_LLM_MODEL", "large")
    llm_environment.setenv("PLANNER_LLM_PRICES", '{"large": {"input": 0.15, "output": 0.6}}')
    planner, responder = LlmSettings.of("planner"), LlmSettings.of("responder")
    assert planner.model == "large"
    assert responder.model == "small"
    assert planner.base_url == responder.base_url == "http://127.0.0.1:8000/v1"
    assert planner.prices == {"large": Price(input=0.15, output=0.6)}
    assert planner.internal
    assert responder.api_key.get_secret_value() == "common-key"


def test_endpoint_on_other_host_inherits_neither_internal_nor_key(
    llm_environment: pytest.MonkeyPatch,
) -> None:
    llm_environment.setenv("PLANNER_LLM_BASE_URL", "https://llm.example/v1")
    planner = LlmSettings.of("planner")
    assert not planner.internal
    assert planner.api_key.get_secret_value() == ""
    llm_environment.setenv("PLANNER_LLM_INTERNAL", "true")
    assert LlmSettings.of("planner").internal


def test_other_path_on_same_host_inherits_settings(llm_environment: pytest.MonkeyPatch) -> None:
    llm_environment.setenv("PLANNER_LLM_BASE_URL", "http://127.0.0.1:8000/large/v1")
    assert LlmSettings.of("planner").internal


def test_empty_variable_is_ignored(llm_environment: pytest.MonkeyPatch) -> None:
    llm_environment.setenv("PLANNER_LLM_MODEL", "")
    assert LlmSettings.of("planner").model == "small"
    llm_environment.setenv("LLM_BASE_URL", "")
    assert LlmSettings.of("planner").base_url is None


@pytest.mark.parametrize(
    ("url", "remedy"),
    [
        ("127.0.0.1:8000", "write it as in"),
        ("ftp://host/v1", "write it as in"),
        ("http://", "write it as in"),
        ("http://name:secret@host/v1", "LLM_API_KEY"),
        ("http://host/v1/chat/completions", "remove /chat/completions"),
        ("http://host/v1?key=1", "remove"),
        ("http://host:99999/v1", "out of range"),
    ],
)
def test_invalid_base_url_error_names_remedy(url: str, remedy: str) -> None:
    with pytest.raises(ValidationError, match=remedy) as error:
        LlmSettings(base_url=url, model="m")
    assert "secret" not in str(error.value)


def test_endpoint_requires_model_and_prompt_tokens() -> None:
    with pytest.raises(ValidationError, match="LLM_MODEL"):
        LlmSettings(base_url="http://host/v1")
    with pytest.raises(ValidationError, match="must be smaller"):
        LlmSettings(context_tokens=1024, answer_tokens=1024)


def test_key_is_not_in_repr() -> None:
    assert "secret" not in repr(LlmSettings(base_url="http://host/v1", model="m", api_key="secret"))


def test_trailing_newline_of_key_is_removed() -> None:
    assert LlmSettings(base_url="http://host/v1", model="m", api_key=" sk-1\n").api_key.get_secret_value() == "sk-1"


@pytest.mark.parametrize("key", ["secrét", "sec ret", "sec\nret", "secret\0"])
def test_invalid_key_raises_without_showing_it(key: str) -> None:
    with pytest.raises(ValidationError, match="copy it again") as error:
        LlmSettings(base_url="http://host/v1", model="m", api_key=key)
    assert "sec" not in str(error.value)


def test_openai_package_is_not_imported_without_endpoint() -> None:
    program = (
        "import sys, services.llm.client, services.llm.prompt; print({'openai', 'opentelemetry'} & set(sys.modules))"
    )
    root = Path(__file__).parents[2]
    run = subprocess.run([sys.executable, "-c", program], cwd=root, check=True, capture_output=True, text=True)
    assert run.stdout == "set()\n"

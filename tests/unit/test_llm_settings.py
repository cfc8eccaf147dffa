"""Which endpoint a role asks."""

import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from services.llm.settings import LlmSettings, Price


@pytest.fixture
def llm_environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An endpoint for all roles, inside the house."""
    monkeypatch.setenv("LLM_BASE_URL", "http://127.0.0.1:8000/v1/")
    monkeypatch.setenv("LLM_MODEL", "small")
    monkeypatch.setenv("LLM_API_KEY", "of-the-house")
    monkeypatch.setenv("LLM_INTERNAL", "true")
    return monkeypatch


def test_a_role_has_what_all_have_and_what_is_its_own(llm_environment: pytest.MonkeyPatch) -> None:
    llm_environment.setenv("PLANNER_LLM_MODEL", "large")
    llm_environment.setenv("PLANNER_LLM_PRICES", '{"large": {"input": 0.15, "output": 0.6}}')
    planner, responder = LlmSettings.of("planner"), LlmSettings.of("responder")
    assert (planner.model, responder.model) == ("large", "small")
    assert planner.base_url == responder.base_url == "http://127.0.0.1:8000/v1"
    assert planner.prices == {"large": Price(input=0.15, output=0.6)}
    assert planner.internal
    assert responder.api_key.get_secret_value() == "of-the-house"


def test_an_endpoint_elsewhere_is_neither_internal_nor_shown_the_key_of_another(
    llm_environment: pytest.MonkeyPatch,
) -> None:
    llm_environment.setenv("PLANNER_LLM_BASE_URL", "https://llm.example/v1")
    planner = LlmSettings.of("planner")
    assert not planner.internal
    assert planner.api_key.get_secret_value() == ""
    llm_environment.setenv("PLANNER_LLM_INTERNAL", "true")
    assert LlmSettings.of("planner").internal


def test_another_path_of_the_same_endpoint_is_the_same_endpoint(llm_environment: pytest.MonkeyPatch) -> None:
    llm_environment.setenv("PLANNER_LLM_BASE_URL", "http://127.0.0.1:8000/large/v1")
    assert LlmSettings.of("planner").internal


def test_what_is_set_to_nothing_is_not_set(llm_environment: pytest.MonkeyPatch) -> None:
    llm_environment.setenv("PLANNER_LLM_MODEL", "")
    assert LlmSettings.of("planner").model == "small"
    llm_environment.setenv("LLM_BASE_URL", "")
    assert LlmSettings.of("planner").base_url is None


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("127.0.0.1:8000", "write it as in"),
        ("ftp://host/v1", "write it as in"),
        ("http://", "write it as in"),
        ("http://name:secret@host/v1", "LLM_API_KEY"),
        ("http://host/v1/chat/completions", "before /chat/completions"),
        ("http://host/v1?key=1", "before"),
        ("http://host:99999/v1", "out of range"),
    ],
)
def test_an_address_that_cannot_be_one_says_what_to_write(url: str, says: str) -> None:
    with pytest.raises(ValidationError, match=says) as error:
        LlmSettings(base_url=url, model="m")
    assert "secret" not in str(error.value)


def test_an_endpoint_needs_a_model_and_room_for_a_prompt() -> None:
    with pytest.raises(ValidationError, match="LLM_MODEL"):
        LlmSettings(base_url="http://host/v1")
    with pytest.raises(ValidationError, match="no room"):
        LlmSettings(context_tokens=1024, answer_tokens=1024)


def test_a_key_is_not_shown() -> None:
    assert "secret" not in repr(LlmSettings(base_url="http://host/v1", model="m", api_key="secret"))


def test_a_key_from_a_file_ends_without_the_end_of_its_line() -> None:
    assert LlmSettings(base_url="http://host/v1", model="m", api_key=" sk-1\n").api_key.get_secret_value() == "sk-1"


@pytest.mark.parametrize("key", ["secrét", "sec ret", "sec\nret", "secret\0"])
def test_a_key_that_no_request_could_carry_is_refused_and_not_shown(key: str) -> None:
    with pytest.raises(ValidationError, match="copy it again") as error:
        LlmSettings(base_url="http://host/v1", model="m", api_key=key)
    assert "sec" not in str(error.value)


def test_a_house_without_an_endpoint_does_not_load_its_client() -> None:
    program = (
        "import sys, services.llm.client, services.llm.prompt; print({'openai', 'opentelemetry'} & set(sys.modules))"
    )
    root = Path(__file__).parents[2]
    run = subprocess.run([sys.executable, "-c", program], cwd=root, check=True, capture_output=True, text=True)
    assert run.stdout == "set()\n"

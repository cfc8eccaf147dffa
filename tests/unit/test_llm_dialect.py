"""What an endpoint takes of the optional parameters."""

from typing import Any

import pytest

from services.llm.dialect import Ask, Dialect
from services.llm.messages import Message, Schema
from services.llm.settings import LlmSettings

SETTINGS = LlmSettings(base_url="http://host/v1", model="m")
CLOSED = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}


def ask(schema: dict[str, Any] | None = None) -> Ask:
    return Ask([Message("user", "hi")], Schema("plan", schema) if schema else None, 50)


def test_all_parameters_are_tried() -> None:
    assert Dialect().parameters(SETTINGS, ask(CLOSED)) == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.0,
        "max_tokens": 50,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "plan", "schema": CLOSED, "strict": True},
        },
    }


@pytest.mark.parametrize(
    ("refusal", "given_up"),
    [
        ({"message": "Unknown parameter: 'response_format'"}, "response_format"),
        ({"detail": [{"loc": ["body", "response_format"], "msg": "extra fields not permitted"}]}, "response_format"),
        ("Structured output is not supported by this model", "response_format"),
        ({"message": "stream_options is not allowed"}, "stream_options"),
        ({"message": "Unsupported value: 'temperature' does not support 0.0 with this model."}, "temperature"),
        ({"message": "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."}, "max_tokens"),
    ],
)
def test_what_a_refusal_names_is_given_up_for_good(refusal: Any, given_up: str) -> None:
    dialect = Dialect()
    before = dialect.parameters(SETTINGS, ask(CLOSED))
    assert dialect.gives_up(before, refusal)
    after = dialect.parameters(SETTINGS, ask(CLOSED))
    assert before.keys() - after.keys() == {given_up}
    assert not dialect.gives_up(after, refusal)


def test_a_limit_of_tokens_is_always_sent() -> None:
    dialect = Dialect()
    dialect.gives_up(dialect.parameters(SETTINGS, ask()), "use max_completion_tokens")
    assert dialect.parameters(SETTINGS, ask())["max_completion_tokens"] == 50


def test_a_refusal_that_names_nothing_it_can_do_without_stands() -> None:
    dialect = Dialect()
    sent = dialect.parameters(SETTINGS, ask(CLOSED))
    assert not dialect.gives_up(sent, {"message": "messages: must alternate"})
    assert not dialect.gives_up(sent, "no response_format", keep="response_format")


@pytest.mark.parametrize(
    "loose",
    [
        {"type": "object"},
        CLOSED | {"additionalProperties": True},
        CLOSED | {"required": []},
        {"type": "array", "items": CLOSED | {"required": []}},
        {"anyOf": [CLOSED, {"type": "object", "properties": {"b": {}}}]},
    ],
)
def test_strictness_is_asked_only_for_schemas_that_allow_it(loose: dict[str, Any]) -> None:
    assert Dialect().parameters(SETTINGS, ask(loose))["response_format"]["json_schema"]["strict"] is False


def test_half_a_character_is_sent_as_a_question_mark() -> None:
    asked = Ask([Message("user", "a\ud800b")], None, 50)
    assert Dialect().parameters(SETTINGS, asked)["messages"][0]["content"] == "a?b"

"""What an endpoint takes of the optional parameters."""

from typing import Any

import pytest

from services.llm.endpoint_capabilities import Ask, Dialect, refusal
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
    ("body", "named"),
    [
        ({"message": "Unknown parameter: 'response_format'"}, "response_format"),
        ({"detail": [{"loc": ["body", "response_format"], "msg": "extra fields not permitted"}]}, "response_format"),
        ("Structured output is not supported by this model", "response_format"),
        ({"code": 400, "message": "Failed to parse grammar"}, "response_format"),
        ({"message": "stream_options is not allowed"}, "stream_options"),
        ({"message": "Unsupported value: 'temperature' does not support 0.0 with this model."}, "temperature"),
        ({"message": "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."}, "max_tokens"),
    ],
)
def test_what_a_refusal_names_can_be_given_up_for_good(body: Any, named: str) -> None:
    dialect = Dialect()
    before = dialect.parameters(SETTINGS, ask(CLOSED))
    assert refusal(body, before) == named
    assert before.keys() - dialect.parameters(SETTINGS, ask(CLOSED), without=[named]).keys() == {named}
    assert dialect.parameters(SETTINGS, ask(CLOSED)) == before
    dialect.give_up([named], "m")
    after = dialect.parameters(SETTINGS, ask(CLOSED))
    assert before.keys() - after.keys() == {named}
    assert refusal(body, after) is None


def test_a_limit_of_tokens_is_always_sent() -> None:
    dialect = Dialect()
    dialect.give_up(["max_tokens"], "m")
    assert dialect.parameters(SETTINGS, ask())["max_completion_tokens"] == 50


def test_a_refusal_that_names_nothing_it_can_do_without_stands() -> None:
    sent = Dialect().parameters(SETTINGS, ask(CLOSED))
    assert refusal({"message": "messages: must alternate"}, sent) is None
    assert refusal("no response_format", sent.keys() - {"response_format"}) is None


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

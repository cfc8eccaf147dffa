"""Optional request parameters of LLM endpoints."""

from typing import Any

import pytest

from services.llm.endpoint_capabilities import ChatRequest, EndpointCapabilities, refused_parameter
from services.llm.prompt import Message, Schema
from services.llm.settings import LlmSettings

SETTINGS = LlmSettings(base_url="http://host/v1", model="m")
CLOSED = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}


def chat_request(schema: dict[str, Any] | None = None) -> ChatRequest:
    return ChatRequest([Message("user", "hi")], Schema("plan", schema) if schema else None, 50)


def test_all_parameters_are_sent_at_first() -> None:
    assert EndpointCapabilities().parameters(SETTINGS, chat_request(CLOSED)) == {
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
    ("body", "parameter"),
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
def test_parameter_named_by_refusal_can_be_disabled(body: Any, parameter: str) -> None:
    capabilities = EndpointCapabilities()
    before = capabilities.parameters(SETTINGS, chat_request(CLOSED))
    assert refused_parameter(body, before) == parameter
    without = capabilities.parameters(SETTINGS, chat_request(CLOSED), without=[parameter])
    assert before.keys() - without.keys() == {parameter}
    assert capabilities.parameters(SETTINGS, chat_request(CLOSED)) == before
    capabilities.disable([parameter], "m")
    after = capabilities.parameters(SETTINGS, chat_request(CLOSED))
    assert before.keys() - after.keys() == {parameter}
    assert refused_parameter(body, after) is None


def test_token_limit_is_sent_under_either_name() -> None:
    capabilities = EndpointCapabilities()
    capabilities.disable(["max_tokens"], "m")
    assert capabilities.parameters(SETTINGS, chat_request())["max_completion_tokens"] == 50


def test_refusal_without_optional_parameter_names_none() -> None:
    sent = EndpointCapabilities().parameters(SETTINGS, chat_request(CLOSED))
    assert refused_parameter({"message": "messages: must alternate"}, sent) is None
    assert refused_parameter("no response_format", sent.keys() - {"response_format"}) is None


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        CLOSED | {"additionalProperties": True},
        CLOSED | {"required": []},
        {"type": "array", "items": CLOSED | {"required": []}},
        {"anyOf": [CLOSED, {"type": "object", "properties": {"b": {}}}]},
    ],
)
def test_strict_mode_is_off_for_schemas_that_do_not_meet_it(schema: dict[str, Any]) -> None:
    assert (
        EndpointCapabilities().parameters(SETTINGS, chat_request(schema))["response_format"]["json_schema"]["strict"]
        is False
    )


def test_images_are_sent_before_the_text() -> None:
    request = ChatRequest([Message("user", "What is it?", ("data:image/png;base64,AA==",))], None, 50)
    image, text = EndpointCapabilities().parameters(SETTINGS, request)["messages"][0]["content"]
    assert image == {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    assert text == {"type": "text", "text": "What is it?"}


def test_image_without_text_has_no_text_part() -> None:
    request = ChatRequest([Message("user", "", ("data:image/png;base64,AA==",))], None, 50)
    (image,) = EndpointCapabilities().parameters(SETTINGS, request)["messages"][0]["content"]
    assert image["type"] == "image_url"


def test_lone_surrogate_is_sent_as_question_mark() -> None:
    request = ChatRequest([Message("user", "a\ud800b")], None, 50)
    assert EndpointCapabilities().parameters(SETTINGS, request)["messages"][0]["content"] == "a?b"

"""Prompts of tasks, and outputs from replies."""

import json
from typing import Any

import pytest

from experts.endpoints import prompts
from experts.endpoints.http_errors import ErrorResponse
from experts.endpoints.prompts import CHAT_TASKS, build_prompt, parse_reply
from experts.host.conversion import convert_outputs, output_ports
from experts.host.handler import Media
from protos.hugginggpt.tasks import standard_tasks
from services.common.errors import CorruptData, InvalidRequest

TABLE = Media(b"name,age\nAda,36\n", "text/csv", "people.csv")
INPUTS: dict[str, Any] = {
    "text": "Ada met Bob. Ada left.",
    "question": "Who?",
    "context": "It was Ada.",
    "table": TABLE,
}
LABELS = {"candidate_labels": ["sports", "politics"], "multi_label": False}
REPLIES = {
    "question-answering": '{"answer": "Ada"}',
    "table-question-answering": '{"answer": "36", "cells": ["36"]}',
    "text-classification": '{"positive": 0.1, "negative": 0.7, "neutral": 0.2}',
    "zero-shot-classification": '{"sports": 0.25, "politics": 0.75}',
    "token-classification": '{"entities": [{"text": "Ada", "entity": "PER"}, {"text": "Ada", "entity": "PER"}]}',
    "document-question-answering": '{"answer": "Ada"}',
}


@pytest.mark.parametrize("task", CHAT_TASKS)
def test_reply_fills_the_required_ports_of_its_task(task: str) -> None:
    outputs = parse_reply(task, REPLIES.get(task, "words"), INPUTS, LABELS)
    assert convert_outputs(output_ports(standard_tasks()[task]), "m", outputs)["text"]


def test_labels_are_sorted_by_score() -> None:
    outputs = parse_reply(
        "zero-shot-classification", "Sure:\n```json\n" + REPLIES["zero-shot-classification"] + "\n```", {}, LABELS
    )
    assert outputs["labels"] == [{"label": "politics", "score": 0.75}, {"label": "sports", "score": 0.25}]


def test_repeated_entity_is_located_at_each_occurrence() -> None:
    outputs = parse_reply("token-classification", REPLIES["token-classification"], INPUTS, {})
    assert [(entity["start"], entity["end"]) for entity in outputs["entities"]] == [(0, 3), (13, 16)]


def test_reasoning_is_removed_from_the_reply() -> None:
    assert parse_reply("summarization", "<think>hm\nhm</think>\n Short.", INPUTS, {}) == {"text": "Short."}


@pytest.mark.parametrize(
    ("task", "reply"),
    [
        ("summarization", "  "),
        ("question-answering", "Ada"),
        ("question-answering", '{"answer": "Bob"}'),
        ("zero-shot-classification", '{"sports": 1}'),
        ("zero-shot-classification", '{"sports": "very", "politics": 0}'),
        ("table-question-answering", '{"answer": 3, "cells": []}'),
        ("token-classification", '{"entities": [3]}'),
    ],
)
def test_reply_in_another_format_is_corrupt(task: str, reply: str) -> None:
    with pytest.raises(CorruptData):
        parse_reply(task, reply, INPUTS, LABELS)


def test_prompt_contains_inputs_parameters_and_schema() -> None:
    prompt = build_prompt("summarization", INPUTS, {"max_length": 9})
    assert "at most 9 words" in prompt.user
    assert INPUTS["text"] in prompt.user
    assert "Ada,36" in build_prompt("table-question-answering", INPUTS, {}).user
    assert "From English to German" in build_prompt("translation", INPUTS, LANGUAGES).user
    schema = build_prompt("zero-shot-classification", INPUTS, LABELS).schema
    assert schema
    assert json.dumps(schema) in build_prompt("zero-shot-classification", INPUTS, LABELS).system


LANGUAGES = {"source_language": "English", "target_language": "German"}


def test_prompt_requires_labels_and_readable_tables() -> None:
    with pytest.raises(InvalidRequest, match="candidate_labels") as caught:
        build_prompt("zero-shot-classification", INPUTS, {})
    assert caught.value.port == "parameters.candidate_labels"
    with pytest.raises(InvalidRequest) as caught:
        build_prompt("table-question-answering", {**INPUTS, "table": Media(b"\xff\xfe\x00", "text/csv", "t.csv")}, {})
    assert caught.value.port == "table"


def test_every_chat_task_has_a_system_prompt() -> None:
    assert prompts.load_system_prompts().keys() == CHAT_TASKS.keys()


@pytest.mark.parametrize(
    ("headers", "body", "seconds"),
    [
        ({"retry-after": "2.5"}, "", 2.5),
        ({"retry-after": "soon"}, "", None),
        ({}, '{"estimated_time": 20}', 20.0),
        ({}, '{"estimated_time": "NaN"}', None),
        ({"retry-after": "1e300"}, "", 86400.0),
        ({"retry-after": "-3"}, "", None),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:00 GMT"}, "[1]", None),
    ],
)
def test_retry_after_is_read_from_header_or_body(headers: dict[str, str], body: str, seconds: float | None) -> None:
    after = ErrorResponse("m", "there", 503, headers, body).to_error().retry_after
    assert (after.total_seconds() if after else None) == seconds

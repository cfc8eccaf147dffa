"""Invalid input of the text expert: errors name port and reason, and the next call works."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
import pytest_asyncio

from experts.host.handler import Media
from tests.tiny import ExpertClient, TinyModels
from tests.tiny.text_examples import CONTEXT

LONG = "the soup is good . " * 2_000
ENDLESS = "soup" * 200_000
FULL = "a,b\n" + "\n".join(f"{row},soup" for row in range(200))

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def expert(tiny_models: TinyModels) -> AsyncIterator[ExpertClient]:
    async with tiny_models.serve("text") as expert:
        yield expert


def csv(text: str, media_type: str = "text/csv") -> Media:
    return Media(text.encode(), media_type, "table.csv")


def table_inputs(table: Media | object) -> dict[str, Any]:
    return {"question": "how many ?", "table": table}


@pytest.mark.parametrize(
    ("task", "inputs", "port", "reason"),
    [
        ("text-classification", {"text": " "}, "text", "INVALID"),
        ("text-classification", {}, "text", "INVALID"),
        ("text-classification", {"words": "a"}, "words", "INVALID"),
        ("text-classification", {"text": LONG}, "text", "TOO_LARGE"),
        ("text-classification", {"text": ENDLESS}, "text", "TOO_LARGE"),
        ("text-classification", {"text": csv("a", "image/png")}, "text", "INVALID"),
        ("token-classification", {"text": LONG}, "text", "TOO_LARGE"),
        ("question-answering", {"question": LONG, "context": CONTEXT}, "question", "TOO_LARGE"),
        ("question-answering", {"question": "where ?", "context": LONG}, "context", "TOO_LARGE"),
        ("question-answering", {"question": "where ?"}, "context", "INVALID"),
        ("table-question-answering", table_inputs(csv(FULL)), "table", "TOO_LARGE"),
        ("table-question-answering", table_inputs(csv("a,b")), "table", "INVALID"),
        ("table-question-answering", table_inputs(csv('a,b\n"c')), "table", "INVALID"),
        ("table-question-answering", table_inputs(3), "table", "INVALID"),
        ("table-question-answering", table_inputs([]), "table", "INVALID"),
        ("table-question-answering", table_inputs(csv("x", "application/vnd.ms-excel")), "table", "INVALID"),
        ("table-question-answering", table_inputs(Media(b"\xff\xfe,\n", "text/csv", "a.csv")), "table", "INVALID"),
        ("table-question-answering", {"question": ENDLESS, "table": csv("a,b\n1,2")}, "question", "TOO_LARGE"),
        ("summarization", {"text": LONG}, "text", "TOO_LARGE"),
        ("translation", {"text": LONG}, "text", "TOO_LARGE"),
        ("text2text-generation", {"text": LONG}, "text", "TOO_LARGE"),
        ("text-generation", {"text": LONG}, "text", "TOO_LARGE"),
        ("text-generation", {"text": ENDLESS}, "text", "TOO_LARGE"),
        ("fill-mask", {"text": "no mask here"}, "text", "INVALID"),
        ("fill-mask", {"text": "[MASK] and [MASK]"}, "text", "INVALID"),
        ("fill-mask", {"text": "[MASK] " + LONG}, "text", "TOO_LARGE"),
        ("feature-extraction", {"text": LONG}, "text", "TOO_LARGE"),
        ("sentence-similarity", {"text": "soup", "sentences": []}, "sentences", "INVALID"),
        ("sentence-similarity", {"text": "soup", "sentences": ["soup", " "]}, "sentences", "INVALID"),
        ("sentence-similarity", {"text": "soup", "sentences": [LONG]}, "sentences", "TOO_LARGE"),
    ],
    ids=range(30),
)
async def test_invalid_input_is_rejected_with_port_and_reason(
    expert: ExpertClient, task: str, inputs: Mapping[str, Any], port: str, reason: str
) -> None:
    error = await expert.call_error(task, inputs)
    assert error.code.name == "INVALID_ARGUMENT"
    assert error.port == port
    assert error.reason == reason
    assert error.remedy


@pytest.mark.parametrize(
    ("task", "model", "parameters", "message"),
    [
        ("text-classification", "", {"top_k": 0}, "top_k"),
        ("text-classification", "", {"top": 1}, "top"),
        ("zero-shot-classification", "", {}, "candidate_labels"),
        ("zero-shot-classification", "", {"candidate_labels": []}, "candidate_labels"),
        ("zero-shot-classification", "", {"candidate_labels": ["soup " * 200]}, "label"),
        ("summarization", "", {"max_length": 5, "min_length": 9}, "min_length"),
        ("translation", "tiny/m2m100", {"target_language": "Klingon"}, "target_language"),
        ("translation", "tiny/m2m100", {"source_language": "tlh", "target_language": "de"}, "source_language"),
        ("translation", "tiny/m2m100", {"source_language": "en", "target_language": "en"}, "English into English"),
        ("translation", "tiny/opus-mt-en-de", {"target_language": "French"}, "target_language"),
        ("translation", "tiny/opus-mt-en-de", {"source_language": "French"}, "source_language"),
        ("text-generation", "", {"temperature": 3}, "temperature"),
        ("text-generation", "", {"max_new_tokens": 0}, "max_new_tokens"),
        ("text-generation", "", {"seed": 2**53}, "seed"),
    ],
    ids=range(14),
)
async def test_invalid_parameter_is_rejected_by_name(
    expert: ExpertClient, task: str, model: str, parameters: dict[str, Any], message: str
) -> None:
    error = await expert.call_error(task, {"text": "good morning ."}, model, **parameters)
    assert error.code.name == "INVALID_ARGUMENT"
    assert error.reason in {"INVALID", "TOO_LARGE"}
    assert message in error.message


async def test_conversational_model_without_chat_template_fails_to_load(expert: ExpertClient) -> None:
    error = await expert.call_error("conversational", {"text": "hello"}, "tiny/story")
    assert error.code.name == "FAILED_PRECONDITION"
    assert error.reason == "LOAD_FAILED"
    assert "chat template" in error.message


async def test_invalid_input_does_not_affect_concurrent_calls(expert: ExpertClient) -> None:
    async def good() -> str:
        return str((await expert.call("text-classification", {"text": "a good film"}))["text"])

    outcomes = await asyncio.gather(
        good(), expert.call_error("text-classification", {"text": LONG}), good(), good(), return_exceptions=True
    )
    assert [outcome for outcome in outcomes if isinstance(outcome, str)] == ["positive"] * 3


@pytest.mark.parametrize(
    "text",
    [
        "\u0000\u0001",
        "🙂" * 5,
        "a" * 30,
        "\u202e good \u200b film",
        "ﷺ" * 5,
        "\n\n\t x",
        "[CLS] [SEP] [PAD]",
        "<|end|>",
    ],
    ids=range(8),
)
async def test_control_and_unusual_characters_are_ordinary_text(expert: ExpertClient, text: str) -> None:
    labels = (await expert.call("text-classification", {"text": text}))["labels"]
    assert {entry["label"] for entry in labels} == {"positive", "negative"}
    for task, model in (("token-classification", ""), ("translation", "tiny/opus-mt-en-de"), ("summarization", "")):
        await expert.call(task, {"text": text}, model)
    await expert.call("text-generation", {"text": text}, "tiny/chat", max_new_tokens=2)


async def test_table_with_uneven_rows_and_duplicate_columns_is_answered(expert: ExpertClient) -> None:
    for table in (csv("a,a,\n1\n2,3,4,5\n"), csv("a;b\n1;2\n"), {"a": [1, 2], "b": [None]}, [["a"], [True], [1.5]]):
        out = await expert.call("table-question-answering", table_inputs(table))
        assert out["details"]["aggregator"] in {"NONE", "SUM", "AVERAGE", "COUNT"}

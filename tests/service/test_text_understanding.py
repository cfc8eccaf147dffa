"""Tasks of the text expert that analyze text, with tiny trained models, compared with transformers alone."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
import torch

from experts.host.handler import Media
from tests.tiny import ExpertClient, TinyModels
from tests.tiny.text_examples import CLOZE, CONTEXT, FACTS, SENTIMENT, TABLE, TABLE_QUESTIONS, TAGGED, TOPICS

transformers = pytest.importorskip("transformers")

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def expert(tiny_models: TinyModels) -> AsyncIterator[ExpertClient]:
    async with tiny_models.serve("text") as expert:
        yield expert


@pytest.mark.parametrize(("text", "label"), SENTIMENT.items())
async def test_text_is_classified(expert: ExpertClient, text: str, label: str) -> None:
    out = await expert.call("text-classification", {"text": text})
    assert out["text"] == label
    assert sum(entry["score"] for entry in out["labels"]) == pytest.approx(1, abs=1e-3)
    assert out["labels"][0]["score"] > 0.9


async def test_top_k_limits_the_labels(expert: ExpertClient) -> None:
    out = await expert.call("text-classification", {"text": "a good film"}, top_k=1)
    assert [entry["label"] for entry in out["labels"]] == ["positive"]


async def test_scores_of_a_long_text_are_the_mean_of_its_windows_weighted_by_length(
    tiny_models: TinyModels, expert: ExpertClient
) -> None:
    text = "a bad film . " * 5 + "i love the great story . " * 30
    out = await expert.call("text-classification", {"text": text})
    folder = tiny_models.build("text", "tiny/sentiment")
    windows = transformers.AutoTokenizer.from_pretrained(folder)(
        text,
        truncation=True,
        max_length=64,
        stride=8,
        return_overflowing_tokens=True,
        padding=True,
        return_tensors="pt",
    )
    del windows["overflow_to_sample_mapping"]
    with torch.inference_mode():
        model = transformers.AutoModelForSequenceClassification.from_pretrained(folder)
        scores = model(**windows).logits.softmax(-1)
    lengths = windows["attention_mask"].sum(1, keepdim=True)
    assert len(lengths) > 2
    expected = ((scores * lengths).sum(0) / lengths.sum()).tolist()
    assert {entry["label"]: entry["score"] for entry in out["labels"]} == {
        "negative": pytest.approx(expected[0], abs=1e-4),
        "positive": pytest.approx(expected[1], abs=1e-4),
    }


async def test_model_without_token_types_gets_none(tiny_models: TinyModels, expert: ExpertClient) -> None:
    out = await expert.call("text-classification", {"text": "a good film"}, "tiny/distilbert")
    folder = tiny_models.build("text", "tiny/distilbert")
    batch = transformers.AutoTokenizer.from_pretrained(folder)("a good film", return_tensors="pt")
    with torch.inference_mode():
        model = transformers.AutoModelForSequenceClassification.from_pretrained(folder)
        scores = model(input_ids=batch["input_ids"]).logits.softmax(-1)[0].tolist()
    assert [entry["score"] for entry in out["labels"]] == pytest.approx(sorted(scores, reverse=True), abs=1e-4)


@pytest.mark.parametrize(("text", "topic"), TOPICS.items())
async def test_zero_shot_classification_uses_the_labels_of_the_request(
    expert: ExpertClient, text: str, topic: str
) -> None:
    labels = list(TOPICS.values())
    for multi_label in (False, True):
        out = await expert.call(
            "zero-shot-classification", {"text": text}, candidate_labels=labels, multi_label=multi_label
        )
        assert out["text"] == topic
        assert {entry["label"] for entry in out["labels"]} == set(labels)
        assert out["labels"][0]["score"] > 0.5
        assert out["labels"][1]["score"] < 0.5


async def test_entities_have_type_text_and_position(expert: ExpertClient) -> None:
    text = "Anna Schmidt lives in Berlin ."
    out = await expert.call("token-classification", {"text": text})
    entities = [(entry["entity"], entry["text"], entry["start"], entry["end"]) for entry in out["entities"]]
    assert entities == [("PER", "Anna Schmidt", 0, 12), ("LOC", "Berlin", 22, 28)]
    assert out["text"] == "PER: Anna Schmidt\nLOC: Berlin"


async def test_each_entity_of_a_long_text_is_found_once(expert: ExpertClient) -> None:
    text = " ".join([TAGGED[0]] * 40)
    out = await expert.call("token-classification", {"text": text})
    expected = [start for start in range(len(text)) if text.startswith(("anna schmidt", "berlin"), start)]
    assert [entry["start"] for entry in out["entities"]] == expected
    assert {text[entry["start"] : entry["end"]] for entry in out["entities"]} == {"anna schmidt", "berlin"}


@pytest.mark.parametrize(("question", "answer"), FACTS.items())
async def test_question_is_answered_with_a_span_of_the_text(expert: ExpertClient, question: str, answer: str) -> None:
    out = await expert.call("question-answering", {"question": question, "context": CONTEXT})
    start = CONTEXT.index(answer)
    details = out["details"]
    assert out["text"] == answer
    assert details["answer"] == answer
    assert details["start"] == start
    assert details["end"] == start + len(answer)
    assert details["score"] > 0.5


async def test_answer_is_found_late_in_a_long_text(expert: ExpertClient) -> None:
    context = "the soup is good . " * 60 + CONTEXT
    out = await expert.call("question-answering", {"question": "where does anna live ?", "context": context})
    assert out["details"]["start"] == context.index("berlin")


async def test_text_without_the_answer_gives_none(expert: ExpertClient) -> None:
    question = "where does anna live ?"
    out = await expert.call("question-answering", {"question": question, "context": "the soup is good ."})
    assert out["details"] == {"answer": "", "score": 0.0, "start": 0, "end": 0}
    assert out["text"] == "I found no answer."


@pytest.mark.parametrize("as_json", [False, True])
async def test_table_question_is_answered_with_aggregated_cells(expert: ExpertClient, *, as_json: bool) -> None:
    header, *rows = [line.split(",") for line in TABLE.split()]
    table = [dict(zip(header, row, strict=True)) for row in rows]
    sent = table if as_json else Media(TABLE.encode(), "text/csv", "cities.csv")
    answers = [
        (await expert.call("table-question-answering", {"question": question, "table": sent}))
        for question in TABLE_QUESTIONS
    ]
    assert [out["text"] for out in answers] == ["2.1", "8.6", "3"]
    assert [out["details"]["aggregator"] for out in answers] == ["NONE", "SUM", "COUNT"]
    assert answers[1]["details"]["cells"] == ["3.7", "2.1", "2.8"]


@pytest.mark.parametrize("mask", ["[MASK]", "<mask>", "____"])
async def test_masked_word_is_predicted(expert: ExpertClient, mask: str) -> None:
    for sentence, position in CLOZE.items():
        words = sentence.split()
        masked = " ".join(mask if index == position else word for index, word in enumerate(words))
        out = await expert.call("fill-mask", {"text": masked}, top_k=3)
        assert out["text"] == words[position]
        assert out["predictions"][0]["sequence"] == sentence
        assert len(out["predictions"]) == 3


async def test_embedding_is_the_normalized_mean_of_the_last_layer(
    tiny_models: TinyModels, expert: ExpertClient
) -> None:
    out = await expert.call("feature-extraction", {"text": "a good film"})
    folder = tiny_models.build("text", "tiny/embedder")
    batch = transformers.AutoTokenizer.from_pretrained(folder)("a good film", return_tensors="pt")
    with torch.inference_mode():
        mean = transformers.AutoModel.from_pretrained(folder)(**batch).last_hidden_state.mean(1)[0]
    assert out["embedding"] == pytest.approx((mean / mean.norm()).tolist(), abs=1e-5)


async def test_identical_text_has_the_highest_similarity(expert: ExpertClient) -> None:
    sentences = ["boil the soup", "a good film", "the minister won the election"]
    out = await expert.call("sentence-similarity", {"text": "a good film", "sentences": sentences})
    assert out["scores"][1] == 1
    assert max(out["scores"][0], out["scores"][2]) < 1
    assert out["text"] == "a good film (1.0)"


@pytest.mark.parametrize(
    ("task", "inputs", "parameters"),
    [
        ("text-classification", [{"text": text} for text in (*SENTIMENT, "the soup . " * 60)], {}),
        ("zero-shot-classification", [{"text": text} for text in TOPICS], {"candidate_labels": ["sports", "cooking"]}),
        ("token-classification", [{"text": text} for text in (*TAGGED, " ".join(TAGGED * 9))], {}),
        ("question-answering", [{"question": question, "context": CONTEXT * 9} for question in FACTS], {}),
        ("fill-mask", [{"text": "[MASK] is good"}, {"text": "berlin is the [MASK] of germany , and so on"}], {}),
        ("sentence-similarity", [{"text": text, "sentences": [*TOPICS]} for text in SENTIMENT], {}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_concurrent_calls_equal_sequential_calls(
    expert: ExpertClient, task: str, inputs: list[dict[str, Any]], parameters: dict[str, Any]
) -> None:
    sequential = [await expert.call(task, values, **parameters) for values in inputs]
    concurrent = await asyncio.gather(*(expert.call(task, values, **parameters) for values in inputs))
    assert list(concurrent) == sequential

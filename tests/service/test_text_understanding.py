"""Tasks in which a model reads a text and says something about it, with tiny models that know what."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
import torch

from experts.host.handler import Media
from tests.tiny import Served, Tiny
from tests.tiny.lessons import CLOZE, CONTEXT, FACTS, SENTIMENT, TABLE, TABLE_QUESTIONS, TAGGED, TOPICS

transformers = pytest.importorskip("transformers")

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def expert(tiny: Tiny) -> AsyncIterator[Served]:
    async with tiny.expert("text") as expert:
        yield expert


@pytest.mark.parametrize(("text", "label"), SENTIMENT.items())
async def test_a_text_is_put_into_its_class(expert: Served, text: str, label: str) -> None:
    out = await expert.ask("text-classification", {"text": text})
    assert out["text"] == label
    assert sum(one["score"] for one in out["labels"]) == pytest.approx(1, abs=1e-3)
    assert out["labels"][0]["score"] > 0.9


async def test_as_many_classes_come_as_were_asked_for(expert: Served) -> None:
    out = await expert.ask("text-classification", {"text": "a good film"}, top_k=1)
    assert [one["label"] for one in out["labels"]] == ["positive"]


async def test_a_long_text_is_read_in_windows_and_each_counts_by_its_length(tiny: Tiny, expert: Served) -> None:
    text = "a bad film . " * 5 + "i love the great story . " * 30
    out = await expert.ask("text-classification", {"text": text})
    folder = tiny.built("text", "tiny/sentiment")
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
    assert {one["label"]: one["score"] for one in out["labels"]} == {
        "negative": pytest.approx(expected[0], abs=1e-4),
        "positive": pytest.approx(expected[1], abs=1e-4),
    }


async def test_a_model_is_not_told_what_it_does_not_know(tiny: Tiny, expert: Served) -> None:
    out = await expert.ask("text-classification", {"text": "a good film"}, "tiny/distilbert")
    folder = tiny.built("text", "tiny/distilbert")
    batch = transformers.AutoTokenizer.from_pretrained(folder)("a good film", return_tensors="pt")
    with torch.inference_mode():
        model = transformers.AutoModelForSequenceClassification.from_pretrained(folder)
        scores = model(input_ids=batch["input_ids"]).logits.softmax(-1)[0].tolist()
    assert [one["score"] for one in out["labels"]] == pytest.approx(sorted(scores, reverse=True), abs=1e-4)


@pytest.mark.parametrize(("text", "topic"), TOPICS.items())
async def test_a_text_is_sorted_among_the_labels_of_the_request(expert: Served, text: str, topic: str) -> None:
    labels = list(TOPICS.values())
    for several in (False, True):
        out = await expert.ask("zero-shot-classification", {"text": text}, candidate_labels=labels, multi_label=several)
        assert out["text"] == topic
        assert {one["label"] for one in out["labels"]} == set(labels)
        assert out["labels"][0]["score"] > 0.5 > out["labels"][1]["score"]


async def test_people_and_places_are_found_where_they_stand(expert: Served) -> None:
    text = "Anna Schmidt lives in Berlin ."
    out = await expert.ask("token-classification", {"text": text})
    found = [(one["entity"], one["text"], one["start"], one["end"]) for one in out["entities"]]
    assert found == [("PER", "Anna Schmidt", 0, 12), ("LOC", "Berlin", 22, 28)]
    assert out["text"] == "PER: Anna Schmidt\nLOC: Berlin"


async def test_entities_of_a_long_text_are_found_once_each(expert: Served) -> None:
    text = " ".join([TAGGED[0]] * 40)
    out = await expert.ask("token-classification", {"text": text})
    expected = [start for start in range(len(text)) if text.startswith(("anna schmidt", "berlin"), start)]
    assert [one["start"] for one in out["entities"]] == expected
    assert {text[one["start"] : one["end"]] for one in out["entities"]} == {"anna schmidt", "berlin"}


@pytest.mark.parametrize(("question", "answer"), FACTS.items())
async def test_a_question_is_answered_by_a_stretch_of_the_text(expert: Served, question: str, answer: str) -> None:
    out = await expert.ask("question-answering", {"question": question, "context": CONTEXT})
    start = CONTEXT.index(answer)
    details = out["details"]
    assert out["text"] == details["answer"] == answer
    assert (details["start"], details["end"]) == (start, start + len(answer))
    assert details["score"] > 0.5


async def test_the_answer_is_found_far_into_a_long_text(expert: Served) -> None:
    context = "the soup is good . " * 60 + CONTEXT
    out = await expert.ask("question-answering", {"question": "where does anna live ?", "context": context})
    assert out["details"]["start"] == context.index("berlin")


async def test_a_text_that_does_not_say_gives_no_answer(expert: Served) -> None:
    question = "where does anna live ?"
    out = await expert.ask("question-answering", {"question": question, "context": "the soup is good ."})
    assert out["details"] == {"answer": "", "score": 0.0, "start": 0, "end": 0}
    assert out["text"] == "The text does not say."


@pytest.mark.parametrize("as_json", [False, True])
async def test_questions_about_a_table_are_answered_with_its_cells(expert: Served, *, as_json: bool) -> None:
    header, *rows = [line.split(",") for line in TABLE.split()]
    table = [dict(zip(header, row, strict=True)) for row in rows]
    sent = table if as_json else Media(TABLE.encode(), "text/csv", "cities.csv")
    answers = [
        (await expert.ask("table-question-answering", {"question": question, "table": sent}))
        for question in TABLE_QUESTIONS
    ]
    assert [out["text"] for out in answers] == ["2.1", "8.6", "3"]
    assert [out["details"]["aggregator"] for out in answers] == ["NONE", "SUM", "COUNT"]
    assert answers[1]["details"]["cells"] == ["3.7", "2.1", "2.8"]


@pytest.mark.parametrize("mask", ["[MASK]", "<mask>", "____"])
async def test_a_hidden_word_is_guessed(expert: Served, mask: str) -> None:
    for sentence, place in CLOZE.items():
        words = sentence.split()
        hidden = " ".join(mask if at == place else word for at, word in enumerate(words))
        out = await expert.ask("fill-mask", {"text": hidden}, top_k=3)
        assert out["text"] == words[place]
        assert out["predictions"][0]["sequence"] == sentence
        assert len(out["predictions"]) == 3


async def test_an_embedding_is_the_mean_of_the_models_last_layer(tiny: Tiny, expert: Served) -> None:
    out = await expert.ask("feature-extraction", {"text": "a good film"})
    folder = tiny.built("text", "tiny/embedder")
    batch = transformers.AutoTokenizer.from_pretrained(folder)("a good film", return_tensors="pt")
    with torch.inference_mode():
        mean = transformers.AutoModel.from_pretrained(folder)(**batch).last_hidden_state.mean(1)[0]
    assert out["embedding"] == pytest.approx((mean / mean.norm()).tolist(), abs=1e-5)


async def test_the_closest_text_is_the_text_itself(expert: Served) -> None:
    sentences = ["boil the soup", "a good film", "the minister won the election"]
    out = await expert.ask("sentence-similarity", {"text": "a good film", "sentences": sentences})
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
async def test_a_batch_gives_what_each_call_gives_alone(
    expert: Served, task: str, inputs: list[dict[str, Any]], parameters: dict[str, Any]
) -> None:
    alone = [await expert.ask(task, one, **parameters) for one in inputs]
    together = await asyncio.gather(*(expert.ask(task, one, **parameters) for one in inputs))
    assert list(together) == alone

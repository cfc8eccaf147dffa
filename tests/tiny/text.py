"""Tiny models of written language: those that read; the registry of all."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.tiny import Model
from tests.tiny.lessons import (
    CLOZE,
    CONTEXT,
    FACTS,
    NAMES,
    SENTIMENT,
    TABLE,
    TABLE_QUESTIONS,
    TAGGED,
    TAGS,
    TOPICS,
    words,
)
from tests.tiny.sizes import LENGTH, SIZES
from tests.tiny.training import taught
from tests.tiny.translators import many_translator, pair_translator
from tests.tiny.writers import rewriter, storyteller, summarizer, talker

_STILL: Mapping[str, Any] = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def _bert_tokenizer(folder: Path) -> Any:
    from transformers import BertTokenizer

    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words()]
    tokenizer = BertTokenizer(vocab={word: at for at, word in enumerate(vocabulary)}, model_max_length=LENGTH)
    tokenizer.save_pretrained(folder)
    return tokenizer


def _bert(kind: str, tokenizer: Any, **options: Any) -> Any:
    import torch
    import transformers

    torch.manual_seed(0)
    config = transformers.BertConfig(vocab_size=len(tokenizer), **SIZES, **_STILL, **options)
    return getattr(transformers, kind)(config)


def _labels(names: Sequence[str]) -> dict[str, Any]:
    return {"id2label": dict(enumerate(names)), "label2id": {name: at for at, name in enumerate(names)}}


def sentiment(folder: Path) -> None:
    """Tells positive from negative."""
    import torch

    tokenizer = _bert_tokenizer(folder)
    names = ["negative", "positive"]
    batch = tokenizer(list(SENTIMENT), padding=True, return_tensors="pt")
    labels = torch.tensor([names.index(label) for label in SENTIMENT.values()])
    model = _bert("BertForSequenceClassification", tokenizer, **_labels(names))
    taught(model, lambda model: model(**batch, labels=labels).loss).save_pretrained(folder)


def inference(folder: Path) -> None:
    """Knows which topic a text is about."""
    import torch

    tokenizer = _bert_tokenizer(folder)
    names = ["contradiction", "neutral", "entailment"]
    pairs = [
        (text, f"this example is {label} .", 2 * (topic == label))
        for text, topic in TOPICS.items()
        for label in TOPICS.values()
    ]
    batch = tokenizer([text for text, _, _ in pairs], [said for _, said, _ in pairs], padding=True, return_tensors="pt")
    labels = torch.tensor([label for _, _, label in pairs])
    model = _bert("BertForSequenceClassification", tokenizer, **_labels(names))
    taught(model, lambda model: model(**batch, labels=labels).loss).save_pretrained(folder)


def tagger(folder: Path) -> None:
    """Knows people and places."""
    import torch

    tokenizer = _bert_tokenizer(folder)
    texts = [*TAGGED, " ".join([TAGGED[0]] * 9), " ".join(["anna met", *[TAGGED[0]] * 9])]
    batch = tokenizer(texts, padding=True, return_tensors="pt")
    rows = [[NAMES.index(TAGS.get(token, "O")) for token in encoding.tokens] for encoding in batch.encodings]
    labels = torch.tensor(rows).masked_fill(batch["attention_mask"] == 0, -100)
    model = _bert("BertForTokenClassification", tokenizer, **_labels(NAMES))
    taught(model, lambda model: model(**batch, labels=labels).loss).save_pretrained(folder)


def answerer(folder: Path) -> None:
    """Knows where people live, if the text says so; else that it does not."""
    import torch

    tokenizer = _bert_tokenizer(folder)
    contexts = [CONTEXT] * len(FACTS) + ["the soup is good ."] * len(FACTS)
    batch = tokenizer([*FACTS] * 2, contexts, padding=True, return_tensors="pt")
    answers = [*FACTS.values()] * 2
    places = [
        row.tokens.index(answer) if answer in row.tokens else 0
        for row, answer in zip(batch.encodings, answers, strict=True)
    ]
    spots = torch.tensor(places)
    model = _bert("BertForQuestionAnswering", tokenizer)
    taught(model, lambda model: model(**batch, start_positions=spots, end_positions=spots).loss).save_pretrained(folder)


def guesser(folder: Path) -> None:
    """Knows the hidden words."""
    tokenizer = _bert_tokenizer(folder)
    batch = tokenizer(list(CLOZE), padding=True, return_tensors="pt")
    labels = batch["input_ids"].clone().fill_(-100)
    for row, place in enumerate(CLOZE.values()):
        labels[row, place + 1] = batch["input_ids"][row, place + 1].item()
        batch["input_ids"][row, place + 1] = tokenizer.mask_token_id
    model = _bert("BertForMaskedLM", tokenizer)
    taught(model, lambda model: model(**batch, labels=labels).loss).save_pretrained(folder)


def embedder(folder: Path) -> None:
    """Untaught: equal texts have equal vectors."""
    tokenizer = _bert_tokenizer(folder)
    _bert("BertModel", tokenizer).eval().save_pretrained(folder)
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling/config.json").write_text('{"pooling_mode_cls_token": false, "pooling_mode_mean_tokens": true}')
    (folder / "modules.json").write_text('[{"type": "sentence_transformers.models.Pooling"}]')
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 32}')


def untyped(folder: Path) -> None:
    """DistilBERT, which knows no types of tokens, with the tokenizer of BERT, which does; untaught."""
    import torch
    from transformers import DistilBertConfig, DistilBertForSequenceClassification

    torch.manual_seed(0)
    tokenizer = _bert_tokenizer(folder)
    sizes: Mapping[str, Any] = {"dim": 32, "n_layers": 1, "n_heads": 2, "hidden_dim": 64}
    config = DistilBertConfig(vocab_size=len(tokenizer), max_position_embeddings=LENGTH, **sizes)
    DistilBertForSequenceClassification(config).eval().save_pretrained(folder)


def table_reader(folder: Path) -> None:
    """Knows which cells answer the questions, and what is done with them."""
    import torch
    from pandas import DataFrame
    from transformers import TapasConfig, TapasForQuestionAnswering, TapasTokenizer

    torch.manual_seed(0)
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[EMPTY]", *words()]
    (folder / "vocab.txt").write_text("\n".join(vocabulary))
    tokenizer = TapasTokenizer(str(folder / "vocab.txt"), model_max_length=128)
    tokenizer.save_pretrained(folder)
    header, *rows = [line.split(",") for line in TABLE.split()]
    batch = tokenizer(
        table=DataFrame(rows, columns=header), queries=list(TABLE_QUESTIONS), padding="longest", return_tensors="pt"
    )
    columns, lines = batch["token_type_ids"][..., 1], batch["token_type_ids"][..., 2]
    wanted = torch.zeros(columns.shape, dtype=torch.long)
    for at, (cells, _) in enumerate(TABLE_QUESTIONS.values()):
        for row, column in cells:
            wanted[at][(lines[at] == row + 1) & (columns[at] == column + 1)] = 1
    chosen = torch.tensor([aggregator for _, aggregator in TABLE_QUESTIONS.values()])
    config = TapasConfig(
        vocab_size=len(vocabulary),
        **{**SIZES, "max_position_embeddings": 128},
        **_STILL,
        num_aggregation_labels=4,
        aggregation_labels={0: "NONE", 1: "SUM", 2: "AVERAGE", 3: "COUNT"},
    )

    taught(
        TapasForQuestionAnswering(config),
        lambda model: model(**batch, labels=wanted, aggregation_labels=chosen).loss,
        enough=0.2,
    ).save_pretrained(folder)


MODELS: Mapping[str, Model] = {
    "tiny/sentiment": Model(("text-classification",), sentiment),
    "tiny/distilbert": Model(("text-classification",), untyped),
    "tiny/inference": Model(("zero-shot-classification",), inference),
    "tiny/tagger": Model(("token-classification",), tagger),
    "tiny/answerer": Model(("question-answering",), answerer),
    "tiny/tapas": Model(("table-question-answering",), table_reader),
    "tiny/bart": Model(("summarization",), summarizer),
    "tiny/opus-mt-en-de": Model(("translation",), pair_translator),
    "tiny/m2m100": Model(("translation",), many_translator),
    "tiny/t5": Model(("text2text-generation",), rewriter),
    "tiny/story": Model(("text-generation", "conversational"), storyteller),
    "tiny/chat": Model(("conversational", "text-generation"), talker),
    "tiny/guesser": Model(("fill-mask",), guesser),
    "tiny/embedder": Model(("feature-extraction", "sentence-similarity"), embedder),
}

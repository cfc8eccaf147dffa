"""Tiny text models for understanding, and the registry of all tiny text models."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.tiny import TinyModel
from tests.tiny.model_sizes import MAX_TOKENS, SIZES
from tests.tiny.text_examples import (
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
    list_words,
)
from tests.tiny.text_generation import build_bart, build_causal_lm, build_chat_model, build_t5
from tests.tiny.training import train
from tests.tiny.translation import build_m2m100, build_marian

_NO_DROPOUT: Mapping[str, Any] = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def _save_bert_tokenizer(folder: Path) -> Any:
    from transformers import BertTokenizer

    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *list_words()]
    tokenizer = BertTokenizer(vocab={word: index for index, word in enumerate(vocabulary)}, model_max_length=MAX_TOKENS)
    tokenizer.save_pretrained(folder)
    return tokenizer


def _make_bert(model_class: str, tokenizer: Any, **options: Any) -> Any:
    import torch
    import transformers

    torch.manual_seed(0)
    config = transformers.BertConfig(vocab_size=len(tokenizer), **SIZES, **_NO_DROPOUT, **options)
    return getattr(transformers, model_class)(config)


def _label_config(names: Sequence[str]) -> dict[str, Any]:
    return {"id2label": dict(enumerate(names)), "label2id": {name: index for index, name in enumerate(names)}}


def build_sentiment(folder: Path) -> None:
    """Builds a BERT that classifies sentiment."""
    import torch

    tokenizer = _save_bert_tokenizer(folder)
    names = ["negative", "positive"]
    batch = tokenizer(list(SENTIMENT), padding=True, return_tensors="pt")
    labels = torch.tensor([names.index(label) for label in SENTIMENT.values()])
    model = _make_bert("BertForSequenceClassification", tokenizer, **_label_config(names))
    train(model, lambda model: model(**batch, labels=labels).loss).save_pretrained(folder)


def build_nli(folder: Path) -> None:
    """Builds a BERT for natural language inference about topics."""
    import torch

    tokenizer = _save_bert_tokenizer(folder)
    names = ["contradiction", "neutral", "entailment"]
    pairs = [
        (text, f"this example is {label} .", 2 * (topic == label))
        for text, topic in TOPICS.items()
        for label in TOPICS.values()
    ]
    batch = tokenizer(
        [text for text, _, _ in pairs], [hypothesis for _, hypothesis, _ in pairs], padding=True, return_tensors="pt"
    )
    labels = torch.tensor([label for _, _, label in pairs])
    model = _make_bert("BertForSequenceClassification", tokenizer, **_label_config(names))
    train(model, lambda model: model(**batch, labels=labels).loss).save_pretrained(folder)


def build_tagger(folder: Path) -> None:
    """Builds a BERT that finds people and places."""
    import torch

    tokenizer = _save_bert_tokenizer(folder)
    texts = [*TAGGED, " ".join([TAGGED[0]] * 9), " ".join(["anna met", *[TAGGED[0]] * 9])]
    batch = tokenizer(texts, padding=True, return_tensors="pt")
    rows = [[NAMES.index(TAGS.get(token, "O")) for token in encoding.tokens] for encoding in batch.encodings]
    labels = torch.tensor(rows).masked_fill(batch["attention_mask"] == 0, -100)
    model = _make_bert("BertForTokenClassification", tokenizer, **_label_config(NAMES))
    train(model, lambda model: model(**batch, labels=labels).loss).save_pretrained(folder)


def build_question_answering(folder: Path) -> None:
    """Builds a BERT that finds where people live, or that the text does not say it."""
    import torch

    tokenizer = _save_bert_tokenizer(folder)
    contexts = [CONTEXT] * len(FACTS) + ["the soup is good ."] * len(FACTS)
    batch = tokenizer([*FACTS] * 2, contexts, padding=True, return_tensors="pt")
    answers = [*FACTS.values()] * 2
    positions = [
        row.tokens.index(answer) if answer in row.tokens else 0
        for row, answer in zip(batch.encodings, answers, strict=True)
    ]
    positions_tensor = torch.tensor(positions)
    model = _make_bert("BertForQuestionAnswering", tokenizer)
    train(
        model, lambda model: model(**batch, start_positions=positions_tensor, end_positions=positions_tensor).loss
    ).save_pretrained(folder)


def build_fill_mask(folder: Path) -> None:
    """Builds a BERT that predicts masked words."""
    tokenizer = _save_bert_tokenizer(folder)
    batch = tokenizer(list(CLOZE), padding=True, return_tensors="pt")
    labels = batch["input_ids"].clone().fill_(-100)
    for row, position in enumerate(CLOZE.values()):
        labels[row, position + 1] = batch["input_ids"][row, position + 1].item()
        batch["input_ids"][row, position + 1] = tokenizer.mask_token_id
    model = _make_bert("BertForMaskedLM", tokenizer)
    train(model, lambda model: model(**batch, labels=labels).loss).save_pretrained(folder)


def build_embedder(folder: Path) -> None:
    """Builds an untrained BERT: equal texts have equal vectors."""
    tokenizer = _save_bert_tokenizer(folder)
    _make_bert("BertModel", tokenizer).eval().save_pretrained(folder)
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling/config.json").write_text('{"pooling_mode_cls_token": false, "pooling_mode_mean_tokens": true}')
    (folder / "modules.json").write_text('[{"type": "sentence_transformers.models.Pooling"}]')
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 32}')


def build_distilbert(folder: Path) -> None:
    """Builds an untrained DistilBERT, which has no token types, with BERT's tokenizer, which has."""
    import torch
    from transformers import DistilBertConfig, DistilBertForSequenceClassification

    torch.manual_seed(0)
    tokenizer = _save_bert_tokenizer(folder)
    sizes: Mapping[str, Any] = {"dim": 32, "n_layers": 1, "n_heads": 2, "hidden_dim": 64}
    config = DistilBertConfig(vocab_size=len(tokenizer), max_position_embeddings=MAX_TOKENS, **sizes)
    DistilBertForSequenceClassification(config).eval().save_pretrained(folder)


def build_tapas(folder: Path) -> None:
    """Builds a TAPAS that selects cells and an aggregation."""
    import torch
    from pandas import DataFrame
    from transformers import TapasConfig, TapasForQuestionAnswering, TapasTokenizer

    torch.manual_seed(0)
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[EMPTY]", *list_words()]
    (folder / "vocab.txt").write_text("\n".join(vocabulary))
    tokenizer = TapasTokenizer(str(folder / "vocab.txt"), model_max_length=128)
    tokenizer.save_pretrained(folder)
    header, *rows = [line.split(",") for line in TABLE.split()]
    batch = tokenizer(
        table=DataFrame(rows, columns=header), queries=list(TABLE_QUESTIONS), padding="longest", return_tensors="pt"
    )
    columns, lines = batch["token_type_ids"][..., 1], batch["token_type_ids"][..., 2]
    labels = torch.zeros(columns.shape, dtype=torch.long)
    for row_index, (cells, _) in enumerate(TABLE_QUESTIONS.values()):
        for row, column in cells:
            labels[row_index][(lines[row_index] == row + 1) & (columns[row_index] == column + 1)] = 1
    aggregations = torch.tensor([aggregator for _, aggregator in TABLE_QUESTIONS.values()])
    config = TapasConfig(
        vocab_size=len(vocabulary),
        **{**SIZES, "max_position_embeddings": 128},
        **_NO_DROPOUT,
        num_aggregation_labels=4,
        aggregation_labels={0: "NONE", 1: "SUM", 2: "AVERAGE", 3: "COUNT"},
    )

    train(
        TapasForQuestionAnswering(config),
        lambda model: model(**batch, labels=labels, aggregation_labels=aggregations).loss,
        target_loss=0.2,
    ).save_pretrained(folder)


MODELS: Mapping[str, TinyModel] = {
    "tiny/sentiment": TinyModel(("text-classification",), build_sentiment),
    "tiny/distilbert": TinyModel(("text-classification",), build_distilbert),
    "tiny/inference": TinyModel(("zero-shot-classification",), build_nli),
    "tiny/tagger": TinyModel(("token-classification",), build_tagger),
    "tiny/answerer": TinyModel(("question-answering",), build_question_answering),
    "tiny/tapas": TinyModel(("table-question-answering",), build_tapas),
    "tiny/bart": TinyModel(("summarization",), build_bart),
    "tiny/opus-mt-en-de": TinyModel(("translation",), build_marian),
    "tiny/m2m100": TinyModel(("translation",), build_m2m100),
    "tiny/t5": TinyModel(("text2text-generation",), build_t5),
    "tiny/story": TinyModel(("text-generation", "conversational"), build_causal_lm),
    "tiny/chat": TinyModel(("conversational", "text-generation"), build_chat_model),
    "tiny/guesser": TinyModel(("fill-mask",), build_fill_mask),
    "tiny/embedder": TinyModel(("feature-extraction", "sentence-similarity"), build_embedder),
}

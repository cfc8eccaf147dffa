"""Tiny translation models."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.tiny.model_sizes import MAX_TOKENS, SEQ2SEQ
from tests.tiny.text_examples import TRANSLATIONS, list_words
from tests.tiny.training import encode_pairs, train


def _train_sentencepiece(folder: Path, name: str, texts: Sequence[str], **options: Any) -> None:
    """Trains a sentencepiece model of whole words and letters."""
    import sentencepiece

    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(list(texts) * 8),
        model_prefix=str(folder / name),
        vocab_size=120,
        hard_vocab_limit=False,
        character_coverage=1.0,
        minloglevel=2,
        **options,
    )


def _all_texts() -> list[str]:
    return [*list_words(), *(text for pairs in TRANSLATIONS.values() for pair in pairs.items() for text in pair)]


def build_marian(folder: Path) -> None:
    """Builds a Marian, from English to German."""
    import sentencepiece
    import torch
    from transformers import MarianConfig, MarianMTModel, MarianTokenizer

    torch.manual_seed(0)
    for name in ("source", "target"):
        _train_sentencepiece(folder, name, _all_texts())
    (folder / "source.model").rename(folder / "source.spm")
    (folder / "target.model").rename(folder / "target.spm")
    engine = sentencepiece.SentencePieceProcessor(str(folder / "source.spm"))
    pieces = [engine.id_to_piece(index) for index in range(engine.get_piece_size())]
    vocabulary = ["</s>", "<unk>", *(piece for piece in pieces if piece not in {"<s>", "</s>", "<unk>"}), "<pad>"]
    (folder / "vocab.json").write_text(json.dumps({word: index for index, word in enumerate(vocabulary)}))
    tokenizer = MarianTokenizer(
        str(folder / "source.spm"),
        str(folder / "target.spm"),
        str(folder / "vocab.json"),
        source_lang="en",
        target_lang="de",
        model_max_length=MAX_TOKENS,
    )
    tokenizer.save_pretrained(folder)
    pad = tokenizer.pad_token_id
    config = MarianConfig(
        vocab_size=len(vocabulary),
        decoder_vocab_size=len(vocabulary),
        **SEQ2SEQ,
        pad_token_id=pad,
        decoder_start_token_id=pad,
        eos_token_id=0,
        bos_token_id=None,
        forced_eos_token_id=None,
        scale_embedding=True,
    )
    batch, labels = encode_pairs(tokenizer, TRANSLATIONS["de"])
    train(MarianMTModel(config), lambda model: model(**batch, labels=labels).loss).save_pretrained(folder)


def build_m2m100(folder: Path) -> None:
    """Builds an M2M100, from English to German and French."""
    import sentencepiece
    import torch
    from transformers import M2M100Config, M2M100ForConditionalGeneration, M2M100Tokenizer

    torch.manual_seed(0)
    _train_sentencepiece(folder, "sentencepiece.bpe", _all_texts())
    spm = folder / "sentencepiece.bpe.model"
    engine = sentencepiece.SentencePieceProcessor(str(spm))
    pieces = [engine.id_to_piece(index) for index in range(engine.get_piece_size())]
    vocabulary = [
        "<s>",
        "<pad>",
        "</s>",
        "<unk>",
        *(piece for piece in pieces if piece not in {"<s>", "</s>", "<unk>"}),
    ]
    (folder / "vocab.json").write_text(json.dumps({word: index for index, word in enumerate(vocabulary)}))
    tokenizer = M2M100Tokenizer(str(folder / "vocab.json"), str(spm), src_lang="en", model_max_length=MAX_TOKENS)
    tokenizer.save_pretrained(folder)
    config = M2M100Config(
        vocab_size=len(vocabulary) + 108,
        **SEQ2SEQ,
        attention_dropout=0.0,
        activation_dropout=0.0,
        encoder_layerdrop=0.0,
        decoder_layerdrop=0.0,
    )
    batches = []
    for target, pairs in TRANSLATIONS.items():
        tokenizer.tgt_lang = target
        batch, labels = encode_pairs(tokenizer, pairs)
        starts = torch.nn.functional.pad(labels[:, :-1], (1, 0), value=tokenizer.eos_token_id)
        batches.append({**batch, "decoder_input_ids": starts.masked_fill(starts == -100, 1), "labels": labels.clone()})
        batches[-1]["labels"][:, 0] = -100  # the language token is given, not predicted

    def loss(model: Any) -> Any:
        return sum(model(**batch).loss for batch in batches)

    train(M2M100ForConditionalGeneration(config), loss).save_pretrained(folder)

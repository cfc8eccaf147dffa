"""Tiny models that translate."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.tiny.lessons import TRANSLATIONS, words
from tests.tiny.sizes import LENGTH, SEQ2SEQ
from tests.tiny.training import lesson, taught


def _pieces(folder: Path, name: str, texts: Sequence[str], **options: Any) -> None:
    """A sentencepiece model of whole words and letters."""
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
    return [*words(), *(text for pairs in TRANSLATIONS.values() for pair in pairs.items() for text in pair)]


def pair_translator(folder: Path) -> None:
    """Marian, from English into German."""
    import sentencepiece
    import torch
    from transformers import MarianConfig, MarianMTModel, MarianTokenizer

    torch.manual_seed(0)
    for name in ("source", "target"):
        _pieces(folder, name, _all_texts())
    (folder / "source.model").rename(folder / "source.spm")
    (folder / "target.model").rename(folder / "target.spm")
    engine = sentencepiece.SentencePieceProcessor(str(folder / "source.spm"))
    own = [engine.id_to_piece(at) for at in range(engine.get_piece_size())]
    words = ["</s>", "<unk>", *(piece for piece in own if piece not in {"<s>", "</s>", "<unk>"}), "<pad>"]
    (folder / "vocab.json").write_text(json.dumps({word: at for at, word in enumerate(words)}))
    tokenizer = MarianTokenizer(
        str(folder / "source.spm"),
        str(folder / "target.spm"),
        str(folder / "vocab.json"),
        source_lang="en",
        target_lang="de",
        model_max_length=LENGTH,
    )
    tokenizer.save_pretrained(folder)
    pad = tokenizer.pad_token_id
    config = MarianConfig(
        vocab_size=len(words),
        decoder_vocab_size=len(words),
        **SEQ2SEQ,
        pad_token_id=pad,
        decoder_start_token_id=pad,
        eos_token_id=0,
        bos_token_id=None,
        forced_eos_token_id=None,
        scale_embedding=True,
    )
    batch, labels = lesson(tokenizer, TRANSLATIONS["de"])
    taught(MarianMTModel(config), lambda model: model(**batch, labels=labels).loss).save_pretrained(folder)


def many_translator(folder: Path) -> None:
    """M2M100, from English into German and French."""
    import sentencepiece
    import torch
    from transformers import M2M100Config, M2M100ForConditionalGeneration, M2M100Tokenizer

    torch.manual_seed(0)
    _pieces(folder, "sentencepiece.bpe", _all_texts())
    spm = folder / "sentencepiece.bpe.model"
    engine = sentencepiece.SentencePieceProcessor(str(spm))
    own = [engine.id_to_piece(at) for at in range(engine.get_piece_size())]
    words = ["<s>", "<pad>", "</s>", "<unk>", *(piece for piece in own if piece not in {"<s>", "</s>", "<unk>"})]
    (folder / "vocab.json").write_text(json.dumps({word: at for at, word in enumerate(words)}))
    tokenizer = M2M100Tokenizer(str(folder / "vocab.json"), str(spm), src_lang="en", model_max_length=LENGTH)
    tokenizer.save_pretrained(folder)
    config = M2M100Config(
        vocab_size=len(words) + 108,
        **SEQ2SEQ,
        attention_dropout=0.0,
        activation_dropout=0.0,
        encoder_layerdrop=0.0,
        decoder_layerdrop=0.0,
    )
    lessons = []
    for target, pairs in TRANSLATIONS.items():
        tokenizer.tgt_lang = target
        batch, labels = lesson(tokenizer, pairs)
        starts = torch.nn.functional.pad(labels[:, :-1], (1, 0), value=tokenizer.eos_token_id)
        lessons.append({**batch, "decoder_input_ids": starts.masked_fill(starts == -100, 1), "labels": labels.clone()})
        lessons[-1]["labels"][:, 0] = -100  # which language is not for the model to guess

    def loss(model: Any) -> Any:
        return sum(model(**one).loss for one in lessons)

    taught(M2M100ForConditionalGeneration(config), loss).save_pretrained(folder)

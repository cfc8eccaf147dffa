"""Made-up vocabularies for the classes of tokenizers that the repositories name."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import sentencepiece
import transformers
from transformers.convert_slow_tokenizer import bytes_to_unicode

from tests.tiny.text_examples import TEMPLATE
from tests.tiny.vision import save_clip_tokenizer
from tests.tiny.vision_language import make_tokenizer

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_BERT = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_ROBERTA = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")


def save_tokenizer(class_name: str, folder: Path) -> None:
    """Saves a tokenizer of a class of transformers with a few letters."""
    kind = getattr(transformers, class_name)
    _WRITERS[class_name](kind, folder)


def _word_pieces(kind: Any, folder: Path) -> None:
    vocabulary = _numbered(*_BERT, *_LETTERS, *(f"##{letter}" for letter in _LETTERS), *"0123456789.,?")
    kind(vocab=vocabulary, model_max_length=512).save_pretrained(folder)


def _tapas(kind: Any, folder: Path) -> None:
    path = folder / "vocab.txt"
    path.write_text("\n".join((*_BERT, "[EMPTY]", *_LETTERS, *(f"##{letter}" for letter in _LETTERS))))
    kind(str(path), model_max_length=512).save_pretrained(folder)


def _bytes(*special: str, **options: str) -> Callable[[Any, Path], None]:
    def save(kind: Any, folder: Path) -> None:
        vocabulary = _numbered(*special, *bytes_to_unicode().values())
        kind(vocab=vocabulary, merges=[], model_max_length=512, **options).save_pretrained(folder)

    return save


def _pieces(*special: str) -> Callable[[Any, Path], None]:
    def save(kind: Any, folder: Path) -> None:
        letters = (*_LETTERS, *(f"▁{letter}" for letter in _LETTERS), "▁")
        pieces = [(piece, 0.0) for piece in special] + [(letter, -2.0) for letter in letters]
        kind(vocab=pieces, model_max_length=512).save_pretrained(folder)

    return save


def _characters(kind: Any, folder: Path) -> None:
    path = folder / "vocab.json"
    path.write_text(json.dumps(_numbered("<pad>", "<s>", "</s>", "<unk>", "|", "-", "'", *_LETTERS.upper())))
    kind(str(path)).save_pretrained(folder)


def _vits(kind: Any, folder: Path) -> None:
    path = folder / "vocab.json"
    path.write_text(json.dumps(_numbered(*_LETTERS, "-", "'", " ", "<unk>")))
    kind(str(path), pad_token="a", phonemize=False, is_uroman=False).save_pretrained(folder)


def _whisper(kind: Any, folder: Path) -> None:
    tokenizer = kind(vocab=_numbered(*bytes_to_unicode().values(), "<|endoftext|>"), merges=[])
    languages = [f"<|{language}|>" for language in ("en", "de", "fr")]
    tasks = ["<|translate|>", "<|transcribe|>", "<|startoflm|>", "<|startofprev|>", "<|nospeech|>", "<|notimestamps|>"]
    tokenizer.add_special_tokens({"extra_special_tokens": ["<|startoftranscript|>", *languages, *tasks]})
    tokenizer.add_tokens([f"<|{step * 0.02:.2f}|>" for step in range(1501)])
    tokenizer.save_pretrained(folder)


def _train_pieces(folder: Path, name: str) -> Path:
    text = [f"{letter}{other} {other}" for letter in _LETTERS for other in _LETTERS]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text),
        model_prefix=str(folder / name),
        vocab_size=64,
        minloglevel=2,
        hard_vocab_limit=False,
    )
    (folder / f"{name}.vocab").unlink()
    return folder / f"{name}.model"


def _siglip(kind: Any, folder: Path) -> None:
    kind(str(_train_pieces(folder, "spiece")), model_max_length=64).save_pretrained(folder)


def _m2m100(kind: Any, folder: Path) -> None:
    pieces = _train_pieces(folder, "sentencepiece.bpe")
    path = folder / "vocab.json"
    path.write_text(json.dumps(_numbered("<s>", "<pad>", "</s>", "<unk>", "▁", *_LETTERS)))
    kind(str(path), str(pieces), src_lang="en").save_pretrained(folder)


def _letters(*special: str) -> Callable[[Any, Path], None]:
    tiles = [f"<row_{row}_col_{column}>" for row in range(1, 5) for column in range(1, 5)]
    images = ("<fake_token_around_image>", "<global-img>", "<end_of_utterance>", *tiles)

    def save(_kind: Any, folder: Path) -> None:
        tokenizer = make_tokenizer("<image>", "<image>", *images, *special)
        tokenizer.add_tokens([f"<loc_{index}>" for index in range(10)])
        tokenizer.save_pretrained(folder)

    return save


def _bytes_only(kind: Any, folder: Path) -> None:
    kind().save_pretrained(folder)


def _clip(_kind: Any, folder: Path) -> None:
    save_clip_tokenizer(folder)


def _numbered(*tokens: str) -> dict[str, int]:
    return {token: number for number, token in enumerate(dict.fromkeys(tokens))}


_WRITERS: Mapping[str, Callable[[Any, Path], None]] = {
    "BartTokenizer": _bytes(*_ROBERTA),
    "BertTokenizer": _word_pieces,
    "CLIPTokenizer": _clip,
    "DebertaV2Tokenizer": _pieces("[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"),
    "DiaTokenizer": _bytes_only,
    "DistilBertTokenizer": _word_pieces,
    "GPT2Tokenizer": _letters("<doctag>", "</doctag>"),
    "M2M100Tokenizer": _m2m100,
    "PreTrainedTokenizerFast": _letters(),
    "Qwen2Tokenizer": _bytes(
        *("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>"),
        "<|video_pad|>",
        chat_template=TEMPLATE,
    ),
    "RobertaTokenizer": _bytes(*_ROBERTA),
    "SiglipTokenizer": _siglip,
    "T5Tokenizer": _pieces("<pad>", "</s>", "<unk>"),
    "T5TokenizerFast": _pieces("<pad>", "</s>", "<unk>"),
    "TapasTokenizer": _tapas,
    "VitsTokenizer": _vits,
    "Wav2Vec2CTCTokenizer": _characters,
    "WhisperTokenizer": _whisper,
    "XLMRobertaTokenizer": _pieces("<s>", "<pad>", "</s>", "<unk>"),
}

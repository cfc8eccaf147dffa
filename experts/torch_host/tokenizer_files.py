"""Prefers a repository's tokenizer.json to what transformers makes of it.

Some classes of transformers build their tokenizer anew from the vocabulary, and lose what the file states besides, such
as byte fallback. Transformers corrects some repositories by their name on the Hub, which it does not see here.
"""

from pathlib import Path
from typing import Any

import structlog

log = structlog.get_logger(__name__)

TOKENIZER_FILE = "tokenizer.json"
_PROBES = (
    "Hello, world! It's 3.14159 e-mails\n\tand  two  spaces... naïve café ＦＵＬＬ",
    "Größe 10 000 €, ¿qué tal? Привет, мир! 你好，世界。 こんにちは 안녕하세요 مرحبا שלום नमस्ते สวัสดี",
    "🦙👩‍👩‍👧 𓀀 ∑∞ ‽ ꙮ <unk> </s> a\u00a0b \u200b c",
)
"""Texts in several scripts, with rare characters, digits and spaces."""


def prefer_file(tokenizer: Any, folder: Path) -> Any:
    """Returns the tokenizer, or that of tokenizer.json if they divide texts differently.

    Tokenizers without tokenizer.json, and those that do not use the library tokenizers, are returned unchanged. Of a
    processor, its tokenizer is replaced.
    """
    inner = getattr(tokenizer, "tokenizer", None)
    if inner is not None:
        tokenizer.tokenizer = prefer_file(inner, folder)
        return tokenizer
    file = folder / TOKENIZER_FILE
    if not file.is_file() or not hasattr(tokenizer, "backend_tokenizer") or _is_equal(tokenizer, file):
        return tokenizer
    from transformers import TokenizersBackend

    log.warning("tokenizer.json is used instead of the tokenizer class", tokenizer=type(tokenizer).__name__)
    return TokenizersBackend.from_pretrained(folder, local_files_only=True)


def _is_equal(tokenizer: Any, file: Path) -> bool:
    from tokenizers import Tokenizer

    stated = Tokenizer.from_file(str(file))
    stated.no_truncation()
    stated.no_padding()
    return all(
        tokenizer(text, add_special_tokens=False, truncation=False)["input_ids"]
        == stated.encode(text, add_special_tokens=False).ids
        for text in _PROBES
    )

"""Parses a chunk of a streamed answer, in the variants of known servers."""

from dataclasses import dataclass
from typing import Any

from openai.types.chat import ChatCompletionChunk

from services.llm.text import replace_surrogates

MAX_TOKEN_COUNT = 2**31
"""Larger token counts are ignored."""

MAX_MODEL_NAME_LENGTH = 200
"""Longer model names are truncated to this many characters."""

_PROGRESS_FIELDS = ("content", "reasoning_content", "reasoning")


@dataclass(frozen=True, slots=True)
class ChunkContent:
    """Content of one chunk.

    Args:
        text: of the answer, without reasoning.
        model: name of the answering model; empty if missing.
        finish: finish reason; empty if the answer continues.
        has_progress: the chunk contains text or reasoning.
        tokens: of prompt and answer so far; None if missing or invalid.
    """

    text: str
    model: str
    finish: str
    has_progress: bool
    tokens: tuple[int, int] | None


def parse_chunk(chunk: ChatCompletionChunk) -> ChunkContent:
    """Parses a chunk; the openai package does not check its types, so wrong types raise any error of reading them."""
    choice = chunk.choices[0] if chunk.choices else None
    delta = choice.delta.to_dict(warnings=False) if choice and choice.delta else {}
    return ChunkContent(
        text=_text(delta.get("content")),
        model=replace_surrogates(str(chunk.model or ""))[:MAX_MODEL_NAME_LENGTH],
        finish=str(choice.finish_reason or "") if choice else "",
        has_progress=any(delta.get(name) for name in _PROGRESS_FIELDS),
        tokens=_tokens(chunk.usage),
    )


def _text(content: Any) -> str:
    """Returns the text of `content`: a string, or a list of parts, some of which are reasoning."""
    if isinstance(content, list):
        return "".join(_text(part["text"]) for part in content if part["type"] == "text")
    if not isinstance(content, str | None):
        raise TypeError("content must be a string or a list of parts")
    return content or ""


def _tokens(usage: Any) -> tuple[int, int] | None:
    prompt, completion = (_count(getattr(usage, f"{kind}_tokens", None)) for kind in ("prompt", "completion"))
    return None if prompt is None or completion is None else (prompt, completion)


def _count(number: Any) -> int | None:
    return number if isinstance(number, int) and 0 <= number < MAX_TOKEN_COUNT else None

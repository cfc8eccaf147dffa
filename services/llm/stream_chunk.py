"""What one chunk of a streamed answer says, in any of the forms that servers give it."""

from dataclasses import dataclass
from typing import Any

from openai.types.chat import ChatCompletionChunk

from services.llm.text import whole

MOST_TOKENS = 2**31
"""A count beyond it is none."""

LONGEST_MODEL = 200
"""Characters kept of a model's name."""

_SIGNS_OF_LIFE = ("content", "reasoning_content", "reasoning")


@dataclass(frozen=True, slots=True)
class Said:
    """One chunk.

    Args:
        text: of the answer, thoughts apart.
        model: that answers; empty if it does not say.
        finish: why the answer ends here; empty if it does not.
        alive: text or thoughts came.
        tokens: of prompt and answer so far, if it counts them.
    """

    text: str
    model: str
    finish: str
    alive: bool
    tokens: tuple[int, int] | None


def said(chunk: ChatCompletionChunk) -> Said:
    """Reads a chunk; the openai package has checked no type in it, so it may raise what reading a wrong one raises."""
    choice = chunk.choices[0] if chunk.choices else None
    delta = choice.delta.to_dict(warnings=False) if choice and choice.delta else {}
    return Said(
        text=_text(delta.get("content")),
        model=whole(str(chunk.model or ""))[:LONGEST_MODEL],
        finish=str(choice.finish_reason or "") if choice else "",
        alive=any(delta.get(name) for name in _SIGNS_OF_LIFE),
        tokens=_tokens(chunk.usage),
    )


def _text(content: Any) -> str:
    """A text, or a list of parts of which some are thoughts."""
    if isinstance(content, list):
        return "".join(_text(part["text"]) for part in content if part["type"] == "text")
    if not isinstance(content, str | None):
        raise TypeError("content is a text")
    return content or ""


def _tokens(usage: Any) -> tuple[int, int] | None:
    taken, given = (_count(getattr(usage, f"{whose}_tokens", None)) for whose in ("prompt", "completion"))
    return None if taken is None or given is None else (taken, given)


def _count(number: Any) -> int | None:
    return number if isinstance(number, int) and 0 <= number < MOST_TOKENS else None

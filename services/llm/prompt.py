"""Prompts: texts with named slots, data that cannot leave its place, and pieces fitted to a budget of tokens."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Generic, Self, TypeVar

from services.llm.messages import Message

T = TypeVar("T")


@dataclass(frozen=True)
class Prompt:
    """A text of sections `# system`, `# user`, `# assistant`, in which `{{name}}` are slots."""

    slots: frozenset[str]

    @classmethod
    def read(cls, path: Path | Traversable) -> Self:
        """Reads a prompt.md.

        Raises:
            ValueError: a heading is none of the three, text stands before the first, or a slot is malformed.
        """
        raise NotImplementedError

    def filled(self, **slots: str) -> list[Message]:
        """One message per section; what fills a slot is never searched for slots.

        Raises:
            ValueError: a slot is missing, or there is no such slot.
        """
        raise NotImplementedError


def nonce() -> str:
    """A fresh random token for the data of one prompt."""
    raise NotImplementedError


def quoted(name: str, text: str, nonce: str) -> str:
    """The text between two lines that name it; whatever in it looks like such a line is defused.

    Args:
        name: what it is: letters, digits, dashes: "request", "result-3".
        text: of a user or a tool.
        nonce: of this prompt.
    """
    raise NotImplementedError


@dataclass(frozen=True)
class Part(Generic[T]):
    """A piece of a prompt that may be left out.

    Args:
        piece: what it is to the caller.
        text: as it stands in the prompt.
        value: the greater, the later it is dropped.
    """

    piece: T
    text: str
    value: float


@dataclass(frozen=True)
class Fitted(Generic[T]):
    """What found room.

    Args:
        kept: in the order they were given.
        cut: those that did not fit, in that order.
        tokens: of what is kept.
    """

    kept: tuple[Part[T], ...]
    cut: tuple[Part[T], ...]
    tokens: int


def fitted(parts: Sequence[Part[T]], budget: int, count: Callable[[str], int]) -> Fitted[T]:
    """Keeps the most valuable parts that fit in the budget; of equal ones the later (the newer).

    Args:
        parts: in the order of the prompt.
        budget: tokens.
        count: tokens of a text, as LLM.tokens.
    """
    raise NotImplementedError

"""Prompts: texts with named slots, data that cannot leave its place, and pieces fitted to a budget of tokens."""

import hashlib
import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Generic, Self, TypeVar, get_args

from services.llm.messages import Message, Role

T = TypeVar("T")

_HEADING = re.compile(r"^# +(\S.*?) *$", re.MULTILINE)
_SLOT = re.compile(r"\{\{([a-z][a-z0-9_]*)\}\}")
_OPENING = re.compile(r"\{\{(?![a-z][a-z0-9_]*\}\})")
_NAME = re.compile(r"[A-Za-z0-9-]+")

_DELIMITER = re.compile(r"[<＜﹤‹〈](?=\s*[/／]?\s*data\b)", re.IGNORECASE)
_TEMPLATE = re.compile(
    r"[<\[](?=[|｜][^\n]{1,40}?>|\w{1,40}[|｜]>|/?s>|<?/?SYS>|/?(?:start|end)_of_turn>"
    r"|/?(?:bos|eos|think|tools?|tool_call|tool_response)>|(?:unused|extra_id_|reserved_)\d{1,4}>"
    r"|/?(?:INST|THINK|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS)\])",
    re.IGNORECASE,
)
"""What chat templates mark turns with: some servers read it inside messages too."""


@dataclass(frozen=True)
class Prompt:
    """A text of sections `# system`, `# user`, `# assistant`, in which `{{name}}` are slots."""

    sections: tuple[Message, ...]
    slots: frozenset[str]
    version: str = ""
    """Of its text, as a decision names it."""

    @classmethod
    def read(cls, path: Path | Traversable) -> Self:
        """Reads a prompt.md.

        Raises:
            ValueError: a heading is none of the three, text stands before the first, or a slot is malformed.
        """
        text = path.read_text(encoding="utf-8")
        before, *parts = _HEADING.split(text)
        if before.strip() or not parts:
            raise ValueError(f"{path.name}: a prompt begins with # system, # user or # assistant")
        if _OPENING.search(text):
            raise ValueError(f"{path.name}: a slot is written {{{{name}}}}, in small letters, digits and _")
        sections = tuple(
            Message(_role(name, path.name), body.strip()) for name, body in zip(parts[::2], parts[1::2], strict=True)
        )
        return cls(sections, frozenset(_SLOT.findall(text)), version_of(text.encode()))

    def filled(self, **slots: str) -> list[Message]:
        """One message per section; what fills a slot is never searched for slots.

        Raises:
            ValueError: a slot is missing, or there is no such slot.
        """
        if wrong := self.slots ^ slots.keys():
            raise ValueError(f"slots missing or unknown: {', '.join(sorted(wrong))}")
        return [
            Message(section.role, _SLOT.sub(lambda slot: slots[slot[1]], section.content)) for section in self.sections
        ]


def version_of(*texts: bytes) -> str:
    """How a decision names the prompt that these make."""
    digest = hashlib.sha256()
    for text in texts:
        digest.update(len(text).to_bytes(8) + text)
    return f"prompt:{digest.hexdigest()[:16]}"


def nonce() -> str:
    """A fresh random token for the data of one prompt."""
    return secrets.token_hex(8)


def quoted(name: str, text: str, nonce: str) -> str:
    """The text between two lines that name it; whatever in it looks like such a line, or like a turn, is defused.

    Args:
        name: what it is: letters, digits, dashes: "request", "result-3".
        text: of a user or a tool.
        nonce: of this prompt.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f"not a name for data: {name}")
    return f'<data name="{name}" id="{nonce}">\n{defused(text.replace(nonce, " "))}\n</data id="{nonce}">'


def defused(text: str) -> str:
    """The text as it stands in a prompt: it may be longer."""
    return _TEMPLATE.sub("&lt;", _DELIMITER.sub("&lt;", text))


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
    chosen, spent = set[int](), 0
    for place in sorted(range(len(parts)), key=lambda place: (-parts[place].value, -place)):
        if spent >= budget:
            break
        tokens = count(parts[place].text)
        if spent + tokens <= budget:
            chosen.add(place)
            spent += tokens
    kept = tuple(part for place, part in enumerate(parts) if place in chosen)
    cut = tuple(part for place, part in enumerate(parts) if place not in chosen)
    return Fitted(kept, cut, spent)


def _role(name: str, file: str) -> Role:
    for role in get_args(Role):
        if name == role:
            return role  # type: ignore[no-any-return]  # get_args forgets what a Literal holds
    raise ValueError(f"{file}: there is no role {name}; deeper headings begin with ##")

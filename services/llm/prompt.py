"""Prompts: messages, templates, and quotation of untrusted data."""

import hashlib
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Literal, Self, get_args

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
"""Control tokens of chat templates; some servers interpret them inside messages, too."""


Role = Literal["system", "user", "assistant"]


@dataclass(frozen=True)
class Message:
    """One message of a prompt."""

    role: Role
    content: str
    images: tuple[str, ...] = ()
    """Data URLs of the images that precede the text; only for models with vision."""


@dataclass(frozen=True)
class Schema:
    """JSON schema of an answer.

    Args:
        name: letters, digits and dashes, such as "plan".
        json_schema: of the complete answer.
        is_from_client: its refusal says nothing about the endpoint's support of schemas.
    """

    name: str
    json_schema: Mapping[str, Any]
    is_from_client: bool = False


@dataclass(frozen=True)
class Prompt:
    """A template of sections `# system`, `# user`, `# assistant`, in which `{{name}}` are slots."""

    sections: tuple[Message, ...]
    slots: frozenset[str]
    version: str = ""
    """Hash of the text, recorded in decisions."""

    @classmethod
    def read(cls, path: Path | Traversable) -> Self:
        """Reads a template file.

        Raises:
            ValueError: an unknown heading, text before the first heading, or a malformed slot.
        """
        text = path.read_text(encoding="utf-8")
        before, *parts = _HEADING.split(text)
        if before.strip() or not parts:
            raise ValueError(f"{path.name}: a prompt must start with # system, # user or # assistant")
        if _OPENING.search(text):
            raise ValueError(f"{path.name}: a slot must be {{{{name}}}} with lower-case letters, digits and _")
        sections = tuple(
            Message(_role(name, path.name), body.strip()) for name, body in zip(parts[::2], parts[1::2], strict=True)
        )
        return cls(sections, frozenset(_SLOT.findall(text)), prompt_version(text.encode()))

    def render(self, **slots: str) -> list[Message]:
        """Fills the slots and returns one message per section; slots inside inserted text are not filled.

        Raises:
            ValueError: a slot is missing or unknown.
        """
        if wrong := self.slots ^ slots.keys():
            raise ValueError(f"slots missing or unknown: {', '.join(sorted(wrong))}")
        return [
            Message(section.role, _SLOT.sub(lambda slot: slots[slot[1]], section.content)) for section in self.sections
        ]


def prompt_version(*texts: bytes) -> str:
    """Returns the version string of a prompt that consists of these texts, as recorded in decisions."""
    digest = hashlib.sha256()
    for text in texts:
        digest.update(len(text).to_bytes(8) + text)
    return f"prompt:{digest.hexdigest()[:16]}"


def nonce() -> str:
    """Returns a random token that delimits the data of one prompt."""
    return secrets.token_hex(8)


def quote_data(name: str, text: str, nonce: str) -> str:
    """Encloses untrusted text in delimiter lines; delimiters and control tokens inside it are escaped.

    Args:
        name: of the data, such as "request" or "result-3": letters, digits and dashes.
        text: from a user or a tool.
        nonce: of this prompt.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f"invalid name of quoted data: {name}. Use letters, digits and dashes.")
    return f'<data name="{name}" id="{nonce}">\n{escape_markers(text.replace(nonce, " "))}\n</data id="{nonce}">'


def escape_markers(text: str) -> str:
    """Escapes data delimiters and control tokens of chat templates; the result may be longer than the text."""
    return _TEMPLATE.sub("&lt;", _DELIMITER.sub("&lt;", text))


def _role(name: str, file: str) -> Role:
    for role in get_args(Role):
        if name == role:
            return role  # type: ignore[no-any-return]  # get_args loses the type of the Literal's values
    raise ValueError(f"{file}: unknown role {name}. Use ## for deeper headings.")


def replace_surrogates(text: str) -> str:
    """Joins surrogate pairs, and replaces lone surrogates, which UTF-8 cannot encode, by U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")

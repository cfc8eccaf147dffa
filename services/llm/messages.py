"""What an endpoint is told."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Role = Literal["system", "user", "assistant"]


@dataclass(frozen=True)
class Message:
    """One message of a prompt."""

    role: Role
    content: str


@dataclass(frozen=True)
class Schema:
    """What an answer must look like.

    Args:
        name: letters, digits, dashes: "plan", "choice".
        json_schema: of the whole answer.
    """

    name: str
    json_schema: Mapping[str, Any]

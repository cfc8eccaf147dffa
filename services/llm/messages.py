"""Messages of a prompt, and the schema of its answer."""

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
    """JSON schema of an answer.

    Args:
        name: letters, digits and dashes, such as "plan".
        json_schema: of the complete answer.
    """

    name: str
    json_schema: Mapping[str, Any]

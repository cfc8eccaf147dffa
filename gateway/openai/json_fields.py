"""Typed access to the fields of JSON objects. Null counts as absent; unknown fields are ignored."""

from collections.abc import Iterator, Mapping
from typing import Any

from gateway.json_text import checked_text, refuse


class Fields:
    """Fields of a JSON object.

    Every method raises InvalidRequest, which names the field, if its type is wrong.
    """

    def __init__(self, content: Any, where: str = "") -> None:
        if not isinstance(content, dict):
            refuse(where, "is not a JSON object", remedy="send an object")
        self._content: Mapping[str, Any] = content
        self.where = where

    def __contains__(self, name: str) -> bool:
        return self._content.get(name) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self._content)

    def get(self, name: str) -> Any:
        """The value of a field; None if absent."""
        return self._content.get(name)

    def text(self, name: str, default: str = "") -> str:
        return checked_text(self._content[name], self.place(name)) if name in self else default

    def flag(self, name: str) -> bool | None:
        """The value of a boolean field; None if absent."""
        value = self._content.get(name)
        if value is not None and not isinstance(value, bool):
            refuse(self.place(name), "is not true or false", remedy="send true or false")
        return value

    def map(self, name: str) -> "Fields":
        """The object in a field; empty if absent."""
        return Fields(self._content[name] if name in self else {}, self.place(name))

    def maps(self, name: str) -> Iterator["Fields"]:
        for index, item in enumerate(self.items(name)):
            yield Fields(item, f"{self.place(name)}[{index}]")

    def items(self, name: str) -> list[Any]:
        value = self._content.get(name)
        if value is not None and not isinstance(value, list):
            refuse(self.place(name), "is not a list", remedy="send a list")
        return value or []

    def place(self, name: str) -> str:
        return f"{self.where}.{name}" if self.where else name

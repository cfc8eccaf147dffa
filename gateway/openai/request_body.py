"""Reads request bodies: JSON that may contain files, with typed access to its fields."""

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

from starlette.requests import Request

from gateway.http.json_body import content_length, read_limited
from gateway.json_text import INLINE_PARSE_BYTES, checked_text, loads, refuse
from services.common.errors import InvalidRequest


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


BODY_BYTES = 50_000_000
"""Size limit of a body, which is in memory several times while it is parsed."""


async def body(request: Request) -> Fields:
    """Reads the body as a JSON object.

    Raises:
        InvalidRequest: CONTENT_TYPE, TOO_LARGE, or invalid JSON.
    """
    content_type = request.headers.get("content-type", "")
    if content_type.partition(";")[0].strip().lower() != "application/json":
        raise InvalidRequest(
            f"the body has the type {content_type[:100] or '(none)'}",
            reason="CONTENT_TYPE",
            remedy="send application/json",
        )
    if content_length(request) > BODY_BYTES:
        raise InvalidRequest(
            f"the body is larger than the limit of {BODY_BYTES / 1e6:g} MB",
            reason="TOO_LARGE",
            remedy="upload files with POST /v1/files and send their ids",
        )
    content = await read_limited(request.stream(), BODY_BYTES, "the body")
    if len(content) > INLINE_PARSE_BYTES:
        return Fields(await asyncio.to_thread(loads, content))
    return Fields(loads(content))

"""JSON bodies of requests and responses: reading within a size limit, and writing."""

from collections.abc import AsyncIterable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from gateway.json_encoder import dumps
from services.common.errors import InvalidRequest

JSON_BYTES = 8_000_000
"""Maximum size of a JSON body."""


def content_length(request: Request) -> int:
    """Stated length of the body; 0 if none is stated."""
    stated = request.headers.get("content-length", "")
    return int(stated) if stated.isascii() and stated.isdecimal() else 0


async def read_limited(body: AsyncIterable[bytes], limit: int, what: str) -> bytes:
    """Reads a body or a part of it.

    Args:
        body: its chunks.
        limit: maximum size in bytes.
        what: its name in the error.

    Raises:
        InvalidRequest: TOO_LARGE.
    """
    content = bytearray()
    async for chunk in body:
        content += chunk
        if len(content) > limit:
            raise too_large_error(what, limit)
    return bytes(content)


def too_large_error(what: str, limit: int) -> InvalidRequest:
    """The error for a body or part larger than a limit in bytes."""
    return InvalidRequest(
        f"{what} is larger than the limit of {limit / 1e6:g} MB",
        reason="TOO_LARGE",
        remedy="send long texts as files and smaller files, or ask the operator to raise the limit",
    )


def json_response(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A response with JSON content."""
    return Response(dumps(content), status, headers, "application/json")

"""Reads request bodies: JSON that may contain files."""

import asyncio

from starlette.requests import Request

from gateway.http.run_request import read_limited
from gateway.json_text import INLINE_PARSE_BYTES, loads
from gateway.openai.json_fields import Fields
from services.common.errors import InvalidRequest

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
    length = request.headers.get("content-length", "")
    if length.isascii() and length.isdecimal() and int(length) > BODY_BYTES:
        raise InvalidRequest(
            f"the body is larger than the limit of {BODY_BYTES / 1e6:g} MB",
            reason="TOO_LARGE",
            remedy="upload files with POST /v1/files and send their ids",
        )
    content = await read_limited(request.stream(), BODY_BYTES, "the body")
    if len(content) > INLINE_PARSE_BYTES:
        return Fields(await asyncio.to_thread(loads, content))
    return Fields(loads(content))

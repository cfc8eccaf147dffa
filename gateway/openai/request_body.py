"""Bodies of OpenAI's requests: JSON that may carry files."""

import asyncio

from starlette.requests import Request

from gateway.json_text import INLINE_PARSE_BYTES, loads
from gateway.openai.json_fields import Fields
from gateway.run_request import read_limited
from services.common.errors import InvalidRequest

BODY_BYTES = 50_000_000
"""Longest body: it is in memory several times while it is read."""


async def body(request: Request) -> Fields:
    """What was sent.

    Raises:
        InvalidRequest: CONTENT_TYPE, TOO_LARGE, or what is wrong with it.
    """
    kind = request.headers.get("content-type", "")
    if kind.partition(";")[0].strip().lower() != "application/json":
        raise InvalidRequest(
            f"the body is {kind[:100] or 'of no stated type'}", reason="CONTENT_TYPE", remedy="send application/json"
        )
    stated = request.headers.get("content-length", "")
    if stated.isascii() and stated.isdecimal() and int(stated) > BODY_BYTES:
        raise InvalidRequest(
            f"the body is larger than the limit of {BODY_BYTES / 1e6:g} MB",
            reason="TOO_LARGE",
            remedy="send files to POST /v1/files, and their ids here",
        )
    content = await read_limited(request.stream(), BODY_BYTES, "the body")
    if len(content) > INLINE_PARSE_BYTES:
        return Fields(await asyncio.to_thread(loads, content))
    return Fields(loads(content))

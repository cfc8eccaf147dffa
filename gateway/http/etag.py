"""JSON responses with an ETag and conditional requests."""

from functools import cached_property
from hashlib import sha256

from starlette.requests import Request
from starlette.responses import Response


class CacheableJson:
    """JSON content with an ETag computed from its bytes."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    @cached_property
    def tag(self) -> str:
        return f'"{sha256(self._content).hexdigest()[:32]}"'

    def response(self, request: Request) -> Response:
        """Returns the content, or 304 Not Modified if the client has this version."""
        headers = {"etag": self.tag, "cache-control": "private, no-cache"}
        known = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
        if self.tag in known or known == ["*"]:
            return Response(status_code=304, headers=headers)
        return Response(self._content, headers=headers, media_type="application/json")

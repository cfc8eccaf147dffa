"""JSON that is sent once to whoever keeps it."""

from functools import cached_property
from hashlib import sha256

from starlette.requests import Request
from starlette.responses import Response


class Tagged:
    """JSON with a tag of its own: another one as soon as anything in it is."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    @cached_property
    def tag(self) -> str:
        return f'"{sha256(self._content).hexdigest()[:32]}"'

    def response(self, request: Request) -> Response:
        """All of it, or word that the client has it."""
        headers = {"etag": self.tag, "cache-control": "private, no-cache"}
        known = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
        if self.tag in known or known == ["*"]:
            return Response(status_code=304, headers=headers)
        return Response(self._content, headers=headers, media_type="application/json")

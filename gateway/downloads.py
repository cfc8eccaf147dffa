"""Artifacts as HTTP gives them: whole, in parts or not at all, and never as something a browser would run."""

import asyncio
import re
from typing import Annotated

from fastapi import APIRouter, Path, Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from gateway import reference
from gateway.status import OutOfRange
from services.runtime import caller
from services.runtime.artifacts import ArtifactStore
from services.runtime.artifacts.giving import describing
from services.runtime.errors import NotFound

_RANGE = re.compile(r"bytes=(\d{1,18})?-(\d{1,18})?")

_HEADERS = {
    "cache-control": "private, no-cache",
    "content-security-policy": "script-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'",
}

Digest = Annotated[str, Path(description="The artifact's SHA-256.", examples=["9f86d081884c7d65…"])]


class Downloads:
    """GET and HEAD /v1/artifacts/{sha256}."""

    def __init__(self, store: ArtifactStore) -> None:
        self._store = store

    def router(self) -> APIRouter:
        router = APIRouter(prefix="/v1/artifacts", tags=["artifacts"], default_response_class=Response)
        router.add_api_route("/{sha256}", self.artifact, methods=["GET"], **reference.ARTIFACT)
        router.add_api_route("/{sha256}", self.artifact, methods=["HEAD"], include_in_schema=False)
        return router

    async def artifact(self, sha256: Digest, request: Request) -> Response:
        """The bytes of an artifact.

        Parts by `Range`, nothing new by `If-None-Match`. What a browser could run is sent as a file to save.
        """
        known = await self._store.head(caller.current().tenant, sha256)
        headers = {**_HEADERS, **describing(known), "etag": f'"{sha256}"'}
        if _matches(request.headers.get("if-none-match", ""), sha256):
            return Response(status_code=304, headers=headers)
        path = self._store.path(caller.current().tenant, sha256)
        if path is None:
            headers["content-length"] = str(known.size_bytes)
            return StreamingResponse(self._store.stream(caller.current().tenant, sha256), headers=headers)
        try:
            found = await asyncio.to_thread(path.stat)
        except OSError as error:
            message = f"there is no artifact {sha256}"
            raise NotFound(message, reason="ARTIFACT", remedy="send the file again") from error
        return _LocalFile(path, headers=headers, media_type=headers["content-type"], stat_result=found)


def _matches(sent: str, sha256: str) -> bool:
    tags = [tag.strip().removeprefix("W/") for tag in sent.split(",")]
    return f'"{sha256}"' in tags or tags == ["*"]


class _LocalFile(FileResponse):
    """Sends one range, or all: other wishes about ranges may be ignored, and are."""

    chunk_size = 1024 * 1024

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        wished = [value.decode("latin-1") for name, value in scope["headers"] if name == b"range"]
        if not self._can_send(wished):
            headers = [(name, value) for name, value in scope["headers"] if name != b"range"]
            scope = {**scope, "headers": headers}
        await super().__call__(scope, receive, send)

    def _can_send(self, wished: list[str]) -> bool:
        asked = _RANGE.fullmatch(wished[0].strip()) if len(wished) == 1 else None
        if not asked or not any(asked.groups()):
            return False
        size = int(self.headers["content-length"])
        first, last = asked[1], int(asked[2] or size)
        if (int(first) >= size) if first else (not last or not size):
            raise OutOfRange("the part asked for lies outside", remedy=f"ask within its {size} bytes")
        return not first or int(first) <= last

"""Artifacts as HTTP gives them: whole, in parts or not at all, and never as something a browser would run."""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Path, Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from gateway.auth import identity
from gateway.auth.signed_links import HOLDER
from gateway.http.problem import OutOfRange
from gateway.openapi import document, examples
from gateway.openapi.schemas import DIGEST_PATTERN
from protos.hugginggpt.v1.artifact_pb2 import Artifact
from services.common import call_context
from services.common.artifacts import ArtifactStore
from services.common.artifacts.naming import download_headers
from services.common.errors import NotFound

LASTING = timedelta(minutes=2)
"""How long a URL of the object store may be used for."""

_RANGE = re.compile(r"bytes=(\d{1,18})?-(\d{1,18})?")

_HEADERS = {
    "cache-control": "private, no-cache",
    "content-security-policy": "script-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'",
}

Digest = Annotated[
    str,
    Path(
        description="The artifact's SHA-256.",
        examples=[examples.ARTIFACT["sha256"]],
        json_schema_extra={"pattern": DIGEST_PATTERN},
    ),
]


class Downloads:
    """GET and HEAD /v1/artifacts/{sha256}.

    Args:
        store: where they are.
        presign: clients can reach the object store themselves, and are sent there.
    """

    def __init__(self, store: ArtifactStore, *, presign: bool = True) -> None:
        self._store = store
        self._presign = presign

    def router(self) -> APIRouter:
        router = APIRouter(prefix="/v1/artifacts", tags=["artifacts"], default_response_class=Response)
        router.add_api_route("/{sha256}", self.artifact, methods=["GET"], **document.ARTIFACT)
        router.add_api_route("/{sha256}", self.artifact, methods=["HEAD"], include_in_schema=False)
        return router

    async def artifact(self, sha256: Digest, request: Request) -> Response:
        """The bytes of an artifact.

        Parts by `Range`, nothing new by `If-None-Match`. What a browser could run is sent as a file to save. Where the
        artifacts are in an object store, the answer may be a redirect there, good for two minutes.
        """
        tenant = call_context.current().tenant
        known = await self._store.head(tenant, sha256)
        headers = {
            **_HEADERS,
            **download_headers(known),
            "etag": f'"{sha256}"',
            "cross-origin-resource-policy": _embedders(),
        }
        if _matches(request.headers.get("if-none-match", ""), sha256):
            return Response(status_code=304, headers=headers)
        path = self._store.path(tenant, sha256)
        if path is None:
            elsewhere = await self._elsewhere(tenant, known, request)
            return elsewhere or await self._passed_on(tenant, known, request, headers)
        try:
            found = await asyncio.to_thread(path.stat)
        except OSError as error:
            message = f"there is no artifact {sha256}"
            raise NotFound(message, reason="ARTIFACT", remedy="send the file again") from error
        return _LocalFile(path, headers=headers, media_type=headers["content-type"], stat_result=found)

    async def _elsewhere(self, tenant: str, known: Artifact, request: Request) -> Response | None:
        """Sends the client to the object store; but not a page, whose policy lets it load from here alone."""
        of_a_page = request.headers.get("sec-fetch-mode", "navigate") != "navigate"
        if not self._presign or of_a_page or request.method != "GET":
            return None
        url = await self._store.presigned_url(tenant, known.sha256, LASTING)
        return Response(status_code=307, headers={"location": url, "cache-control": "no-store"}) if url else None

    async def _passed_on(self, tenant: str, known: Artifact, request: Request, headers: Mapping[str, str]) -> Response:
        size = known.size_bytes
        part = _wished(request.headers, known) if request.method == "GET" else None
        start, length = part or (0, size)
        sent = {**headers, "accept-ranges": "bytes", "content-length": str(length)}
        if part:
            sent["content-range"] = f"bytes {start}-{start + length - 1}/{size}"
        if request.method == "HEAD":
            return Response(headers=sent)
        content = self._store.stream(tenant, known.sha256, start=start, length=length)
        first = await anext(content, b"")  # what fails at once is told with its own status
        return StreamingResponse(_joined(first, content), 206 if part else 200, sent)


def _embedders() -> str:
    """Whose pages may show it: an address that is signed is made for pages elsewhere."""
    return "cross-origin" if identity.current().key_id == HOLDER else "same-site"


async def _joined(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for piece in rest:
        yield piece


def _matches(sent: str, sha256: str) -> bool:
    tags = [tag.strip().removeprefix("W/") for tag in sent.split(",")]
    return f'"{sha256}"' in tags or tags == ["*"]


def _wished(headers: Mapping[str, str], known: Artifact) -> tuple[int, int] | None:
    """First byte and length of the part asked for; None for all of it."""
    condition = headers.get("if-range")
    if condition is not None and condition != f'"{known.sha256}"':
        return None
    return _part(headers.get("range", ""), known.size_bytes)


def _part(wish: str, size: int) -> tuple[int, int] | None:
    """The one range that a header names; other wishes about ranges may be ignored, and are.

    Raises:
        OutOfRange: it lies outside.
    """
    asked = _RANGE.fullmatch(wish.strip())
    if not asked or not any(asked.groups()):
        return None
    first, last = asked[1], min(int(asked[2] or size), size)
    if (int(first) >= size) if first else (not last):
        raise OutOfRange("the part asked for lies outside", remedy=f"ask within its {size} bytes")
    if not first:
        return size - last, last
    if asked[2] and int(asked[2]) < int(first):
        return None
    return int(first), min(last, size - 1) - int(first) + 1


class _LocalFile(FileResponse):
    """Sends one range, or all."""

    chunk_size = 1024 * 1024

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        wished = [value.decode("latin-1") for name, value in scope["headers"] if name == b"range"]
        if len(wished) != 1 or not _part(wished[0], int(self.headers["content-length"])):
            headers = [(name, value) for name, value in scope["headers"] if name != b"range"]
            scope = {**scope, "headers": headers}
        await super().__call__(scope, receive, send)

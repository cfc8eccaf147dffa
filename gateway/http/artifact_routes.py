"""Artifacts over HTTP: upload of many files, download of whole files and byte ranges, never executable in a browser."""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from gateway.auth import identity
from gateway.auth.signed_links import LINK_KEY_ID
from gateway.core.uploads import Allowance, store_file
from gateway.http.multipart import Part, parts, require_form
from gateway.http.problem import RangeNotSatisfiable, problem
from gateway.json_encoder import dumps, encode
from gateway.openapi import examples, operations
from gateway.openapi.schemas import DIGEST_PATTERN
from protos.hugginggpt.v1.artifact_pb2 import Artifact
from services.common import call_context
from services.common.artifacts import ArtifactStore
from services.common.artifacts.downloads import download_headers
from services.common.errors import InvalidRequest, NotFound

PRESIGNED_URL_LIFETIME = timedelta(minutes=2)
"""Lifetime of a presigned object store URL."""

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


def request_site(request: Request) -> str:
    """Returns scheme and host of this gateway as the client sent them, for the URLs of artifacts."""
    return str(request.base_url).rstrip("/")


class ArtifactRoutes:
    """Uploads artifacts, and serves them by their digest.

    Args:
        store: artifact store.
        upload_bytes: maximum total size of the files of one upload.
        presign: redirect clients to the object store; requires that they can reach it.
    """

    def __init__(self, store: ArtifactStore, upload_bytes: int, *, presign: bool = True) -> None:
        self._store = store
        self._upload_bytes = upload_bytes
        self._presign = presign

    def router(self) -> APIRouter:
        router = APIRouter(prefix="/v1/artifacts", tags=["artifacts"], default_response_class=Response)
        router.add_api_route("", self.upload_artifacts, methods=["POST"], **operations.UPLOAD_ARTIFACTS)
        router.add_api_route("/{sha256}", self.download_artifact, methods=["GET"], **operations.DOWNLOAD)
        router.add_api_route("/{sha256}", self.download_artifact, methods=["HEAD"], include_in_schema=False)
        return router

    async def upload_artifacts(self, request: Request) -> Response:
        """Stores up to 256 files of one request; each becomes an artifact or, alone, an error.

        Meant for the inputs of a batch. Unlike `POST /v1/files` it creates no file: an artifact that no run, batch or
        file refers to is deleted after a day.
        """
        content_type = require_form(request.headers.get("content-type", ""))
        allowance = Allowance(self._upload_bytes)
        uploads = [await self._upload(part, allowance) async for part in parts(content_type, request.stream())]
        if not uploads:
            raise InvalidRequest("the form contains no file", remedy="send each file in a field file", port="file")
        return Response(dumps({"object": "list", "data": uploads}), media_type="application/json")

    async def _upload(self, part: Part, allowance: Allowance) -> dict[str, Any]:
        if part.name != "file" or not part.filename:
            raise InvalidRequest(
                f"the form has an unknown field {part.name[:100]!r}",
                reason="UNKNOWN_FIELD",
                remedy="send each file in a field file, with its file name",
            )
        tenant = call_context.current().tenant
        try:
            artifact = await store_file(
                self._store, tenant, part.filename, part.content, allowance, stated_type=part.media_type
            )
        except InvalidRequest as error:
            return {"error": problem(error)}
        return {"artifact": encode(artifact)}

    async def download_artifact(
        self,
        sha256: Digest,
        request: Request,
        tenant: Annotated[str, Query(description="Of a signed link: the tenant that owns the artifact.")] = "",  # noqa: ARG002
        expires: Annotated[str, Query(description="Of a signed link: Unix time of its end.")] = "",  # noqa: ARG002
        signature: Annotated[str, Query(description="Of a signed link: its signature, which replaces the key.")] = "",  # noqa: ARG002
    ) -> Response:
        """Returns the bytes of an artifact.

        Supports `Range` and `If-None-Match`. Content that a browser could execute is sent as an attachment. With an
        object store, the response may be a redirect to a URL that is valid for two minutes.
        """
        return await self.response(sha256, request)  # the link signer has read the parameters of a signed link

    async def response(self, sha256: str, request: Request) -> Response:
        """Returns the artifact, a part of it, or a redirect to it, as the request's headers say."""
        tenant = call_context.current().tenant
        artifact = await self._store.head(tenant, sha256)
        headers = {
            **_HEADERS,
            **download_headers(artifact),
            "etag": f'"{sha256}"',
            "cross-origin-resource-policy": _resource_policy(),
        }
        if _matches(request.headers.get("if-none-match", ""), sha256):
            return Response(status_code=304, headers=headers)
        path = self._store.path(tenant, sha256)
        if path is None:
            redirect = await self._redirect(tenant, artifact, request)
            return redirect or await self._proxy(tenant, artifact, request, headers)
        try:
            stat_result = await asyncio.to_thread(path.stat)
        except OSError as error:
            message = f"there is no artifact {sha256}"
            raise NotFound(message, reason="ARTIFACT", remedy="check the digest, or upload the file again") from error
        return _LocalFile(path, headers=headers, media_type=headers["content-type"], stat_result=stat_result)

    async def _redirect(self, tenant: str, artifact: Artifact, request: Request) -> Response | None:
        """Redirects to the object store; not pages, which may only load from this origin."""
        is_page_request = request.headers.get("sec-fetch-mode", "navigate") != "navigate"
        if not self._presign or is_page_request or request.method != "GET":
            return None
        url = await self._store.presigned_url(tenant, artifact.sha256, PRESIGNED_URL_LIFETIME)
        return Response(status_code=307, headers={"location": url, "cache-control": "no-store"}) if url else None

    async def _proxy(self, tenant: str, artifact: Artifact, request: Request, headers: Mapping[str, str]) -> Response:
        size = artifact.size_bytes
        byte_range = _requested_range(request.headers, artifact) if request.method == "GET" else None
        start, length = byte_range or (0, size)
        response_headers = {**headers, "accept-ranges": "bytes", "content-length": str(length)}
        if byte_range:
            response_headers["content-range"] = f"bytes {start}-{start + length - 1}/{size}"
        if request.method == "HEAD":
            return Response(headers=response_headers)
        content = self._store.stream(tenant, artifact.sha256, start=start, length=length)
        first = await anext(content, b"")  # an error before the first byte still gets its own status
        return StreamingResponse(_prepend(first, content), 206 if byte_range else 200, response_headers)


def _resource_policy() -> str:
    """Value of Cross-Origin-Resource-Policy: signed links may be embedded by pages of other sites."""
    return "cross-origin" if identity.current().key_id == LINK_KEY_ID else "same-site"


async def _prepend(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for piece in rest:
        yield piece


def _matches(if_none_match: str, sha256: str) -> bool:
    tags = [tag.strip().removeprefix("W/") for tag in if_none_match.split(",")]
    return f'"{sha256}"' in tags or tags == ["*"]


def _requested_range(headers: Mapping[str, str], artifact: Artifact) -> tuple[int, int] | None:
    """First byte and length of the requested range; None for the whole artifact."""
    condition = headers.get("if-range")
    if condition is not None and condition != f'"{artifact.sha256}"':
        return None
    return _parse_range(headers.get("range", ""), artifact.size_bytes)


def _parse_range(range_header: str, size: int) -> tuple[int, int] | None:
    """Parses a header with one range; returns None for several or invalid ranges, which HTTP allows to ignore.

    Raises:
        RangeNotSatisfiable: the range is outside the content.
    """
    match = _RANGE.fullmatch(range_header.strip())
    if not match or not any(match.groups()):
        return None
    first, last = match[1], min(int(match[2] or size), size)
    if (int(first) >= size) if first else (not last):
        raise RangeNotSatisfiable(
            "the requested range is outside the artifact", remedy=f"request a range within its {size} bytes"
        )
    if not first:
        return size - last, last
    if match[2] and int(match[2]) < int(first):
        return None
    return int(first), min(last, size - 1) - int(first) + 1


class _LocalFile(FileResponse):
    """Sends one byte range or the whole file; starlette's multipart/byteranges responses are not used."""

    chunk_size = 1024 * 1024

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        ranges = [value.decode("latin-1") for name, value in scope["headers"] if name == b"range"]
        if len(ranges) != 1 or not _parse_range(ranges[0], int(self.headers["content-length"])):
            headers = [(name, value) for name, value in scope["headers"] if name != b"range"]
            scope = {**scope, "headers": headers}
        await super().__call__(scope, receive, send)

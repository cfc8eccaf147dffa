"""Routes for uploads with a single-use token."""

from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from starlette.responses import Response

from gateway.auth.identity import CallerFactory, identified_as
from gateway.core.files import FileService, StoredFile
from gateway.core.uploads import Allowance, store_file
from gateway.http.file_routes import file_object
from gateway.http.json_body import json_response
from gateway.http.multipart import is_form, parts
from gateway.limits.quotas import Meter, Quotas
from gateway.mcp.upload_tokens import UploadToken, UploadTokens
from gateway.openapi import examples
from gateway.openapi.operations import answer
from protos.hugginggpt.v1.artifact_pb2 import Artifact
from services.common.artifacts import ArtifactStore
from services.common.call_context import current, use_caller
from services.common.errors import InvalidRequest

PATH = "/mcp/uploads"

RETENTION_SECONDS = 24 * 3600.0
"""Retention of an upload; a file that a run uses is kept as long as the run."""

Secret = Annotated[str, Path(description="From the tool `upload`.", examples=["q0aXkyvTn1lJrAhmVUc5PpZ3CwEoSgBd"])]


_FILE = {
    "id": "file_5d1c2f8e7a9b40d3c6e1f2a3",
    "object": "file",
    "bytes": 88244,
    "created_at": 1900000000,
    "expires_at": 1900086400,
    "filename": "speech.wav",
    "purpose": "user_data",
    "status": "processed",
    "artifact": examples.ARTIFACT,
}
_UPLOAD: dict[str, Any] = {
    "responses": {200: answer("The stored file.", "File", _FILE)},
    "openapi_extra": {
        "requestBody": {
            "required": True,
            "content": {
                "application/octet-stream": {
                    "schema": {"type": "string", "format": "binary"},
                    "example": "(bytes of speech.wav)",
                }
            },
        }
    },
}


class UploadRoutes:
    """PUT and POST /mcp/uploads/{secret}.

    Args:
        tokens: valid upload tokens.
        files: stored files.
        store: artifact store.
        callers: creates the caller that owns the file.
        quotas: counts the bytes.
        upload_bytes: size limit of a file.
    """

    def __init__(
        self,
        tokens: UploadTokens,
        files: FileService,
        store: ArtifactStore,
        callers: CallerFactory,
        quotas: Quotas,
        *,
        upload_bytes: int,
    ) -> None:
        self._tokens = tokens
        self._files = files
        self._store = store
        self._callers = callers
        self._quotas = quotas
        self._upload_bytes = upload_bytes

    def router(self) -> APIRouter:
        router = APIRouter(prefix=PATH, tags=["files"], default_response_class=Response)
        router.add_api_route("/{secret}", self.upload, methods=["PUT"], **_UPLOAD)
        router.add_api_route("/{secret}", self.upload, methods=["POST"], **_UPLOAD)
        return router

    async def upload(self, secret: Secret, request: Request) -> Response:
        """Stores a file for one day, without an API key, at a single-use URL from the MCP tool `upload`.

        The body is the file, or a form with one file.
        """
        token = await self._tokens.redeem(secret)
        with identified_as(token.identity), use_caller(self._callers.create(current().request_id)):
            stored = await self._store_file(token, request)
        return json_response(file_object(stored))

    async def _store_file(self, token: UploadToken, request: Request) -> StoredFile:
        meter = self._quotas.meter(token.identity)
        try:
            artifact = await self._artifact(token.name, request, _metered(request.stream(), meter))
        finally:
            if meter:
                await meter.flush()
        return await self._files.add(artifact, "user_data", RETENTION_SECONDS)

    async def _artifact(self, name: str, request: Request, body: AsyncIterator[bytes]) -> Artifact:
        content_type = request.headers.get("content-type", "")
        if not is_form(content_type):
            return await self._keep(name, body, content_type)
        async for part in parts(content_type, body):
            if part.filename:
                return await self._keep(name or part.filename, part.content, part.media_type)
            break
        remedy = "send the file as the body (curl -T picture.png) or in a form (curl -F file=@picture.png)"
        raise InvalidRequest("the form has no file", remedy=remedy, port="file")

    async def _keep(self, name: str, content: AsyncIterator[bytes], stated_type: str) -> Artifact:
        allowance = Allowance(self._upload_bytes)
        return await store_file(self._store, current().tenant, name, content, allowance, stated_type=stated_type)


async def _metered(body: AsyncIterator[bytes], meter: Meter | None) -> AsyncIterator[bytes]:
    async for chunk in body:
        if meter and chunk:
            await meter.add(len(chunk))
        yield chunk

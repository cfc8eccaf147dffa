"""Where files go for which a tool has given leave."""

from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from starlette.responses import Response

from gateway.auth.caller import CallerFactory
from gateway.auth.identity import identified_as
from gateway.http.file_routes import file_object
from gateway.http.multipart import is_form, parts
from gateway.http.run_routes import json_response
from gateway.limits.quotas import Meter, Quotas
from gateway.mcp.upload_tokens import Grant, Grants
from gateway.openapi import examples
from gateway.openapi.document import answer
from gateway.stored_files.files import Files, StoredFile
from gateway.uploads import Allowance, store_file
from protos.hugginggpt.v1.artifact_pb2 import Artifact
from services.common.artifacts import ArtifactStore
from services.common.call_context import current, use_caller
from services.common.errors import InvalidRequest

PATH = "/mcp/uploads"

KEPT_SECONDS = 24 * 3600.0
"""How long what an agent has uploaded is kept; what a run has used is kept as long as the run."""

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
    "responses": {200: answer("It is kept.", "File", _FILE)},
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
        grants: who may.
        files: those kept.
        store: where their bytes go.
        callers: make the caller on whose behalf a file is kept.
        quotas: count its bytes.
        upload_bytes: most bytes of one.
    """

    def __init__(
        self,
        grants: Grants,
        files: Files,
        store: ArtifactStore,
        callers: CallerFactory,
        quotas: Quotas,
        *,
        upload_bytes: int,
    ) -> None:
        self._grants = grants
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
        """Keeps a file for a day, without a key: once, at a URL that the MCP tool `upload` has given.

        The body is the file, or a form with one.
        """
        grant = await self._grants.take(secret)
        with identified_as(grant.identity), use_caller(self._callers.create(current().request_id)):
            kept = await self._kept(grant, request)
        return json_response(file_object(kept))

    async def _kept(self, grant: Grant, request: Request) -> StoredFile:
        meter = self._quotas.meter(grant.identity)
        try:
            artifact = await self._artifact(grant.name, request, _metered(request.stream(), meter))
        finally:
            if meter:
                await meter.flush()
        return await self._files.add(artifact, "user_data", KEPT_SECONDS)

    async def _artifact(self, name: str, request: Request, body: AsyncIterator[bytes]) -> Artifact:
        kind = request.headers.get("content-type", "")
        if not is_form(kind):
            return await self._keep(name, body, kind)
        async for part in parts(kind, body):
            if part.filename:
                return await self._keep(name or part.filename, part.content, part.media_type)
            break
        remedy = "send the file as the body, as curl does with -T picture.png, or as -F file=@picture.png"
        raise InvalidRequest("there is no file in the form", remedy=remedy, port="file")

    async def _keep(self, name: str, content: AsyncIterator[bytes], stated_type: str) -> Artifact:
        allowance = Allowance(self._upload_bytes)
        return await store_file(self._store, current().tenant, name, content, allowance, stated_type=stated_type)


async def _metered(body: AsyncIterator[bytes], meter: Meter | None) -> AsyncIterator[bytes]:
    async for chunk in body:
        if meter and chunk:
            await meter.add(len(chunk))
        yield chunk

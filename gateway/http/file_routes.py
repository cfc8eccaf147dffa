"""Routes of /v1/files, compatible with OpenAI's files API; each file also names its artifact."""

import re
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from gateway.core.files import FileQuery, FileService, StoredFile
from gateway.core.uploads import Allowance, store_file
from gateway.http.artifact_routes import ArtifactRoutes
from gateway.http.json_body import read_limited
from gateway.http.multipart import parts, require_form
from gateway.json_encoder import dumps, encode
from gateway.openapi import examples, operations
from protos.hugginggpt.v1.artifact_pb2 import Artifact
from services.common.artifacts import ArtifactStore
from services.common.call_context import current
from services.common.errors import InvalidRequest

MAX_EXPIRY_SECONDS = 30 * 24 * 3600
"""Range of `expires_after[seconds]`: one hour to thirty days, as in OpenAI's API."""
MIN_EXPIRY_SECONDS = 3600

PAGE = 100
MAX_PAGE = 10_000

_FIELD_BYTES = 1_000
_FIELDS = ("purpose", "expires_after[anchor]", "expires_after[seconds]")
_PURPOSE = re.compile(r"[a-z0-9_.-]{1,64}")

FileId = Annotated[str, Path(description="Id of the file.", examples=[examples.FILE_ID])]


class FileRoutes:
    """Uploads, lists, shows, downloads and deletes files.

    Args:
        files: stored files of the tenant.
        store: artifact store.
        downloads: serves the content of artifacts.
        upload_bytes: maximum size of a file.
    """

    def __init__(
        self, files: FileService, store: ArtifactStore, artifact_routes: ArtifactRoutes, upload_bytes: int
    ) -> None:
        self._files = files
        self._store = store
        self._artifact_routes = artifact_routes
        self._upload_bytes = upload_bytes

    def router(self) -> APIRouter:
        router = APIRouter(prefix="/v1/files", tags=["files"], default_response_class=Response)
        add = router.add_api_route
        add("", self.upload_file, methods=["POST"], **operations.UPLOAD_FILE)
        add("", self.list_files, methods=["GET"], **operations.LIST_FILES)
        add("/{file_id}", self.get_file, methods=["GET"], **operations.GET_FILE)
        add("/{file_id}", self.delete_file, methods=["DELETE"], **operations.DELETE_FILE)
        add("/{file_id}/content", self.download_file, methods=["GET"], **operations.DOWNLOAD)
        return router

    async def upload_file(self, request: Request) -> Response:
        """Stores a file until it is deleted, or for `expires_after[seconds]`.

        The content is streamed to the store, so it may be large. `POST /v1/runs` accepts the `artifact` and the id of
        the file; messages accept its id.
        """
        artifact, fields = await self._form(request)
        purpose = fields.get("purpose") or "user_data"
        if not _PURPOSE.fullmatch(purpose):
            remedy = "use up to 64 lower-case letters, digits, dots, hyphens and underscores, such as user_data"
            raise InvalidRequest("the purpose is not a valid name", remedy=remedy, port="purpose")
        return _json(file_object(await self._files.add(artifact, purpose, _expiry_seconds(fields))))

    async def list_files(
        self,
        after: Annotated[str, Query(description="Id of the last file of the previous page.")] = "",
        limit: Annotated[int, Query(ge=1, le=MAX_PAGE, description="Maximum number of files in the page.")] = PAGE,
        order: Annotated[Literal["asc", "desc"], Query(description="Order by creation time.")] = "desc",
        purpose: Annotated[str, Query(description="Only files with this purpose.")] = "",
    ) -> Response:
        """Lists files, newest first."""
        files, more = await self._files.page(FileQuery(limit, after, purpose, order == "desc"))
        ends = {"first_id": files[0].id, "last_id": files[-1].id} if files else {"first_id": None, "last_id": None}
        return _json({"object": "list", "data": [file_object(file) for file in files], "has_more": more, **ends})

    async def get_file(self, file_id: FileId) -> Response:
        """Returns a file's metadata."""
        return _json(file_object(await self._files.get(file_id)))

    async def delete_file(self, file_id: FileId) -> Response:
        """Deletes a file; its content is removed when nothing else refers to it."""
        await self._files.delete(file_id)
        return _json({"id": file_id, "object": "file", "deleted": True})

    async def download_file(self, file_id: FileId, request: Request) -> Response:
        """Returns the content of a file; supports `Range` and `If-None-Match`."""
        return await self._artifact_routes.response((await self._files.get(file_id)).artifact.sha256, request)

    async def _form(self, request: Request) -> tuple[Artifact, dict[str, str]]:
        kind = require_form(request.headers.get("content-type", ""))
        artifact, fields = None, dict[str, str]()
        async for part in parts(kind, request.stream()):
            if part.name == "file" and part.filename and artifact is None:
                allowance = Allowance(self._upload_bytes)
                tenant = current().tenant
                artifact = await store_file(
                    self._store, tenant, part.filename, part.content, allowance, stated_type=part.media_type
                )
            elif part.name in _FIELDS and part.name not in fields:
                sent = await read_limited(part.content, _FIELD_BYTES, f"the field {part.name}")
                fields[part.name] = sent.decode(errors="replace")
            else:
                raise InvalidRequest(
                    f"the form has an unknown or repeated field {part.name[:100]!r}",
                    reason="UNKNOWN_FIELD",
                    remedy=f"send one field file with a file name, and optionally {', '.join(_FIELDS)}",
                )
        if artifact is None:
            raise InvalidRequest(
                "the form contains no file",
                remedy="send it in the field file, as curl -F file=@picture.png",
                port="file",
            )
        return artifact, fields


def _expiry_seconds(fields: dict[str, str]) -> float | None:
    anchor, sent = fields.get("expires_after[anchor]"), fields.get("expires_after[seconds]")
    if anchor is None and sent is None:
        return None
    known = (sent or "").isascii() and (sent or "").isdecimal() and len(sent or "") < len(str(MAX_EXPIRY_SECONDS)) + 1
    if (
        anchor not in {None, "created_at"}
        or not known
        or not MIN_EXPIRY_SECONDS <= int(sent or 0) <= MAX_EXPIRY_SECONDS
    ):
        raise InvalidRequest(
            "expires_after is invalid",
            remedy=f"send anchor created_at and {MIN_EXPIRY_SECONDS} to {MAX_EXPIRY_SECONDS} seconds",
            port="expires_after",
        )
    return float(sent or 0)


def file_object(file: StoredFile) -> dict[str, Any]:
    expiring = {"expires_at": int(file.expires)} if file.expires else {}
    return {
        "id": file.id,
        "object": "file",
        "bytes": file.artifact.size_bytes,
        "created_at": int(file.created),
        **expiring,
        "filename": file.artifact.name,
        "purpose": file.purpose,
        "status": "processed",
        "artifact": encode(file.artifact),
    }


def _json(content: Any) -> Response:
    return Response(dumps(content), media_type="application/json")

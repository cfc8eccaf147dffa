"""Files over HTTP: objects as OpenAI's clients know them, with the artifact beside."""

import re
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from gateway.http.artifacts import Downloads
from gateway.http.multipart import is_form, parts
from gateway.json_encoder import dumps, encode
from gateway.openapi import file_operations
from gateway.run_request import limited
from gateway.stored_files.files import Files, KeptFile, Wanted
from gateway.uploads import Allowance, keep
from protos.hugginggpt.v1.artifact_pb2 import Artifact
from services.common.artifacts import ArtifactStore
from services.common.call_context import current
from services.common.errors import InvalidRequest

LONGEST_SECONDS = 30 * 24 * 3600
"""A file's time, if it is given one, is an hour to thirty days, as at OpenAI."""
SHORTEST_SECONDS = 3600

PAGE = 100
LARGEST_PAGE = 10_000

_FIELD_BYTES = 1_000
_FIELDS = ("purpose", "expires_after[anchor]", "expires_after[seconds]")
_PURPOSE = re.compile(r"[a-z0-9_.-]{1,64}")

FileId = Annotated[str, Path(description="The file's id.", examples=[file_operations.FILE_ID])]


class FileRoutes:
    """What one can do with files.

    Args:
        files: those kept.
        store: where their bytes are.
        downloads: sends them.
        upload_bytes: most bytes of one.
    """

    def __init__(self, files: Files, store: ArtifactStore, downloads: Downloads, upload_bytes: int) -> None:
        self._files = files
        self._store = store
        self._downloads = downloads
        self._upload_bytes = upload_bytes

    def router(self) -> APIRouter:
        router = APIRouter(prefix="/v1/files", tags=["files"], default_response_class=Response)
        add = router.add_api_route
        add("", self.create, methods=["POST"], **file_operations.CREATE_FILE)
        add("", self.index, methods=["GET"], **file_operations.FILES)
        add("/{file_id}", self.show, methods=["GET"], **file_operations.FILE)
        add("/{file_id}", self.delete, methods=["DELETE"], **file_operations.DELETED_FILE)
        add("/{file_id}/content", self.content, methods=["GET"], **file_operations.CONTENT)
        return router

    async def create(self, request: Request) -> Response:
        """Keeps a file until it is deleted, or for as long as `expires_after[seconds]` says.

        It may be large: it goes to the store while it comes in. Its `artifact` can be named in `POST /v1/runs`, its id
        in messages.
        """
        artifact, fields = await self._form(request)
        purpose = fields.get("purpose") or "user_data"
        if not _PURPOSE.fullmatch(purpose):
            remedy = "use up to 64 lower-case letters, digits, dots, hyphens and underscores, such as user_data"
            raise InvalidRequest("the purpose cannot be one", remedy=remedy, port="purpose")
        return _json(file_object(await self._files.add(artifact, purpose, _seconds(fields))))

    async def index(
        self,
        after: Annotated[str, Query(description="The id of the last file of the page before.")] = "",
        limit: Annotated[int, Query(ge=1, le=LARGEST_PAGE, description="Most files of a page.")] = PAGE,
        order: Annotated[Literal["asc", "desc"], Query(description="By when they were made.")] = "desc",
        purpose: Annotated[str, Query(description="Only files for this purpose.")] = "",
    ) -> Response:
        """Lists files, newest first."""
        files, more = await self._files.page(Wanted(limit, after, purpose, order == "desc"))
        ends = {"first_id": files[0].id, "last_id": files[-1].id} if files else {"first_id": None, "last_id": None}
        return _json({"object": "list", "data": [file_object(file) for file in files], "has_more": more, **ends})

    async def show(self, file_id: FileId) -> Response:
        """What is known of a file."""
        return _json(file_object(await self._files.get(file_id)))

    async def delete(self, file_id: FileId) -> Response:
        """Removes a file at once; its bytes go when nothing else refers to them."""
        await self._files.delete(file_id)
        return _json({"id": file_id, "object": "file", "deleted": True})

    async def content(self, file_id: FileId, request: Request) -> Response:
        """The bytes of a file, as of an artifact: parts by `Range`, nothing new by `If-None-Match`."""
        return await self._downloads.artifact((await self._files.get(file_id)).artifact.sha256, request)

    async def _form(self, request: Request) -> tuple[Artifact, dict[str, str]]:
        kind = request.headers.get("content-type", "")
        if not is_form(kind):
            remedy = "send multipart/form-data, as curl does with -F file=@picture.png"
            raise InvalidRequest("a file comes in a form", reason="CONTENT_TYPE", remedy=remedy)
        artifact, fields = None, dict[str, str]()
        async for part in parts(kind, request.stream()):
            if part.name == "file" and part.filename and artifact is None:
                allowance = Allowance(self._upload_bytes)
                tenant = current().tenant
                artifact = await keep(
                    self._store, tenant, part.filename, part.content, allowance, claimed=part.media_type
                )
            elif part.name in _FIELDS and part.name not in fields:
                sent = await limited(part.content, _FIELD_BYTES, f"the field {part.name}")
                fields[part.name] = sent.decode(errors="replace")
            else:
                raise InvalidRequest(
                    f"the form has an unknown or repeated field {part.name[:100]!r}",
                    reason="UNKNOWN_FIELD",
                    remedy=f"send one file, called file and with its name, and {', '.join(_FIELDS)} if wanted",
                )
        if artifact is None:
            raise InvalidRequest("there is no file in the form", remedy="send it as -F file=@picture.png", port="file")
        return artifact, fields


def _seconds(fields: dict[str, str]) -> float | None:
    anchor, sent = fields.get("expires_after[anchor]"), fields.get("expires_after[seconds]")
    if anchor is None and sent is None:
        return None
    known = (sent or "").isascii() and (sent or "").isdecimal() and len(sent or "") < len(str(LONGEST_SECONDS)) + 1
    if anchor not in {None, "created_at"} or not known or not SHORTEST_SECONDS <= int(sent or 0) <= LONGEST_SECONDS:
        raise InvalidRequest(
            "expires_after cannot be kept to",
            remedy=f"send anchor created_at and {SHORTEST_SECONDS} to {LONGEST_SECONDS} seconds",
            port="expires_after",
        )
    return float(sent or 0)


def file_object(file: KeptFile) -> dict[str, Any]:
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

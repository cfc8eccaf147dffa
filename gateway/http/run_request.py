"""Parses the body of POST /v1/runs: JSON, or a form whose files are streamed to the store."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator
from dataclasses import dataclass, field

from starlette.requests import Request

from gateway.core.file_references import FileResolver, RunFileReference, run_references
from gateway.core.uploads import Allowance, files_too_large_error, store_file
from gateway.http.json_body import JSON_BYTES, content_length, read_limited, too_large_error
from gateway.http.multipart import Part, is_form, parts
from gateway.json_decoder import decode
from gateway.json_text import INLINE_PARSE_BYTES, loads
from protos.hugginggpt.v1.artifact_pb2 import Artifact
from protos.hugginggpt.v1.caller_pb2 import DataPolicy
from protos.hugginggpt.v1.gateway_pb2 import CreateRunRequest
from protos.hugginggpt.v1.run_pb2 import RunSpec
from services.common import call_context
from services.common.artifacts import ArtifactStore
from services.common.errors import InvalidRequest

_JSON = "application/json"


@dataclass
class RunRequest:
    """A parsed request to start a run."""

    spec: RunSpec = field(default_factory=RunSpec)
    files: list[Artifact] = field(default_factory=list)
    file_references: list[RunFileReference] = field(default_factory=list)
    """Files given by id or URL, not yet resolved."""
    policy: "DataPolicy.ValueType" = DataPolicy.DATA_POLICY_UNSPECIFIED


class RunRequestReader:
    """Reads run requests.

    Args:
        store: artifact store for uploaded files.
        file_resolver: resolves files given by id or URL.
        files_bytes: maximum total size of a request's files.
    """

    def __init__(self, store: ArtifactStore, file_resolver: FileResolver, files_bytes: int) -> None:
        self._store = store
        self._file_resolver = file_resolver
        self._files_bytes = files_bytes

    async def read(self, request: Request) -> RunRequest:
        """Reads the body; file references are not resolved yet.

        Raises:
            InvalidRequest: CONTENT_TYPE or TOO_LARGE, or the error names the invalid field.
        """
        kind = request.headers.get("content-type", "")
        if is_form(kind):
            if content_length(request) > JSON_BYTES + self._files_bytes:
                raise files_too_large_error(self._files_bytes)
            return await self._form(kind, request.stream())
        if kind.partition(";")[0].strip().lower() == _JSON:
            if content_length(request) > JSON_BYTES:
                raise too_large_error("the body", JSON_BYTES)
            return await self._from_json(await read_limited(request.stream(), JSON_BYTES, "the body"))
        raise InvalidRequest(
            f"the content type {kind[:100]} is not supported" if kind else "the request states no content type",
            reason="CONTENT_TYPE",
            remedy="send application/json, or multipart/form-data with files",
        )

    async def resolve_files(self, run_request: RunRequest) -> None:
        """Resolves the file references under the current caller's data policy.

        Raises:
            ServiceError: as FileResolver.resolve raises.
        """
        await self._file_resolver.resolve(run_request.file_references, run_request.spec)

    async def _form(self, kind: str, body: AsyncIterator[bytes]) -> RunRequest:
        allowance, files, fields = Allowance(self._files_bytes), [], dict[str, bytes]()
        async for part in parts(kind, body):
            if part.name == "file":
                files += await self._file(part, allowance)
            elif part.name in ("request", "spec") and part.name not in fields:
                fields[part.name] = await read_limited(part.content, JSON_BYTES, f"the field {part.name}")
            else:
                raise InvalidRequest(
                    f"the form has an unknown or repeated field {part.name[:100]!r}",
                    reason="UNKNOWN_FIELD",
                    remedy="send the field request or spec once, and any number of file fields",
                )
        run_request = await self._from_json(fields["spec"]) if "spec" in fields else RunRequest()
        if "request" in fields:
            run_request.spec.request = _text(fields["request"])
        run_request.files = files
        return run_request

    async def _from_json(self, content: bytes) -> RunRequest:
        return _read(content) if len(content) < INLINE_PARSE_BYTES else await asyncio.to_thread(_read, content)

    async def _file(self, part: Part, allowance: Allowance) -> list[Artifact]:
        if part.filename is None:
            raise InvalidRequest(
                "a file field has no file name", remedy="send it as a file, as curl does with -F file=@picture.png"
            )
        if not part.filename:
            await _require_empty(part.content)
            return []
        tenant = call_context.current().tenant
        return [
            await store_file(self._store, tenant, part.filename, part.content, allowance, stated_type=part.media_type)
        ]


def _read(content: bytes) -> RunRequest:
    document = loads(content)
    if not isinstance(document, dict):
        raise InvalidRequest("the body is not a JSON object", remedy='send an object such as {"request": "…"}')
    policy = {"policy": document.pop("policy")} if "policy" in document else {}
    file_references = run_references(document)
    return RunRequest(
        decode(RunSpec, document), file_references=file_references, policy=decode(CreateRunRequest, policy).policy
    )


def _text(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        message = f"the request text is not UTF-8 (byte {error.start})"
        raise InvalidRequest(message, reason="NOT_UTF8", remedy="send text as UTF-8", port="request") from error


async def _require_empty(content: AsyncIterable[bytes]) -> None:
    """Accepts the empty file that browsers send for an unused file field, and rejects other unnamed files."""
    async for chunk in content:
        if chunk:
            raise InvalidRequest("a file field has no file name", remedy="send a file name")

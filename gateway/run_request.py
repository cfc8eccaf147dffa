"""The body of POST /v1/runs: JSON, or a form with files; files go to the store while they come in."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator
from dataclasses import dataclass, field

from starlette.requests import Request

from gateway.file_references import Mention, Mentions, of_run
from gateway.http.multipart import Part, is_form, parts
from gateway.json_decoder import decode
from gateway.json_text import QUICK_BYTES, loads
from gateway.uploads import Allowance, files_too_large, keep
from protos.hugginggpt.v1.artifact_pb2 import Artifact
from protos.hugginggpt.v1.caller_pb2 import DataPolicy
from protos.hugginggpt.v1.gateway_pb2 import CreateRunRequest
from protos.hugginggpt.v1.run_pb2 import RunSpec
from services.common import call_context
from services.common.artifacts import ArtifactStore
from services.common.errors import InvalidRequest

JSON_BYTES = 8_000_000
"""Longest JSON body."""

_JSON = "application/json"


@dataclass
class Asked:
    """What somebody wants."""

    spec: RunSpec = field(default_factory=RunSpec)
    files: list[Artifact] = field(default_factory=list)
    mentions: list[Mention] = field(default_factory=list)
    """What is to stand in the spec once it has been found or fetched."""
    policy: "DataPolicy.ValueType" = DataPolicy.DATA_POLICY_UNSPECIFIED


class Intake:
    """Reads requests.

    Args:
        store: where files are kept.
        mentions: brings in what is given as ids or URLs.
        files_bytes: most bytes of files with one request.
    """

    def __init__(self, store: ArtifactStore, mentions: Mentions, files_bytes: int) -> None:
        self._store = store
        self._mentions = mentions
        self._files_bytes = files_bytes

    async def asked(self, request: Request) -> Asked:
        """What the body says; what it mentions is not brought in yet.

        Raises:
            InvalidRequest: CONTENT_TYPE, TOO_LARGE, or what is wrong with it and where.
        """
        kind = request.headers.get("content-type", "")
        if is_form(kind):
            if _stated(request) > JSON_BYTES + self._files_bytes:
                raise files_too_large(self._files_bytes)
            return await self._form(kind, request.stream())
        if kind.partition(";")[0].strip().lower() == _JSON:
            if _stated(request) > JSON_BYTES:
                raise too_large("the body", JSON_BYTES)
            return await self._from_json(await limited(request.stream(), JSON_BYTES, "the body"))
        raise InvalidRequest(
            f"the body is {kind[:100] or 'of no stated type'}",
            reason="CONTENT_TYPE",
            remedy="send application/json, or multipart/form-data when there are files",
        )

    async def bring_in(self, asked: Asked) -> None:
        """Finds or fetches what is mentioned, as the current caller's data policy allows.

        Raises:
            ServiceError: as Mentions says.
        """
        await self._mentions.bring_in(asked.mentions, asked.spec)

    async def _form(self, kind: str, body: AsyncIterator[bytes]) -> Asked:
        allowance, files, fields = Allowance(self._files_bytes), [], dict[str, bytes]()
        async for part in parts(kind, body):
            if part.name == "file":
                files += await self._file(part, allowance)
            elif part.name in ("request", "spec") and part.name not in fields:
                fields[part.name] = await limited(part.content, JSON_BYTES, f"the field {part.name}")
            else:
                raise InvalidRequest(
                    f"the form has an unknown or repeated field {part.name[:100]!r}",
                    reason="UNKNOWN_FIELD",
                    remedy="send the fields request or spec once, and any number of file",
                )
        asked = await self._from_json(fields["spec"]) if "spec" in fields else Asked()
        if "request" in fields:
            asked.spec.request = _text(fields["request"])
        asked.files = files
        return asked

    async def _from_json(self, content: bytes) -> Asked:
        return _read(content) if len(content) < QUICK_BYTES else await asyncio.to_thread(_read, content)

    async def _file(self, part: Part, allowance: Allowance) -> list[Artifact]:
        if part.filename is None:
            raise InvalidRequest(
                "a file came without a name", remedy="send it as a file, as curl does with -F file=@picture.png"
            )
        if not part.filename:
            await _check_nothing(part.content)
            return []
        tenant = call_context.current().tenant
        return [await keep(self._store, tenant, part.filename, part.content, allowance, claimed=part.media_type)]


def _read(content: bytes) -> Asked:
    document = loads(content)
    if not isinstance(document, dict):
        raise InvalidRequest("the body is not a JSON object", remedy='send for instance {"request": "…"}')
    policy = {"policy": document.pop("policy")} if "policy" in document else {}
    mentions = of_run(document)
    return Asked(decode(RunSpec, document), mentions=mentions, policy=decode(CreateRunRequest, policy).policy)


def _stated(request: Request) -> int:
    """How long the body will be; 0 if it is not said."""
    stated = request.headers.get("content-length", "")
    return int(stated) if stated.isascii() and stated.isdecimal() else 0


def _text(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        message = f"the request is not UTF-8 (byte {error.start})"
        raise InvalidRequest(message, reason="NOT_UTF8", remedy="send text as UTF-8", port="request") from error


async def _check_nothing(content: AsyncIterable[bytes]) -> None:
    """What a browser sends for a file field nobody filled in."""
    async for chunk in content:
        if chunk:
            raise InvalidRequest("a file came without a name", remedy="name it")


async def limited(body: AsyncIterable[bytes], limit: int, what: str) -> bytes:
    content = bytearray()
    async for chunk in body:
        content += chunk
        if len(content) > limit:
            raise too_large(what, limit)
    return bytes(content)


def too_large(what: str, limit: int) -> InvalidRequest:
    return InvalidRequest(
        f"{what} is larger than the limit of {limit / 1e6:g} MB",
        reason="TOO_LARGE",
        remedy="send long texts as files and less at once, or ask the operator to raise the limit",
    )

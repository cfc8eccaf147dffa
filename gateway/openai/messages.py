"""Converts messages to runs: the last user message is the request, the others are the history, their files inputs."""

import asyncio
import base64
import binascii
import re
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_to_bytes

from gateway.core.file_references import FileReference, FileResolver
from gateway.core.uploads import Allowance, normalized_type, store_file
from gateway.json_text import checked_text, refuse
from gateway.openai.prompt_shortcuts import read_retrieval
from gateway.openai.request_body import Fields
from protos.hugginggpt.v1.artifact_pb2 import Artifact, NamedValue, Value
from protos.hugginggpt.v1.run_pb2 import ROLE_ASSISTANT, ROLE_USER, Role, RunSpec, Turn
from services.common import call_context
from services.common.artifacts import ArtifactStore
from services.common.errors import InvalidRequest, NotFound
from services.common.media_types import HEAD_BYTES, sniff, suffix

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


MAX_LINKED_ARTIFACTS = 32
"""Limit of artifacts that links in one message add."""

_QUICK_BYTES = 1_000_000
_ARTIFACT_LINK = re.compile(r"/v1/artifacts/([0-9a-f]{64})\b")
_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+)?((?:;[^;,]*)*),", re.ASCII)


@dataclass(frozen=True, slots=True)
class MessageContent:
    """Text and files of a message."""

    text: str = ""
    files: list[Artifact] = field(default_factory=list)


class MessageParts:
    """Reads message parts and stores their files.

    Args:
        store: artifact store.
        file_resolver: resolves files given by id or URL.
    """

    def __init__(self, store: ArtifactStore, file_resolver: FileResolver) -> None:
        self._store = store
        self._file_resolver = file_resolver

    def allowance(self) -> Allowance:
        """A new allowance for the files of one request."""
        return self._file_resolver.allowance()

    async def read_content(self, content: Any, where: str, allowance: Allowance) -> MessageContent:
        """Reads the content of a message: a string, or a list of parts.

        Raises:
            InvalidRequest: a part is invalid; the error names it.
            NotFound: FILE, the caller has no file with this id.
        """
        if content is None or isinstance(content, str):
            text = checked_text(content or "", where)
            return MessageContent(text, await self._linked_artifacts(text))
        if not isinstance(content, list):
            refuse(where, "is neither a string nor a list of parts", remedy="send a string or a list of parts")
        texts: list[str] = []
        files: list[Artifact] = []
        for index, item in enumerate(content):
            part = Fields(item, f"{where}[{index}]")
            kind = part.text("type")
            if kind in _TEXTS:
                texts.append(part.text(_TEXTS[kind]))
            elif kind in _READERS:
                files.append(await self._file(_READERS[kind](part), allowance))
            else:
                remedy = f"use one of {', '.join((*_TEXTS, *_READERS))}"
                refuse(part.place("type"), f"is {kind[:50]!r}, which is not supported", remedy=remedy)
        text = "\n\n".join(filter(None, texts))
        return MessageContent(text, [*files, *await self._linked_artifacts(text)])

    async def _file(self, sent: "_FilePart", allowance: Allowance) -> Artifact:
        if sent.file_id:
            artifact = Artifact()
            reference = FileReference("file_id", sent.file_id, sent.where)
            artifact.CopyFrom(await self._file_resolver.fetch(reference, allowance))
            artifact.name = sent.name or artifact.name
            return artifact
        if not sent.data and not sent.url:
            refuse(sent.where, "has no file", remedy="send the file's data, URL or file_id")
        if sent.url and not sent.url.startswith("data:"):
            return await self._file_resolver.fetch(FileReference("url", sent.url, sent.where), allowance)
        content, media_type = await _decode(sent)
        name = sent.name or _name(sent.family, media_type, content)
        return await store_file(
            self._store, call_context.current().tenant, name, _stream(content), allowance, stated_type=media_type
        )

    async def store_passage(self, source: str, text: str, allowance: Allowance) -> Artifact:
        """Stores a passage that a front end retrieved from a file."""
        name, tenant = source if source.endswith(".txt") else f"{source}.txt", call_context.current().tenant
        return await store_file(self._store, tenant, name, _stream(text.encode()), allowance, stated_type="text/plain")

    async def _linked_artifacts(self, text: str) -> list[Artifact]:
        """Finds the artifacts linked in a text: clients that send the history have no other reference to them."""
        found = []
        for digest in list(dict.fromkeys(_ARTIFACT_LINK.findall(text)))[:MAX_LINKED_ARTIFACTS]:
            try:
                found.append(await self._store.head(call_context.current().tenant, digest))
            except NotFound:
                continue
        return found


@dataclass(frozen=True, slots=True)
class _FilePart:
    where: str
    family: str
    """Name of a file that has none."""
    name: str = ""
    data: str = ""
    """Base64, or a data URL."""
    url: str = ""
    file_id: str = ""


def _url_reader(family: str) -> Callable[[Fields], _FilePart]:
    """Reader of {"type": "image_url", "image_url": {"url": …}}, or with the URL as a string."""

    def read(part: Fields) -> _FilePart:
        name = f"{family}_url"
        link = part.text(name) if isinstance(part.get(name), str) else part.map(name).text("url")
        return _FilePart(part.place(name), family, url=link)

    return read


def _image(part: Fields) -> _FilePart:
    return _FilePart(part.place("image_url"), "image", url=part.text("image_url"), file_id=part.text("file_id"))


def _audio(part: Fields) -> _FilePart:
    audio = part.map("input_audio")
    extension = audio.text("format", "wav")
    return _FilePart(audio.place("data"), "audio", f"audio.{extension}", data=audio.text("data"))


def _file(part: Fields) -> _FilePart:
    sent = part.map("file") if "file" in part else part
    return _FilePart(
        sent.where,
        "file",
        sent.text("filename"),
        sent.text("file_data"),
        sent.text("file_url"),
        sent.text("file_id"),
    )


_TEXTS: Mapping[str, str] = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
_READERS: Mapping[str, Callable[[Fields], _FilePart]] = {
    "image_url": _url_reader("image"),
    "audio_url": _url_reader("audio"),
    "video_url": _url_reader("video"),
    "input_image": _image,
    "input_audio": _audio,
    "file": _file,
    "input_file": _file,
}


async def _decode(sent: _FilePart) -> tuple[bytes, str]:
    """Decodes the data; returns the bytes and the stated media type."""
    data, kind, encoded = sent.data or sent.url, "", True
    if data.startswith("data:"):
        header = _DATA_URL.match(data[:1000])
        if not header:
            refuse(sent.where, "is not a data URL", remedy="send data:TYPE;base64,DATA")
        kind, encoded = header[1] or "", header[2].lower().endswith(";base64")
        data = data[header.end() :]
    decode = _base64 if encoded else unquote_to_bytes
    try:
        content = await asyncio.to_thread(decode, data) if len(data) > _QUICK_BYTES else decode(data)
    except (binascii.Error, ValueError) as error:
        raise InvalidRequest(
            f"{sent.where} is not base64", reason="BASE64", remedy="encode the file's bytes as base64", port=sent.where
        ) from error
    return content, kind


def _base64(data: str) -> bytes:
    return base64.b64decode("".join(data.split()), validate=True)


def _name(family: str, media_type: str, content: bytes) -> str:
    extension = suffix(normalized_type(media_type)) or suffix(
        sniff(content[:HEAD_BYTES], whole=len(content) <= HEAD_BYTES)
    )
    return f"{family}.{extension}" if extension else family


async def _stream(content: bytes) -> AsyncIterator[bytes]:
    yield content


MAX_MESSAGES = 2_000

ROLES: "Mapping[str, Role.ValueType]" = {
    "system": ROLE_USER,
    "developer": ROLE_USER,
    "user": ROLE_USER,
    "assistant": ROLE_ASSISTANT,
    "tool": ROLE_ASSISTANT,
    "function": ROLE_ASSISTANT,
}
"""Roles of turns. Instructions become user turns at the start."""

_INSTRUCTIONS = frozenset({"system", "developer"})

_IGNORED_ITEMS = frozenset({"reasoning", "function_call", "function_call_output", "item_reference"})
"""Items of a response that are not messages."""


async def of_messages(messages: "Sequence[Fields]", parts: MessageParts, where: str = "messages") -> RunSpec:
    """Converts chat messages to a run.

    Args:
        messages: messages, oldest first.
        parts: reads message parts.
        where: field of the messages, for errors.

    Raises:
        InvalidRequest: a message is invalid; the error names it.
    """
    if not messages:
        refuse(where, "is empty", remedy="send at least one user message")
    if len(messages) > MAX_MESSAGES:
        refuse(
            where, f"has more than {MAX_MESSAGES} messages", reason="TOO_LARGE", remedy="send only the last messages"
        )
    last = max((index for index, each in enumerate(messages) if each.text("role") == "user"), default=None)
    if last is None or any(each.text("role") == "assistant" for each in messages[last:]):
        refuse(where, "does not end with a user message", remedy="send the user's request as the last message")
    allowance, spec = parts.allowance(), RunSpec()
    retrieved: list[Artifact] = []
    for index, message in enumerate(messages):
        content = await parts.read_content(message.get("content"), message.place("content"), allowance)
        retrieval = read_retrieval(content.text) if index == last or message.text("role") in _INSTRUCTIONS else None
        if retrieval and (retrieval.question or index != last):
            retrieved += [await parts.store_passage(*each, allowance) for each in retrieval.passages.items()]
            content = MessageContent(retrieval.question, content.files)
        if index == last:
            _set_request(spec, MessageContent(content.text, [*content.files, *retrieved]))
        else:
            _add_turn(spec, _role(message), content)
    return spec


async def of_input(sent: Fields, parts: MessageParts) -> RunSpec:
    """Converts the input of a response to a run: a string, or items of which only messages are used.

    Raises:
        InvalidRequest: an item is invalid; the error names it.
    """
    if isinstance(sent.get("input"), str):
        spec = RunSpec()
        _set_request(spec, await parts.read_content(sent.get("input"), "input", parts.allowance()))
        return spec
    if "input" not in sent:
        refuse("input", "is missing", remedy="send a string, or a list of items")
    items = [item for item in sent.maps("input") if item.text("type", "message") not in _IGNORED_ITEMS]
    for item in items:
        if item.text("type", "message") != "message":
            refuse(item.place("type"), "is not a supported item type", remedy="send messages")
    return await of_messages(items, parts, "input")


def instruct(spec: RunSpec, instructions: str) -> None:
    """Inserts instructions as the first turn."""
    if instructions:
        turns = [Turn(role=ROLE_USER, text=instructions), *spec.history]
        del spec.history[:]
        spec.history.extend(turns)


def _role(message: Fields) -> "Role.ValueType":
    role = message.text("role")
    if role not in ROLES:
        refuse(message.place("role"), f"is {role[:50]!r}", remedy=f"use one of {', '.join(ROLES)}")
    return ROLES[role]


def _set_request(spec: RunSpec, content: MessageContent) -> None:
    spec.request = content.text
    for number, artifact in enumerate(content.files, start=1):
        spec.inputs.append(NamedValue(name=f"file{number}", value=Value(artifact=artifact)))


def _add_turn(spec: RunSpec, role: "Role.ValueType", content: MessageContent) -> None:
    if not content.text and not content.files:
        return
    turn = spec.history.add(role=role, text=content.text)
    for number, artifact in enumerate(content.files, start=1):
        turn.attachments.append(NamedValue(name=f"file{number}", value=Value(artifact=artifact)))

"""What a message is made of: words, and files as data, links or ids."""

import asyncio
import base64
import binascii
import re
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote_to_bytes

from gateway.content_type_check import normalized_type
from gateway.json_text import checked_text, refuse
from gateway.media_sniffing import HEAD_BYTES, sniff
from gateway.media_types import suffix
from gateway.openai.json_fields import Fields
from gateway.stored_files.files import Files
from gateway.uploads import Allowance, store_file
from gateway.url_inputs import UrlFetcher
from protos.hugginggpt.v1.artifact_pb2 import Artifact
from services.common import call_context
from services.common.artifacts import ArtifactStore
from services.common.errors import InvalidRequest, NotFound

MOST_MENTIONED = 32
"""Artifacts that the words of one message can bring along."""

_QUICK_BYTES = 1_000_000
_MENTIONED = re.compile(r"/v1/artifacts/([0-9a-f]{64})\b")
_DATA = re.compile(r"data:([\w.+-]+/[\w.+-]+)?((?:;[^;,]*)*),", re.ASCII)


@dataclass(frozen=True, slots=True)
class Said:
    """What one message says and brings."""

    text: str = ""
    files: list[Artifact] = field(default_factory=list)


class Parts:
    """Reads what messages are made of; files go to the store.

    Args:
        store: where files are kept.
        files: those sent before.
        fetching: brings in what is given as a URL.
        files_bytes: most bytes of files with one request.
    """

    def __init__(self, store: ArtifactStore, files: Files, fetching: UrlFetcher, files_bytes: int) -> None:
        self._store = store
        self._files = files
        self._fetching = fetching
        self._files_bytes = files_bytes

    def allowance(self) -> Allowance:
        """For the files of one request."""
        return Allowance(self._files_bytes)

    async def said(self, content: Any, where: str, allowance: Allowance) -> Said:
        """What a message's content says: a string, or a list of parts.

        Raises:
            InvalidRequest: naming the part and what is wrong with it.
            NotFound: FILE, the caller has none of that id.
        """
        if content is None or isinstance(content, str):
            words = checked_text(content or "", where)
            return Said(words, await self._mentioned(words))
        if not isinstance(content, list):
            refuse(where, "is neither a string nor a list of parts", remedy="send one of these")
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
                refuse(part.place("type"), f"is {kind[:50]!r}, which is not taken", remedy=remedy)
        words = "\n\n".join(filter(None, texts))
        return Said(words, [*files, *await self._mentioned(words)])

    async def _file(self, sent: "_Sent", allowance: Allowance) -> Artifact:
        if sent.file_id:
            allowance.add_file()
            artifact = Artifact()
            artifact.CopyFrom((await self._files.get(sent.file_id)).artifact)
            artifact.name = sent.name or artifact.name
            return artifact
        if not sent.data and not sent.url:
            refuse(sent.where, "holds no file", remedy="send its data, its URL or its file_id")
        if sent.url and not sent.url.startswith("data:"):
            return await self._fetching.fetch(sent.url, allowance=allowance)
        content, stated_type = await _decoded(sent)
        name = sent.name or _name(sent.family, stated_type, content)
        return await store_file(
            self._store, call_context.current().tenant, name, _whole(content), allowance, stated_type=stated_type
        )

    async def _mentioned(self, words: str) -> list[Artifact]:
        """The artifacts whose links stand in the words: a client that keeps the history has no others."""
        found = []
        for digest in list(dict.fromkeys(_MENTIONED.findall(words)))[:MOST_MENTIONED]:
            try:
                found.append(await self._store.head(call_context.current().tenant, digest))
            except NotFound:
                continue
        return found


@dataclass(frozen=True, slots=True)
class _Sent:
    where: str
    family: str
    """What it is called without a name."""
    name: str = ""
    data: str = ""
    """Base64, or a data URL."""
    url: str = ""
    file_id: str = ""


def _linked(family: str) -> Callable[[Fields], _Sent]:
    """{"type": "image_url", "image_url": {"url": …}}, or the URL itself."""

    def read(part: Fields) -> _Sent:
        name = f"{family}_url"
        link = part.text(name) if isinstance(part.get(name), str) else part.map(name).text("url")
        return _Sent(part.place(name), family, url=link)

    return read


def _image(part: Fields) -> _Sent:
    return _Sent(part.place("image_url"), "image", url=part.text("image_url"), file_id=part.text("file_id"))


def _audio(part: Fields) -> _Sent:
    sound = part.map("input_audio")
    ending = sound.text("format", "wav")
    return _Sent(sound.place("data"), "audio", f"audio.{ending}", data=sound.text("data"))


def _file(part: Fields) -> _Sent:
    sent = part.map("file") if "file" in part else part
    return _Sent(
        sent.where,
        "file",
        sent.text("filename"),
        sent.text("file_data"),
        sent.text("file_url"),
        sent.text("file_id"),
    )


_TEXTS: Mapping[str, str] = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
_READERS: Mapping[str, Callable[[Fields], _Sent]] = {
    "image_url": _linked("image"),
    "audio_url": _linked("audio"),
    "video_url": _linked("video"),
    "input_image": _image,
    "input_audio": _audio,
    "file": _file,
    "input_file": _file,
}


async def _decoded(sent: _Sent) -> tuple[bytes, str]:
    """The bytes, and the media type said of them."""
    data, kind, encoded = sent.data or sent.url, "", True
    if data.startswith("data:"):
        header = _DATA.match(data[:1000])
        if not header:
            refuse(sent.where, "is not a data URL", remedy="send data:TYPE;base64,DATA")
        kind, encoded = header[1] or "", header[2].lower().endswith(";base64")
        data = data[header.end() :]
    read = _base64 if encoded else unquote_to_bytes
    try:
        content = await asyncio.to_thread(read, data) if len(data) > _QUICK_BYTES else read(data)
    except (binascii.Error, ValueError) as error:
        raise InvalidRequest(
            f"{sent.where} is not base64", reason="BASE64", remedy="encode the file's bytes as base64", port=sent.where
        ) from error
    return content, kind


def _base64(data: str) -> bytes:
    return base64.b64decode("".join(data.split()), validate=True)


def _name(family: str, stated_type: str, content: bytes) -> str:
    ending = suffix(normalized_type(stated_type)) or suffix(
        sniff(content[:HEAD_BYTES], whole=len(content) <= HEAD_BYTES)
    )
    return f"{family}.{ending}" if ending else family


async def _whole(content: bytes) -> AsyncIterator[bytes]:
    yield content

"""Safe file names and HTTP headers for downloads of artifacts."""

import re
import unicodedata
from urllib.parse import quote

from protos.hugginggpt.v1.artifact_pb2 import Artifact

NAME_CHARACTERS = 150
"""Longest file name."""

_INVISIBLE = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
"""Unicode categories removed from names: control and format characters, surrogates, unassigned, line separators."""

_INLINE = re.compile(
    r"image/(png|jpeg|gif|webp|bmp|tiff|heic|avif)|(audio|video)/[a-z0-9.+-]+|application/(pdf|json)|text/(plain|csv|markdown)"
)
"""Media types that a browser may display; all others, which might contain scripts, are only downloaded."""


def clean_name(name: str) -> str:
    """A file name without folders and invisible characters, at most NAME_CHARACTERS long."""
    last = name.replace("\\", "/").rpartition("/")[2]
    visible = "".join(letter for letter in last if unicodedata.category(letter) not in _INVISIBLE).strip(" .")
    stem, dot, suffix = visible.rpartition(".")
    if len(visible) > NAME_CHARACTERS and dot and len(suffix) < NAME_CHARACTERS // 2:
        return stem[: NAME_CHARACTERS - len(suffix) - 1] + dot + suffix
    return visible[:NAME_CHARACTERS] or "file"


def download_headers(artifact: Artifact, *, inline: bool = True) -> dict[str, str]:
    """Content-Type and Content-Disposition with which no browser runs the artifact as a script.

    Args:
        artifact: the download.
        inline: a browser may display it if its type is harmless; with False it is always downloaded.
    """
    is_harmless = _INLINE.fullmatch(artifact.media_type) is not None
    media_type = artifact.media_type if is_harmless else "application/octet-stream"
    name = clean_name(artifact.name)
    plain = re.sub(r'[^\x20-\x7e]|["\\%]', "_", name)
    disposition = f'{"inline" if is_harmless and inline else "attachment"}; filename="{plain}"'
    if plain != name:
        disposition += f"; filename*=UTF-8''{quote(name, safe='')}"
    return {
        "content-type": f"{media_type}; charset=utf-8" if media_type.startswith("text/") else media_type,
        "content-disposition": disposition,
    }

"""How an artifact is named and typed where it is given out: never as something a browser would run."""

import re
import unicodedata
from urllib.parse import quote

from protos.hugginggpt.v1.artifact_pb2 import Artifact

NAME_CHARACTERS = 150
"""Longest name kept."""

_INVISIBLE = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
"""Unicode categories that have no place in a name: control, direction, halves, line ends."""

_SHOWN = re.compile(
    r"image/(png|jpeg|gif|webp|bmp|tiff|heic|avif)|(audio|video)/[a-z0-9.+-]+|application/(pdf|json)|text/(plain|csv|markdown)"
)
"""What a browser may show in place; anything else, and all that can carry a script, is only saved."""


def clean_name(name: str) -> str:
    """A name as it may be shown: without folders, without invisible characters, not too long."""
    last = name.replace("\\", "/").rpartition("/")[2]
    seen = "".join(letter for letter in last if unicodedata.category(letter) not in _INVISIBLE).strip(" .")
    stem, dot, suffix = seen.rpartition(".")
    if len(seen) > NAME_CHARACTERS and dot and len(suffix) < NAME_CHARACTERS // 2:
        return stem[: NAME_CHARACTERS - len(suffix) - 1] + dot + suffix
    return seen[:NAME_CHARACTERS] or "file"


def describing(artifact: Artifact, *, shown: bool = True) -> dict[str, str]:
    """Content-Type and Content-Disposition as they are safe to send.

    Args:
        artifact: what is given out.
        shown: a browser may show it in place if its type is harmless; else it is saved.
    """
    harmless = _SHOWN.fullmatch(artifact.media_type) is not None
    kind = artifact.media_type if harmless else "application/octet-stream"
    name = clean_name(artifact.name)
    plain = re.sub(r'[^\x20-\x7e]|["\\%]', "_", name)
    disposition = f'{"inline" if harmless and shown else "attachment"}; filename="{plain}"'
    if plain != name:
        disposition += f"; filename*=UTF-8''{quote(name, safe='')}"
    return {
        "content-type": f"{kind}; charset=utf-8" if kind.startswith("text/") else kind,
        "content-disposition": disposition,
    }

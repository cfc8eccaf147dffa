"""Artifacts become files: under safe names, and never over somebody else's file."""

import hashlib
import mimetypes
import re
import tempfile
import unicodedata
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from gateway.cli.api import Api
from gateway.cli.problem import USAGE, Problem

LONGEST_STEM = 100
"""In bytes: file systems take 255 with the extension."""

_UNSAFE = re.compile(r'[<>:"|?*/\\]+')
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)", re.IGNORECASE)


def open_folder(folder: Path) -> None:
    """Makes the folder if it is not there; raises Problem if it cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise Problem(
            f"cannot write to {folder}: {error.strerror}", remedy="choose another --out", status=USAGE
        ) from error


def save(api: Api, artifact: Mapping[str, Any], folder: Path) -> Path:
    """Downloads an artifact; where the folder has it already under its name, that file is it."""
    name = safe_name(artifact.get("name", ""), artifact.get("media_type", ""))
    for path in _numbered(folder / name):
        if not (path.exists() or path.is_symlink()):
            _download(api, artifact["sha256"], path)
            return path
        if path.is_file() and _digest(path) == artifact["sha256"]:
            return path
    raise AssertionError


def safe_name(name: str, media_type: str) -> str:
    """A file name without folders, control characters or anything a system reads in its own way."""
    last = PureWindowsPath(PurePosixPath(name).name).name
    printable = "".join(
        letter for letter in unicodedata.normalize("NFC", last) if unicodedata.category(letter)[0] != "C"
    )
    path = PurePosixPath(_UNSAFE.sub("_", printable).strip(" ."))
    stem = path.stem.encode()[:LONGEST_STEM].decode(errors="ignore").strip(" .") or "artifact"
    extension = path.suffix or mimetypes.guess_extension(media_type) or ""
    return ("_" if _RESERVED.fullmatch(stem) else "") + stem + extension[:LONGEST_STEM]


def _numbered(path: Path) -> Iterator[Path]:
    yield path
    for number in count(2):
        yield path.with_name(f"{path.stem}-{number}{path.suffix}")


def _download(api: Api, sha256: str, path: Path) -> None:
    digest, whole = hashlib.sha256(), False
    try:
        with api.download(sha256) as pieces, path.open("xb") as file:
            for piece in pieces:
                digest.update(piece)
                file.write(piece)
        whole = digest.hexdigest() == sha256
    except OSError as error:
        raise Problem(f"cannot write {path}: {error.strerror}", remedy="choose another --out") from error
    finally:
        if not whole:
            path.unlink(missing_ok=True)
    if not whole:
        raise Problem(f"{path.name} arrived damaged", remedy="ask again")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

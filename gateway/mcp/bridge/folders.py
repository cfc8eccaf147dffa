"""Folders that an agent may read from and write to; what leads out of them is outside, by whatever link."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from services.common.errors import InvalidRequest, PermissionDenied

SCHEME = "file://"


class Folders:
    """Roots of the client, and those the bridge was started with."""

    def __init__(self, roots: Iterable[Path]) -> None:
        self._roots = tuple(root.resolve() for root in roots)

    def file(self, named: str) -> Path:
        """A file within, by path or file:// URI; a relative path begins at the first root that has it.

        Raises:
            PermissionDenied: ROOTS, it is outside, or there are no roots.
            InvalidRequest: FILE, it is not there, or no file.
        """
        found = self._within(named)
        if not found.is_file():
            raise InvalidRequest(
                f"{named} is not a file here", reason="FILE", remedy="give the path of a file, not of a folder"
            )
        return found

    def folder(self, named: str) -> Path:
        """A folder within, that may not be there yet.

        Raises:
            PermissionDenied: ROOTS, it is outside, or there are no roots.
            InvalidRequest: FILE, it is no folder.
        """
        found = self._within(named)
        if found.exists() and not found.is_dir():
            raise InvalidRequest(f"{named} is not a folder", reason="FILE", remedy="give the path of a folder")
        return found

    def _within(self, named: str) -> Path:
        if not self._roots:
            raise PermissionDenied(
                "no folder of this machine may be read",
                reason="ROOTS",
                remedy="have the client declare roots, or start hugginggpt mcp with --root FOLDER",
            )
        candidates = _candidates(path_of(named), self._roots)
        within = [path for path in candidates if any(path.is_relative_to(root) for root in self._roots)]
        if not within:
            raise PermissionDenied(
                f"{named} is outside the folders that may be used",
                reason="ROOTS",
                remedy=f"use a path within {', '.join(map(str, self._roots))}",
            )
        return next((path for path in within if path.exists()), within[0])


def path_of(named: str) -> Path:
    """A path, or what a file:// URI names.

    Raises:
        InvalidRequest: FILE, it cannot be a path.
    """
    if "\0" in named:
        raise InvalidRequest("a path has no zero bytes", reason="FILE", remedy="give the path of a file")
    return Path(unquote(urlsplit(named).path)) if named.startswith(SCHEME) else Path(named)


def _candidates(path: Path, roots: Sequence[Path]) -> list[Path]:
    return [path.resolve()] if path.is_absolute() else [(root / path).resolve() for root in roots]

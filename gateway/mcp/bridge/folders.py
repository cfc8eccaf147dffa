"""Local folders that an MCP client may read and write: its roots, and those of the command line."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from mcp.server.context import ServerRequestContext
from mcp.shared.message import ServerMessageMetadata
from mcp.types import CallToolRequestParams, InputRequiredResult, ListRootsRequest, ListRootsResult

from services.common.errors import InvalidRequest, PermissionDenied

SCHEME = "file://"

_ROOTS = "roots"

Context = ServerRequestContext[Any, Any]


class Folders:
    """Allowed folders: the client's roots and those of the command line."""

    def __init__(self, roots: Iterable[Path]) -> None:
        self._roots = tuple(root.resolve() for root in roots)

    def file(self, path: str) -> Path:
        """Resolves a file by path or file:// URI; a relative path is searched in all roots in order.

        Raises:
            PermissionDenied: ROOTS, the path is outside the roots, or there are no roots.
            InvalidRequest: FILE, the file does not exist or is not a file.
        """
        found = self._within(path)
        if not found.is_file():
            raise InvalidRequest(
                f"{path} is not an existing file", reason="FILE", remedy="give the path of an existing file"
            )
        return found

    def folder(self, path: str) -> Path:
        """Resolves a folder, which need not exist yet.

        Raises:
            PermissionDenied: ROOTS, the path is outside the roots, or there are no roots.
            InvalidRequest: FILE, the path is not a folder.
        """
        found = self._within(path)
        if found.exists() and not found.is_dir():
            raise InvalidRequest(f"{path} is not a folder", reason="FILE", remedy="give the path of a folder")
        return found

    def _within(self, path: str) -> Path:
        if not self._roots:
            raise PermissionDenied(
                "no local folders are allowed",
                reason="ROOTS",
                remedy="declare roots in the client, or start hugginggpt mcp with --root FOLDER",
            )
        candidates = _candidates(path_of(path), self._roots)
        within = [path for path in candidates if any(path.is_relative_to(root) for root in self._roots)]
        if not within:
            raise PermissionDenied(
                f"{path} is outside the allowed folders",
                reason="ROOTS",
                remedy=f"use a path within {', '.join(map(str, self._roots))}",
            )
        return next((path for path in within if path.exists()), within[0])


def path_of(path: str) -> Path:
    """Parses a path or a file:// URI.

    Raises:
        InvalidRequest: FILE, the path is invalid.
    """
    if "\0" in path:
        raise InvalidRequest("a path cannot contain null bytes", reason="FILE", remedy="give a valid path")
    return Path(unquote(urlsplit(path).path)) if path.startswith(SCHEME) else Path(path)


def _candidates(path: Path, roots: Sequence[Path]) -> list[Path]:
    return [path.resolve()] if path.is_absolute() else [(root / path).resolve() for root in roots]


def roots_request(context: Context, params: CallToolRequestParams) -> InputRequiredResult | None:
    """Asks a client that accepts no requests to repeat the call with its roots; None if that is not needed."""
    if not _has_roots(context) or context.session.can_send_request or _ROOTS in (params.input_responses or {}):
        return None
    return InputRequiredResult(input_requests={_ROOTS: ListRootsRequest()})


async def roots(context: Context, params: CallToolRequestParams) -> list[Path]:
    """The client's folders."""
    if not _has_roots(context):
        return []
    listed = (params.input_responses or {}).get(_ROOTS)
    if context.session.can_send_request:
        related = ServerMessageMetadata(related_request_id=context.request_id)
        listed = await context.session.send_request(ListRootsRequest(), ListRootsResult, metadata=related)
    found = listed.roots if isinstance(listed, ListRootsResult) else []
    return [path_of(str(root.uri)) for root in found]


def _has_roots(context: Context) -> bool:
    capabilities = context.session.client_capabilities
    return bool(capabilities and capabilities.roots)

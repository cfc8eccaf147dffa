"""Local files of tool calls: uploads them before the call, and saves output files after it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mcp.types import CallToolResult, TextContent, Tool

from gateway.client import AsyncHuggingGPT
from gateway.mcp import resources, schemas
from gateway.mcp.bridge.folders import SCHEME, Folders
from gateway.mcp.file_references import is_reference
from gateway.mcp.tool_definitions import FIXED
from gateway.mcp.upload_routes import RETENTION_SECONDS

SAVE_TO = "save_to"

_HERE = " Or the path of a local file within the allowed folders."
_SAVE_TO: schemas.Schema = schemas.text("A local folder, within the allowed folders, for saving the output files.")


def with_local_files(tool: Tool) -> Tool:
    """Adds local files to the schema of a tool."""
    schema = tool.input_schema
    properties = dict(schema.get("properties", {}))
    if "files" in properties:
        properties["files"] = properties["files"] | {"description": properties["files"]["description"] + _HERE}
    if tool.output_schema and "answer" in tool.output_schema.get("properties", {}):
        properties[SAVE_TO] = _SAVE_TO
    return tool.model_copy(update={"input_schema": schema | {"properties": properties}})


def uses_local_files(name: str, arguments: Mapping[str, Any]) -> bool:
    """Whether a call reads or writes local files."""
    return SAVE_TO in arguments or any(_is_local(key, text) for key, text in _texts(name, arguments))


class LocalFiles:
    """Local files of one call.

    Args:
        gateway: HTTP client of the gateway.
        folders: allowed folders.
    """

    def __init__(self, gateway: AsyncHuggingGPT, folders: Folders) -> None:
        self._gateway = gateway
        self._folders = folders

    async def upload(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Uploads local files; returns the arguments with file ids instead of paths.

        Raises:
            ServiceError, HuggingGPTError: a file cannot be read or uploaded.
        """
        uploaded = {key: value for key, value in arguments.items() if key != SAVE_TO}
        for key in _argument_names(name, uploaded):
            uploaded[key] = await self._with_ids(key, uploaded[key])
        return uploaded

    def folder(self, arguments: Mapping[str, Any]) -> Path | None:
        """Folder for the output files; None if they are not saved."""
        return self._folders.folder(str(arguments[SAVE_TO])) if SAVE_TO in arguments else None

    async def save(self, result: CallToolResult, folder: Path) -> CallToolResult:
        """Saves the output files; returns the result with their paths."""
        files = (result.structured_content or {}).get("files", [])
        content = list(result.content)
        for file in files:
            artifact = await self._gateway.artifact(resources.artifact_digest(file["uri"]))
            (path,) = await self._gateway.save(artifact, folder)
            file["path"] = str(path)
            content.append(TextContent(text=f"Saved: {path}"))
        return result.model_copy(update={"content": content})

    async def _with_ids(self, key: str, value: Any) -> Any:
        match value:
            case str() if _is_local(key, value):
                stored = await self._gateway.upload(self._folders.file(value), expires_after=int(RETENTION_SECONDS))
                return stored.id
            case list():
                return [await self._with_ids(key, item) for item in value]
            case dict() if key == "arguments":
                return {name: await self._with_ids(key, item) for name, item in value.items()}
        return value


def _argument_names(name: str, arguments: Mapping[str, Any]) -> list[str]:
    """Arguments that may contain files; for the tool of a task, all except the common ones."""
    names = {"files", "arguments"} if name in FIXED else arguments.keys() - {"parameters", "policy", "wait_seconds"}
    return sorted(names & arguments.keys())


def _texts(name: str, arguments: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(key, text) for key in _argument_names(name, arguments) for text in _strings(arguments[key])]


def _strings(value: Any) -> list[str]:
    match value:
        case str():
            return [value]
        case list():
            return [text for item in value for text in _strings(item)]
        case dict():
            return [text for item in value.values() for text in _strings(item)]
    return []


def _is_local(key: str, text: str) -> bool:
    """Whether a text is a local file; in arguments that may be text, only a file:// URI is."""
    return text.startswith(SCHEME) or (key == "files" and not is_reference(text))

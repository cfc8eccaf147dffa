"""What is done here for a tool of the gateway: local files are sent before it is called, and made ones saved after."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mcp.types import CallToolResult, TextContent, Tool

from gateway.client import AsyncHuggingGPT
from gateway.mcp import resource_uris, schemas
from gateway.mcp.bridge.folders import SCHEME, Folders
from gateway.mcp.file_references import is_reference
from gateway.mcp.tool_definitions import FIXED
from gateway.mcp.upload_routes import KEPT_SECONDS

SAVE_TO = "save_to"

_HERE = " Or the path of a file on this machine, within the folders you may use."
_SAVE_TO: schemas.Schema = schemas.text(
    "A folder on this machine, within those you may use, to save the files made to."
)


def offered(tool: Tool) -> Tool:
    """A tool of the gateway, with what it takes here beside."""
    schema = tool.input_schema
    properties = dict(schema.get("properties", {}))
    if "files" in properties:
        properties["files"] = properties["files"] | {"description": properties["files"]["description"] + _HERE}
    if tool.output_schema and "answer" in tool.output_schema.get("properties", {}):
        properties[SAVE_TO] = _SAVE_TO
    return tool.model_copy(update={"input_schema": schema | {"properties": properties}})


def names_files(name: str, arguments: Mapping[str, Any]) -> bool:
    """Whether folders of this machine matter to a call."""
    return SAVE_TO in arguments or any(_is_local(place, text) for place, text in _texts(name, arguments))


class Errands:
    """For one call.

    Args:
        house: the gateway, where files go and come from.
        folders: where they may be on this machine.
    """

    def __init__(self, house: AsyncHuggingGPT, folders: Folders) -> None:
        self._house = house
        self._folders = folders

    async def sent(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments with ids of files in place of paths.

        Raises:
            ServiceError, HuggingGPTError: a file may not be read, or is not taken.
        """
        ready = {key: value for key, value in arguments.items() if key != SAVE_TO}
        for place in _places(name, ready):
            ready[place] = await self._replaced(place, ready[place])
        return ready

    def folder(self, arguments: Mapping[str, Any]) -> Path | None:
        """Where files are to be saved, if they are."""
        return self._folders.folder(str(arguments[SAVE_TO])) if SAVE_TO in arguments else None

    async def saved(self, result: CallToolResult, folder: Path) -> CallToolResult:
        """The result, with where its files have been saved."""
        made = (result.structured_content or {}).get("files", [])
        content = list(result.content)
        for file in made:
            artifact = await self._house.artifact(resource_uris.digest(file["uri"]))
            (path,) = await self._house.save(artifact, folder)
            file["path"] = str(path)
            content.append(TextContent(text=f"Saved: {path}"))
        return result.model_copy(update={"content": content})

    async def _replaced(self, place: str, value: Any) -> Any:
        match value:
            case str() if _is_local(place, value):
                kept = await self._house.upload(self._folders.file(value), expires_after=int(KEPT_SECONDS))
                return kept.id
            case list():
                return [await self._replaced(place, item) for item in value]
            case dict() if place == "arguments":
                return {key: await self._replaced(place, item) for key, item in value.items()}
        return value


def _places(name: str, arguments: Mapping[str, Any]) -> list[str]:
    """Arguments that may name files; of a single task, all but those that every tool has."""
    named = {"files", "arguments"} if name in FIXED else arguments.keys() - {"parameters", "policy", "wait_seconds"}
    return sorted(named & arguments.keys())


def _texts(name: str, arguments: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(place, text) for place in _places(name, arguments) for text in _strings(arguments[place])]


def _strings(value: Any) -> list[str]:
    match value:
        case str():
            return [value]
        case list():
            return [text for item in value for text in _strings(item)]
        case dict():
            return [text for item in value.values() for text in _strings(item)]
    return []


def _is_local(place: str, text: str) -> bool:
    """Where words may stand, only a URI is a file."""
    return text.startswith(SCHEME) or (place == "files" and not is_reference(text))

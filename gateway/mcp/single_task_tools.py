"""Lists the available tasks and builds plans of a single task."""

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any

from gateway.core.catalog import Catalog
from gateway.core.file_references import FileResolver
from gateway.json_decoder import decode
from gateway.json_encoder import encode
from gateway.mcp.file_references import is_reference, resolve_file
from gateway.mcp.schemas import Schema
from protos.hugginggpt.v1.artifact_pb2 import MODALITY_JSON, MODALITY_TABLE, MODALITY_TEXT, Artifact
from protos.hugginggpt.v1.gateway_pb2 import ListTasksRequest
from protos.hugginggpt.v1.plan_pb2 import Plan
from protos.hugginggpt.v1.task_pb2 import Port, Task, TaskSpec
from services.common.errors import InvalidRequest, NotFound

Read = Callable[[str, str], Awaitable[Artifact]]
"""Resolves a file reference at a position in the arguments."""

_SCHEMAS = {
    MODALITY_TEXT: {"type": "string"},
    MODALITY_JSON: {},
    MODALITY_TABLE: {"type": "string", "description": "CSV text, or a file."},
}
_FILE = {"type": "string", "minLength": 1, "description": "An https URL, a file id (file_…), or the URI of a result."}


class SingleTasks:
    """The tasks that are available now."""

    def __init__(self, catalog: Catalog, file_resolver: FileResolver) -> None:
        self._catalog = catalog
        self._file_resolver = file_resolver

    async def specs(self) -> dict[str, TaskSpec]:
        """Specs of all available tasks, by name."""
        reply = await self._catalog.tasks(ListTasksRequest())
        return {task.spec.name: task.spec for task in reply.tasks}

    async def describe(self, name: str, about: str) -> list[dict[str, Any]]:
        """Describes one task; without a name, lists the tasks whose description contains all words of `about`.

        Raises:
            NotFound: TASK, no available task has this name.
        """
        specs = await self.specs()
        if name:
            return [_description(_known(specs, name))]
        query = about.lower().split()
        found = [spec for spec in specs.values() if all(word in _searchable_text(spec) for word in query)]
        return [{"name": spec.name, "description": spec.description} for spec in found]

    async def plan(
        self, name: str, arguments: Mapping[str, Any], parameters: Mapping[str, Any], site: str, model: str = ""
    ) -> Plan:
        """Builds a plan of one task.

        Raises:
            NotFound: TASK, no available task has this name.
            InvalidRequest: an argument has no port, or a file cannot be resolved.
        """
        spec = _known(await self.specs(), name)
        ports = {port.name: port for port in spec.inputs}
        if unknown := sorted(arguments.keys() - ports.keys()):
            raise InvalidRequest(
                f"{name} has no input {unknown[0][:100]!r}",
                reason="PORT",
                remedy=f"use {', '.join(ports)}; pass parameters in `parameters`",
                port=unknown[0],
            )
        resolver = self._file_resolver
        read = partial(resolve_file, resolver, site=site, allowance=resolver.allowance())
        given = {port: await _value(ports[port], value, f"arguments.{port}", read) for port, value in arguments.items()}
        task = {"id": 1, "task": name, "arguments": given, "parameters": dict(parameters), "pinned_model": model}
        return Plan(tasks=[decode(Task, task, "task")])


async def _value(port: Port, value: Any, where: str, read: Read) -> Any:
    if port.many and isinstance(value, list):
        return [await _one(port, item, f"{where}[{index}]", read) for index, item in enumerate(value)]
    return await _one(port, value, where, read)


async def _one(port: Port, value: Any, where: str, read: Read) -> Any:
    if port.modality == MODALITY_JSON:
        return {"json": value}
    is_file = isinstance(value, str) and port.modality != MODALITY_TEXT
    if not is_file or (port.modality == MODALITY_TABLE and not is_reference(value)):
        return value
    return {"artifact": encode(await read(value, where))}


def arguments_schema(spec: TaskSpec) -> Schema:
    """Schema of a task's input ports, and of its parameters under `parameters`."""
    properties = {port.name: _port_schema(port) for port in spec.inputs}
    if spec.parameters:
        parameters = {
            parameter.name: _parameter_schema(parameter.json_schema, parameter.description)
            for parameter in spec.parameters
        }
        properties["parameters"] = {"type": "object", "properties": parameters, "additionalProperties": False}
    return properties


def required(ports: Iterable[Port]) -> list[str]:
    return [port.name for port in ports if port.required]


def _port_schema(port: Port) -> Schema:
    one = dict(_SCHEMAS.get(port.modality, _FILE))
    description = " ".join(filter(None, (port.description, str(one.pop("description", "")))))
    kind: Schema = {"type": "array", "items": one, "minItems": 1} if port.many else one
    return kind | ({"description": description} if description else {})


def _parameter_schema(json_schema: str, description: str) -> Schema:
    schema: Schema = json.loads(json_schema) if json_schema else {}
    return schema | ({"description": description} if description else {})


def _description(spec: TaskSpec) -> dict[str, Any]:
    schema = {"type": "object", "properties": arguments_schema(spec), "required": required(spec.inputs)}
    outputs = [
        {"name": port["name"], "modality": port["modality"], "description": port.get("description", "")}
        for port in encode(spec)["outputs"]
    ]
    return {"name": spec.name, "description": spec.description, "takes": schema, "outputs": outputs}


def _searchable_text(spec: TaskSpec) -> str:
    return " ".join((spec.name, spec.description, *spec.examples)).lower()


def _known(specs: Mapping[str, TaskSpec], name: str) -> TaskSpec:
    if name not in specs:
        raise NotFound(
            f"the task {name[:100]!r} is not available",
            reason="TASK",
            remedy="call the tool tasks to list the available tasks",
        )
    return specs[name]

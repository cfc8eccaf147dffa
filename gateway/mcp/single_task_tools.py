"""Single tasks: what kinds there are, and a plan of one."""

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any

from gateway.catalog import Catalogue
from gateway.json_decoder import decode
from gateway.json_encoder import encode
from gateway.mcp.file_references import References, is_reference
from gateway.mcp.schemas import Schema
from protos.hugginggpt.v1.artifact_pb2 import MODALITY_JSON, MODALITY_TABLE, MODALITY_TEXT, Artifact
from protos.hugginggpt.v1.gateway_pb2 import ListTasksRequest
from protos.hugginggpt.v1.plan_pb2 import Plan
from protos.hugginggpt.v1.task_pb2 import Port, Task, TaskSpec
from services.common.errors import InvalidRequest, NotFound

Read = Callable[[str, str], Awaitable[Artifact]]
"""Finds what a text stands for, at a place in the arguments."""

_PLACES = {
    MODALITY_TEXT: {"type": "string"},
    MODALITY_JSON: {},
    MODALITY_TABLE: {"type": "string", "description": "CSV, or a file."},
}
_FILE = {"type": "string", "minLength": 1, "description": "An https URL, a file's id (file_…), or a result's URI."}


class Singles:
    """The kinds of task that can be run now, one by one."""

    def __init__(self, catalogue: Catalogue, references: References) -> None:
        self._catalogue = catalogue
        self._references = references

    async def specs(self) -> dict[str, TaskSpec]:
        """All of them, by name."""
        reply = await self._catalogue.tasks(ListTasksRequest())
        return {task.spec.name: task.spec for task in reply.tasks}

    async def listed(self, name: str, about: str) -> list[dict[str, Any]]:
        """All about one kind; without a name a line about each, or about those whose description has all the words.

        Raises:
            NotFound: TASK, there is none of that name now.
        """
        specs = await self.specs()
        if name:
            return [_whole(_known(specs, name))]
        words = about.lower().split()
        found = [spec for spec in specs.values() if all(word in _searched(spec) for word in words)]
        return [{"name": spec.name, "description": spec.description} for spec in found]

    async def plan(
        self, name: str, arguments: Mapping[str, Any], parameters: Mapping[str, Any], site: str, model: str = ""
    ) -> Plan:
        """A plan of one task.

        Raises:
            NotFound: TASK, there is none of that name now.
            InvalidRequest: an argument is for no port, or cannot be read.
        """
        spec = _known(await self.specs(), name)
        ports = {port.name: port for port in spec.inputs}
        if unknown := sorted(arguments.keys() - ports.keys()):
            raise InvalidRequest(
                f"{name} has no input {unknown[0][:100]!r}",
                reason="PORT",
                remedy=f"use {', '.join(ports)}; parameters are given apart",
                port=unknown[0],
            )
        read = partial(self._references.artifact, site=site, allowance=self._references.allowance())
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
    named = isinstance(value, str) and port.modality != MODALITY_TEXT
    if not named or (port.modality == MODALITY_TABLE and not is_reference(value)):
        return value
    return {"artifact": encode(await read(value, where))}


def arguments_schema(spec: TaskSpec) -> Schema:
    """What a task takes, by port and under parameters."""
    properties = {port.name: _place(port) for port in spec.inputs}
    if spec.parameters:
        parameters = {
            parameter.name: _knob(parameter.json_schema, parameter.description) for parameter in spec.parameters
        }
        properties["parameters"] = {"type": "object", "properties": parameters, "additionalProperties": False}
    return properties


def required(ports: Iterable[Port]) -> list[str]:
    return [port.name for port in ports if port.required]


def _place(port: Port) -> Schema:
    one = dict(_PLACES.get(port.modality, _FILE))
    description = " ".join(filter(None, (port.description, str(one.pop("description", "")))))
    kind: Schema = {"type": "array", "items": one, "minItems": 1} if port.many else one
    return kind | ({"description": description} if description else {})


def _knob(json_schema: str, description: str) -> Schema:
    schema: Schema = json.loads(json_schema) if json_schema else {}
    return schema | ({"description": description} if description else {})


def _whole(spec: TaskSpec) -> dict[str, Any]:
    schema = {"type": "object", "properties": arguments_schema(spec), "required": required(spec.inputs)}
    outputs = [
        {"name": port["name"], "modality": port["modality"], "description": port.get("description", "")}
        for port in encode(spec)["outputs"]
    ]
    return {"name": spec.name, "description": spec.description, "takes": schema, "outputs": outputs}


def _searched(spec: TaskSpec) -> str:
    return " ".join((spec.name, spec.description, *spec.examples)).lower()


def _known(specs: Mapping[str, TaskSpec], name: str) -> TaskSpec:
    if name not in specs:
        raise NotFound(
            f"there is no kind of task {name[:100]!r} now", reason="TASK", remedy="call tasks to see which there are"
        )
    return specs[name]

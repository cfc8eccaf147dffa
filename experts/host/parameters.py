"""The parameters of a kind of task: checked against the schemas in its spec, completed by their defaults."""

from collections.abc import Mapping
from typing import Any

from jsonschema import Draft202012Validator, SchemaError
from jsonschema.exceptions import best_match

from experts.host import strict_json
from protos.hugginggpt.v1.task_pb2 import TaskSpec
from services.common.errors import FailedPrecondition, InvalidRequest

PORT = "parameters"
"""Stands for an input port where the parameters are at fault; the one that is follows after a dot."""

_LONGEST_BYTES = 256 * 1024
_LONGEST_COMPLAINT = 300


def port_of(parameter: str) -> str:
    """What an error names as its port where a parameter is at fault."""
    return f"{PORT}.{parameter}"


class ParameterReader:
    """Reads the parameters of one kind of task.

    Raises:
        FailedPrecondition: a schema in the spec is none.
    """

    def __init__(self, spec: TaskSpec) -> None:
        self._task = spec.name
        self._schemas: dict[str, Mapping[str, Any]] = {p.name: _schema(spec, p.json_schema) for p in spec.parameters}
        self._defaults = {name: schema["default"] for name, schema in self._schemas.items() if "default" in schema}
        self._validator = Draft202012Validator(
            {"type": "object", "properties": self._schemas, "additionalProperties": False}
        )

    def read(self, parameters_json: str) -> dict[str, Any]:
        """The parameters by name, defaults included.

        Raises:
            InvalidRequest: names as its port the parameter that is unknown or out of its range, or where there is no
                JSON object all of them.
        """
        if not parameters_json:
            return dict(self._defaults)
        given = self._parsed(parameters_json)
        if unknown := sorted(given.keys() - self._schemas.keys()):
            raise self._refused(f"{self._task} has no parameter {unknown[0]}", port_of(unknown[0]))
        if error := best_match(self._validator.iter_errors(given)):
            at = [str(step) for step in error.absolute_path]
            raise self._refused(f"parameter {'.'.join(at)}: {error.message[:_LONGEST_COMPLAINT]}", port_of(at[0]))
        return self._defaults | {name: self._plain(name, value) for name, value in given.items()}

    def _parsed(self, parameters_json: str) -> dict[str, Any]:
        if len(parameters_json) > _LONGEST_BYTES:
            raise self._refused(f"the parameters have more than {_LONGEST_BYTES} bytes")
        try:
            given = strict_json.read(parameters_json)
        except ValueError as error:
            raise self._refused(f"the parameters are not JSON: {error}") from None
        if not isinstance(given, dict):
            raise self._refused("the parameters are not a JSON object")
        return given

    def _refused(self, complaint: str, port: str = PORT) -> InvalidRequest:
        return InvalidRequest(complaint, port=port, remedy=self._remedy())

    def _plain(self, name: str, value: Any) -> Any:
        """To JSON Schema 5.0 is an integer; to Python it is none."""
        return int(value) if self._schemas[name].get("type") == "integer" else value

    def _remedy(self) -> str:
        if not self._schemas:
            return f"{self._task} takes no parameters"
        return f"give a JSON object; {self._task} takes {', '.join(sorted(self._schemas))}"


def _schema(spec: TaskSpec, json_schema: str) -> dict[str, Any]:
    try:
        schema = strict_json.read(json_schema or "{}")
        Draft202012Validator.check_schema({"allOf": [schema]})
    except (ValueError, SchemaError):
        schema = None
    if not isinstance(schema, dict):
        raise FailedPrecondition(
            f"a parameter of {spec.name} has no valid JSON Schema: {json_schema}", remedy="correct the TaskSpec"
        )
    return schema

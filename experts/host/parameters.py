"""Validates the parameters of a call against the JSON Schemas of its task, and adds defaults."""

from collections.abc import Mapping
from typing import Any

from jsonschema import Draft202012Validator, SchemaError
from jsonschema.exceptions import best_match

from experts.host import strict_json
from protos.hugginggpt.v1.task_pb2 import TaskSpec
from services.common.errors import FailedPrecondition, InvalidRequest

PORT = "parameters"
"""Port named by errors about parameters; the name of the parameter follows after a dot."""

_MAX_BYTES = 256 * 1024
_MAX_MESSAGE_LENGTH = 300


def parameter_port(parameter: str) -> str:
    """Returns the port that an error about a parameter names."""
    return f"{PORT}.{parameter}"


class ParameterReader:
    """Reads the parameters of one task.

    Raises:
        FailedPrecondition: the spec contains an invalid schema.
    """

    def __init__(self, spec: TaskSpec) -> None:
        self._task = spec.name
        self._schemas: dict[str, Mapping[str, Any]] = {p.name: _schema(spec, p.json_schema) for p in spec.parameters}
        self._defaults = {name: schema["default"] for name, schema in self._schemas.items() if "default" in schema}
        self._validator = Draft202012Validator(
            {"type": "object", "properties": self._schemas, "additionalProperties": False}
        )

    def read(self, parameters_json: str) -> dict[str, Any]:
        """Returns the parameters by name, including defaults.

        Raises:
            InvalidRequest: a parameter is unknown or invalid (its port names it), or the text is not a JSON object.
        """
        if not parameters_json:
            return dict(self._defaults)
        given = self._parse(parameters_json)
        if unknown := sorted(given.keys() - self._schemas.keys()):
            raise self._error(f"{self._task} has no parameter {unknown[0]}", parameter_port(unknown[0]))
        if error := best_match(self._validator.iter_errors(given)):
            at = [str(step) for step in error.absolute_path]
            raise self._error(f"parameter {'.'.join(at)}: {error.message[:_MAX_MESSAGE_LENGTH]}", parameter_port(at[0]))
        return self._defaults | {name: self._to_python(name, value) for name, value in given.items()}

    def _parse(self, parameters_json: str) -> dict[str, Any]:
        if len(parameters_json) > _MAX_BYTES:
            raise self._error(f"the parameters have more than {_MAX_BYTES} bytes")
        try:
            given = strict_json.read(parameters_json)
        except ValueError as error:
            raise self._error(f"the parameters are not JSON: {error}") from None
        if not isinstance(given, dict):
            raise self._error("the parameters are not a JSON object")
        return given

    def _error(self, message: str, port: str = PORT) -> InvalidRequest:
        return InvalidRequest(message, port=port, remedy=self._remedy())

    def _to_python(self, name: str, value: Any) -> Any:
        """Converts floats such as 5.0, which JSON Schema accepts as integers, to int."""
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
            f"a parameter of {spec.name} has an invalid JSON Schema: {json_schema}", remedy="correct the TaskSpec"
        )
    return schema

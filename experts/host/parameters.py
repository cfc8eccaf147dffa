"""The parameters of a kind of task: checked against the schemas in its spec, completed by their defaults."""

from collections.abc import Mapping
from typing import Any

from jsonschema import Draft202012Validator, SchemaError
from jsonschema.exceptions import best_match

from experts.host import strict_json
from protos.hugginggpt.v1.types_pb2 import TaskSpec
from services.runtime.errors import FailedPrecondition, InvalidRequest

_LONGEST_BYTES = 256 * 1024
_LONGEST_COMPLAINT = 300


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
            InvalidRequest: no JSON object, an unknown parameter, or a value out of its range.
        """
        if not parameters_json:
            return dict(self._defaults)
        given = self._parsed(parameters_json)
        if unknown := sorted(given.keys() - self._schemas.keys()):
            raise InvalidRequest(f"{self._task} has no parameter {unknown[0]}", remedy=self._remedy())
        if error := best_match(self._validator.iter_errors(given)):
            at = ".".join(str(step) for step in error.absolute_path)
            raise InvalidRequest(f"parameter {at}: {error.message[:_LONGEST_COMPLAINT]}", remedy=self._remedy())
        return self._defaults | {name: self._plain(name, value) for name, value in given.items()}

    def _parsed(self, parameters_json: str) -> dict[str, Any]:
        if len(parameters_json) > _LONGEST_BYTES:
            raise InvalidRequest(f"the parameters have more than {_LONGEST_BYTES} bytes", remedy=self._remedy())
        try:
            given = strict_json.read(parameters_json)
        except ValueError as error:
            raise InvalidRequest(
                f"the parameters are not JSON: {error}", remedy="give a JSON object of parameters by name"
            ) from None
        if not isinstance(given, dict):
            raise InvalidRequest(
                "the parameters are not a JSON object", remedy="give a JSON object of parameters by name"
            )
        return given

    def _plain(self, name: str, value: Any) -> Any:
        """To JSON Schema 5.0 is an integer; to Python it is none."""
        return int(value) if self._schemas[name].get("type") == "integer" else value

    def _remedy(self) -> str:
        if not self._schemas:
            return f"{self._task} takes no parameters"
        return f"{self._task} takes " + ", ".join(sorted(self._schemas))


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

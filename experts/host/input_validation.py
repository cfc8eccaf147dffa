"""Validates the inputs and parameters of a call against its task, before the call waits for anything."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from jsonschema import Draft202012Validator, SchemaError
from jsonschema.exceptions import best_match

from protos.hugginggpt.v1.artifact_pb2 import (
    MODALITY_AUDIO,
    MODALITY_IMAGE,
    MODALITY_JSON,
    MODALITY_TABLE,
    MODALITY_TEXT,
    MODALITY_VIDEO,
    Value,
)
from protos.hugginggpt.v1.expert_pb2 import InferBatchItem, InferRequest
from protos.hugginggpt.v1.task_pb2 import Port, TaskSpec
from services.common import strict_json
from services.common.errors import FailedPrecondition, InvalidRequest

MAX_VALUES = 1_000
"""Maximum number of values of a port that takes many."""

_NAMES = {
    MODALITY_TEXT: "text",
    MODALITY_IMAGE: "an image",
    MODALITY_AUDIO: "audio",
    MODALITY_VIDEO: "video",
    MODALITY_TABLE: "a table",
    MODALITY_JSON: "JSON",
}
MEDIA_TYPES = {
    MODALITY_TEXT: ("text/", "application/json", "application/xml"),
    MODALITY_IMAGE: ("image/", "application/pdf"),
    MODALITY_AUDIO: ("audio/", "application/ogg"),
    MODALITY_VIDEO: ("video/", "application/ogg"),
    MODALITY_TABLE: (
        "text/",
        "application/json",
        "application/vnd.ms-excel",
        "application/vnd.openxmlformats-officedocument.spreadsheetml",
        "application/vnd.oasis.opendocument.spreadsheet",
    ),
    MODALITY_JSON: ("application/json",),
}
"""Prefixes of the media types that each modality accepts."""

_INLINE = {MODALITY_TEXT: "text", MODALITY_TABLE: "json", MODALITY_JSON: "json"}
"""Kind of inline value that each modality accepts, in addition to artifacts."""


@dataclass(frozen=True)
class Argument:
    """Validated values of one input port."""

    port: Port
    values: Sequence[Value]


ITEMS = "items"
"""Port named by errors about all items of an InferBatch."""


def check_item_count(count: int, capacity: int) -> None:
    """Checks the number of items of an InferBatch against the calls that the model accepts.

    Raises:
        InvalidRequest: there are none, or TOO_LARGE.
    """
    if not count:
        raise InvalidRequest("the call has no items", port=ITEMS, remedy="send at least one")
    if count > capacity:
        raise InvalidRequest(
            f"the call has {count} items, the model accepts {capacity} calls of this priority",
            port=ITEMS,
            reason="TOO_LARGE",
            remedy=f"send at most {capacity} at a time, or let the operator raise EXPERT_MAX_WAITING",
        )


class InputValidator:
    """Validates inputs against the ports of one task."""

    def __init__(self, spec: TaskSpec) -> None:
        self._task = spec.name
        self._ports = {port.name: port for port in spec.inputs}

    def read(self, request: InferRequest | InferBatchItem, *, max_bytes: int) -> list[Argument]:
        """Returns the validated inputs of a call.

        Raises:
            InvalidRequest: names the port that is unknown, missing or has a value of the wrong kind; TOO_LARGE if one
                port has too many values, or all inputs together exceed max_bytes (names the largest).
        """
        return self._read(request, max_bytes)[0]

    def read_items(self, items: Iterable[InferBatchItem], *, max_bytes: int) -> list[list[Argument] | InvalidRequest]:
        """Returns the validated inputs of each item, or the error that `read` raises for it.

        Raises:
            InvalidRequest: TOO_LARGE, the valid items together exceed max_bytes.
        """
        found, total = list[list[Argument] | InvalidRequest](), 0
        for item in items:
            try:
                arguments, size = self._read(item, max_bytes)
            except InvalidRequest as error:
                found.append(error)
            else:
                found.append(arguments)
                total += size
        if total > max_bytes:
            raise InvalidRequest(
                f"the items have {total:,} bytes in total, the limit is {max_bytes:,}",
                port=ITEMS,
                reason="TOO_LARGE",
                remedy="send fewer items at a time, or let the operator raise EXPERT_MAX_INPUT_BYTES",
            )
        return found

    def _read(self, request: InferRequest | InferBatchItem, max_bytes: int) -> tuple[list[Argument], int]:
        """Returns the validated inputs of a call and their bytes."""
        if unknown := [name for name in (*request.inputs, *request.lists) if name not in self._ports]:
            name, known = min(unknown), ", ".join(self._ports)
            raise InvalidRequest(f"{self._task} has no input {name}", port=name, remedy=f"its inputs are {known}")
        given = [
            Argument(port, values)
            for name, port in self._ports.items()
            if (values := self._values(name, port, request))
        ]
        return given, check_size([(arg.port.name, _validate_values(arg)) for arg in given], max_bytes)

    def _values(self, name: str, port: Port, request: InferRequest | InferBatchItem) -> Sequence[Value]:
        single, many = name in request.inputs, name in request.lists
        misplaced = single if port.many else many
        if misplaced:
            takes = "a list of values" if port.many else "one value"
            raise InvalidRequest(f"input {name} takes {takes}", port=name, remedy=f"send {takes}")
        if single:
            return [request.inputs[name]]
        values: Sequence[Value] = request.lists[name].values if many else []
        if port.required and not values:
            raise InvalidRequest(
                f"{self._task} needs the input {name}", port=name, remedy=f"send {describe_port(port)}"
            )
        return values


FILES = (MODALITY_IMAGE, MODALITY_AUDIO, MODALITY_VIDEO)
"""Modalities whose files are decoded."""


def has_files(given: Iterable[Argument]) -> bool:
    """Whether a file has to be decoded for the call."""
    return any(argument.port.modality in FILES for argument in given)


def has_artifacts(given: Iterable[Argument]) -> bool:
    """Whether a value has to be fetched for the call."""
    return any(value.HasField("artifact") for argument in given for value in argument.values)


def _validate_values(argument: Argument) -> int:
    """Validates the values of one port and returns their bytes."""
    _check_count(argument)
    size, port = 0, argument.port
    for value in argument.values:
        kind = value.WhichOneof("kind")
        _check_kind(port, value, kind)
        size += value.artifact.size_bytes if kind == "artifact" else len(value.text or value.json)
    return size


def _check_count(argument: Argument) -> None:
    if len(argument.values) > MAX_VALUES:
        raise InvalidRequest(
            f"input {argument.port.name} has {len(argument.values)} values, the limit is {MAX_VALUES}",
            port=argument.port.name,
            reason="TOO_LARGE",
            remedy="send fewer at a time",
        )


def check_size(sizes: Sequence[tuple[str, int]], max_bytes: float) -> int:
    """Checks the total size of the inputs, given as bytes by port, and returns it.

    Raises:
        InvalidRequest: TOO_LARGE, naming the port with the most bytes.
    """
    size = sum(size for _, size in sizes)
    if size > max_bytes:
        raise InvalidRequest(
            f"the inputs have {size:,} bytes in total, the limit is {max_bytes:,}",
            port=max(sizes, key=itemgetter(1))[0],
            reason="TOO_LARGE",
            remedy="send smaller files, or let the operator raise EXPERT_MAX_INPUT_BYTES",
        )
    return size


def _check_kind(port: Port, value: Value, kind: str | None) -> None:
    if kind == "artifact":
        if not value.artifact.media_type.startswith(MEDIA_TYPES[port.modality]):
            what = value.artifact.media_type or "a file of unknown type"
            raise InvalidRequest(
                f"input {port.name} takes {describe_port(port)}, not {what}",
                port=port.name,
                remedy=f"send {describe_port(port)}",
            )
    elif kind is None or kind != _INLINE.get(port.modality):
        what = {"text": "text", "json": "JSON", None: "nothing"}[kind]
        raise InvalidRequest(
            f"input {port.name} takes {describe_port(port)}, not {what}",
            port=port.name,
            remedy=f"send {describe_port(port)}",
        )


def describe_port(port: Port) -> str:
    """Returns what the port accepts, such as "an image"."""
    return _NAMES[port.modality]


PORT = "parameters"
"""Port named by errors about parameters; the name of the parameter follows after a dot."""

_MAX_BYTES = 256 * 1024
_MAX_MESSAGE_LENGTH = 300


def parameter_port(parameter: str) -> str:
    """Returns the port that an error about a parameter names."""
    return f"{PORT}.{parameter}"


def read_candidate_labels(parameters: Mapping[str, Any]) -> list[str]:
    """Returns the labels of a call to choose from, without duplicates.

    Raises:
        InvalidRequest: there are none, or one is empty.
    """
    labels = list(dict.fromkeys(label.strip() for label in parameters.get("candidate_labels", ())))
    if not labels or not all(labels):
        raise InvalidRequest(
            "the parameter candidate_labels is missing or has an empty label",
            port=parameter_port("candidate_labels"),
            remedy='give the labels to choose from, such as ["cat", "dog"]',
        )
    return labels


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

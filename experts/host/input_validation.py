"""Validates the inputs of a call against the ports of its task, before the call waits for anything."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter

from protos.hugginggpt.v1.artifact_pb2 import (
    MODALITY_AUDIO,
    MODALITY_IMAGE,
    MODALITY_JSON,
    MODALITY_TABLE,
    MODALITY_TEXT,
    MODALITY_VIDEO,
    Value,
)
from protos.hugginggpt.v1.expert_pb2 import InferRequest
from protos.hugginggpt.v1.task_pb2 import Port, TaskSpec
from services.common.errors import InvalidRequest

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
"""Kind of inline value that each modality accepts, besides artifacts."""


@dataclass(frozen=True)
class Argument:
    """Validated values of one input port."""

    port: Port
    values: Sequence[Value]


class InputValidator:
    """Validates inputs against the ports of one task."""

    def __init__(self, spec: TaskSpec) -> None:
        self._task = spec.name
        self._ports = {port.name: port for port in spec.inputs}

    def read(self, request: InferRequest, *, max_bytes: int) -> list[Argument]:
        """Returns the validated inputs of a call.

        Raises:
            InvalidRequest: names the port that is unknown, missing or has a value of the wrong kind; TOO_LARGE if one
                port has too many values, or all inputs together exceed max_bytes (names the largest).
        """
        if unknown := [name for name in (*request.inputs, *request.lists) if name not in self._ports]:
            name, known = min(unknown), ", ".join(self._ports)
            raise InvalidRequest(f"{self._task} has no input {name}", port=name, remedy=f"its inputs are {known}")
        given = [
            Argument(port, values)
            for name, port in self._ports.items()
            if (values := self._values(name, port, request))
        ]
        check_size([(argument.port.name, _validate_values(argument)) for argument in given], max_bytes)
        return given

    def _values(self, name: str, port: Port, request: InferRequest) -> Sequence[Value]:
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


def check_size(sizes: Sequence[tuple[str, int]], max_bytes: float) -> None:
    """Checks the total size of the inputs, given as bytes by port.

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

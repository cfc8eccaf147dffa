"""Values to plain Python and back, by port: what a model sees, and what of its results may leave.

The form of inputs is checked at once, before anything waits; their content, and all of the outputs, on a thread.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from experts.host import strict_json
from experts.host.handler import Inputs, Media, Outputs
from protos.hugginggpt.v1.expert_pb2 import InferRequest
from protos.hugginggpt.v1.types_pb2 import (
    MODALITY_AUDIO,
    MODALITY_IMAGE,
    MODALITY_JSON,
    MODALITY_TABLE,
    MODALITY_TEXT,
    MODALITY_VIDEO,
    Port,
    TaskSpec,
    Value,
)
from services.runtime.artifacts import INLINE_BYTES, ArtifactStore
from services.runtime.errors import CorruptData, InvalidRequest, ModelFailed, NotFound

_NAMES = {
    MODALITY_TEXT: "text",
    MODALITY_IMAGE: "an image",
    MODALITY_AUDIO: "audio",
    MODALITY_VIDEO: "video",
    MODALITY_TABLE: "a table",
    MODALITY_JSON: "JSON",
}
_MEDIA_TYPES = {
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
"""How the media types begin that may stand for a modality."""

_INLINE = {MODALITY_TEXT: "text", MODALITY_TABLE: "json", MODALITY_JSON: "json"}
"""Which kind of value may carry a modality beside an artifact."""


@dataclass(frozen=True)
class Argument:
    """What a call gives on one port, right in form. A port that takes one value has one."""

    port: Port
    values: Sequence[Value]


def arguments(spec: TaskSpec, request: InferRequest, *, max_bytes: int) -> list[Argument]:
    """What a call gives on the ports of its task.

    Raises:
        InvalidRequest: names the port that is unknown, missing or given what it does not take; TOO_LARGE where the
            artifacts together have more than max_bytes.
    """
    unknown = (request.inputs.keys() | request.lists.keys()) - {port.name for port in spec.inputs}
    if unknown:
        name, known = min(unknown), ", ".join(port.name for port in spec.inputs)
        raise InvalidRequest(f"{spec.name} has no input {name}", port=name, remedy=f"its inputs are {known}")
    given = [Argument(port, values) for port in spec.inputs if (values := _values(spec, port, request))]
    for argument in given:
        for value in argument.values:
            _check_form(argument.port, value)
    size = sum(value.artifact.size_bytes for argument in given for value in argument.values)
    if size > max_bytes:
        raise InvalidRequest(
            f"the files have {size} bytes together, the limit is {max_bytes}",
            reason="TOO_LARGE",
            remedy="send smaller files, or let the operator raise EXPERT_MAX_INPUT_BYTES",
        )
    return given


def _values(spec: TaskSpec, port: Port, request: InferRequest) -> Sequence[Value]:
    single, many = port.name in request.inputs, port.name in request.lists
    misplaced = single if port.many else many
    if misplaced:
        takes = "a list of values" if port.many else "one value"
        raise InvalidRequest(f"input {port.name} takes {takes}", port=port.name, remedy=f"send {takes}")
    values: Sequence[Value] = request.lists[port.name].values if many else []
    if single:
        values = [request.inputs[port.name]]
    if port.required and not values:
        raise InvalidRequest(f"{spec.name} needs the input {port.name}", port=port.name, remedy=f"send {_name(port)}")
    return values


def _check_form(port: Port, value: Value) -> None:
    kind = value.WhichOneof("kind")
    if kind == "artifact":
        if not value.artifact.media_type.startswith(_MEDIA_TYPES[port.modality]):
            what = value.artifact.media_type or "a file of unknown type"
            raise InvalidRequest(
                f"input {port.name} takes {_name(port)}, not {what}", port=port.name, remedy=f"send {_name(port)}"
            )
    elif kind is None or kind != _INLINE.get(port.modality):
        what = {"text": "text", "json": "JSON", None: "nothing"}[kind]
        raise InvalidRequest(
            f"input {port.name} takes {_name(port)}, not {what}", port=port.name, remedy=f"send {_name(port)}"
        )


def _name(port: Port) -> str:
    return _NAMES[port.modality]


# ---------------------------------------------------------------- what a model sees


async def fetched(given: Iterable[Argument], store: ArtifactStore, tenant: str) -> Callable[[], Inputs]:
    """Gets the artifacts; the function returned makes plain Python of all, and belongs on a thread.

    Raises:
        NotFound: ARTIFACT, the tenant has none of that digest.
    """
    contents = [
        (argument.port, [(value, await _content(argument.port, value, store, tenant)) for value in argument.values])
        for argument in given
    ]
    return partial(_plain_inputs, contents)


async def _content(port: Port, value: Value, store: ArtifactStore, tenant: str) -> bytes:
    if value.WhichOneof("kind") != "artifact":
        return b""
    try:
        return await store.get(tenant, value.artifact.sha256)
    except (NotFound, InvalidRequest, CorruptData) as error:
        error.port = port.name
        raise


def _plain_inputs(contents: Iterable[tuple[Port, Sequence[tuple[Value, bytes]]]]) -> Inputs:
    inputs: dict[str, Any] = {}
    for port, received in contents:
        plain = [_plain(port, value, content) for value, content in received]
        inputs[port.name] = plain if port.many else plain[0]
    return inputs


def _plain(port: Port, value: Value, content: bytes) -> Any:
    if port.modality == MODALITY_TEXT:
        return _text(port, value.text or _decoded(port, content))
    if port.modality == MODALITY_JSON:
        return _json(port, value.json or _decoded(port, content))
    if value.WhichOneof("kind") == "json":
        return Media(value.json.encode(), "application/json", f"{port.name}.json")
    return Media(content, value.artifact.media_type, value.artifact.name)


def _text(port: Port, text: str) -> str:
    if not text.strip():
        raise InvalidRequest(f"input {port.name} has no text in it", port=port.name, remedy="send some text")
    return text


def _decoded(port: Port, content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidRequest(
            f"the file for input {port.name} is not UTF-8 text", port=port.name, remedy="save it as UTF-8"
        ) from None


def _json(port: Port, text: str) -> Any:
    try:
        return strict_json.read(text)
    except ValueError as error:
        raise InvalidRequest(
            f"input {port.name} is not JSON: {error}", port=port.name, remedy="send valid JSON with finite numbers"
        ) from None


# ---------------------------------------------------------------- what may leave

Written = Mapping[str, Value | Media]
"""By output port; Media still have to be put into the store."""


def written(spec: TaskSpec, model_id: str, outputs: Outputs) -> Written:
    """What a model gave, checked against the ports of its task; belongs on a thread.

    Raises:
        CorruptData: it breaks the spec.
        ModelFailed: a number is not finite.
    """
    ports = {port.name: port for port in spec.outputs}
    complaints = [f"there is no output {name}" for name in outputs if name not in ports]
    complaints += [
        f"output {port.name} is missing" for port in spec.outputs if port.required and port.name not in outputs
    ]
    if complaints:
        raise _broken(model_id, complaints[0])
    return {name: _written(ports[name], model_id, output) for name, output in outputs.items()}


async def kept(outputs: Written, store: ArtifactStore, tenant: str) -> dict[str, Value]:
    """The outputs as values; media are now artifacts of the tenant."""
    values = {}
    for name, output in outputs.items():
        if isinstance(output, Media):
            artifact = await store.put(tenant, output.content, media_type=output.media_type, name=output.name)
            values[name] = Value(artifact=artifact)
        else:
            values[name] = output
    return values


def _written(port: Port, model_id: str, output: Any) -> Value | Media:
    if port.modality == MODALITY_JSON:
        text = _canonical(port, model_id, output)
        return _spilled(port, model_id, text, "application/json", ".json") or Value(json=text)
    if port.modality == MODALITY_TEXT and isinstance(output, str):
        return _spilled(port, model_id, output, "text/plain", ".txt") or Value(text=output)
    if port.modality == MODALITY_TEXT or not _is_media_for(port, output):
        what = type(output).__name__
        if isinstance(output, Media):
            what = output.media_type if output.content else "empty"
        raise _broken(model_id, f"output {port.name} is {what}, not {_name(port)}")
    return output  # type: ignore[no-any-return]  # it is Media


def _is_media_for(port: Port, output: Any) -> bool:
    return (
        isinstance(output, Media) and bool(output.content) and output.media_type.startswith(_MEDIA_TYPES[port.modality])
    )


def _canonical(port: Port, model_id: str, output: Any) -> str:
    try:
        return strict_json.write(output)
    except TypeError as error:
        raise _broken(model_id, f"output {port.name} is not JSON: {error}") from None
    except (ValueError, RecursionError):
        raise ModelFailed(
            f"{model_id} failed on this input: output {port.name} is not JSON with finite numbers",
            remedy="try another input or another model",
        ) from None


def _spilled(port: Port, model_id: str, text: str, media_type: str, suffix: str) -> Media | None:
    """The text as media if it is too long to travel inline."""
    try:
        content = text.encode()
    except UnicodeEncodeError:
        raise _broken(model_id, f"output {port.name} has characters in it that are none") from None
    return Media(content, media_type, port.name + suffix) if len(content) > INLINE_BYTES else None


def _broken(model_id: str, complaint: str) -> CorruptData:
    return CorruptData(
        f"{model_id} broke the ports of its task: {complaint}", remedy="report it to whoever made the expert"
    )

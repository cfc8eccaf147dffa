"""Converts input values to plain Python, and a model's outputs to values; the conversions run on a thread."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import inf, isfinite
from typing import Any

from experts.host.handler import Inputs, Media, Outputs
from experts.host.input_validation import MEDIA_TYPES, Argument, check_size, describe_port
from protos.hugginggpt.v1.artifact_pb2 import MODALITY_JSON, MODALITY_TEXT, Value
from protos.hugginggpt.v1.task_pb2 import Port, TaskSpec
from services.common import strict_json
from services.common.artifacts import INLINE_BYTES, ArtifactStore
from services.common.errors import CorruptData, InvalidRequest, ModelFailed, NotFound

_MAX_DEPTH = 8
"""Depth to which an output is searched for the number that is not finite."""

_ABSENT = (
    "send the file again; if every file fails, set ARTIFACTS_URL of this expert to the deployment's artifact store "
    "and mount its volume"
)

# ---------------------------------------------------------------- inputs


async def fetch_inputs(
    arguments: Iterable[Argument], store: ArtifactStore, tenant: str, *, max_bytes: float = inf
) -> Callable[[], Inputs]:
    """Fetches the artifacts; returns a function that converts all inputs, which must be called on a thread.

    Raises:
        NotFound: ARTIFACT, the tenant has no artifact with the digest.
        InvalidRequest: an artifact is empty, or they are larger than the request states.
    """
    contents = [
        (argument.port, [(value, await _content(argument.port, value, store, tenant)) for value in argument.values])
        for argument in arguments
    ]
    check_size([(port.name, sum(len(content) for _, content in received)) for port, received in contents], max_bytes)
    return partial(plain_inputs, contents)


async def _content(port: Port, value: Value, store: ArtifactStore, tenant: str) -> bytes:
    if value.WhichOneof("kind") != "artifact":
        return b""
    try:
        content = await store.get(tenant, value.artifact.sha256)
    except (NotFound, InvalidRequest, CorruptData) as error:
        error.port = port.name
        if isinstance(error, NotFound):
            error.remedy = _ABSENT
        raise
    return content


def plain_inputs(contents: Iterable[tuple[Port, Sequence[tuple[Value, bytes]]]]) -> Inputs:
    """Converts values to plain Python; must be called on a thread.

    Args:
        contents: the values of each port, with the content of those that are artifacts.

    Raises:
        InvalidRequest: a file is empty, or is not of the port's format.
    """
    inputs: dict[str, Any] = {}
    for port, received in contents:
        plain = [_to_plain_value(port, value, content) for value, content in received]
        inputs[port.name] = plain if port.many else plain[0]
    return inputs


def _to_plain_value(port: Port, value: Value, content: bytes) -> Any:
    if value.HasField("artifact") and not content and port.modality != MODALITY_TEXT:  # for which _text raises
        raise InvalidRequest(
            f"the file for input {port.name} is empty", port=port.name, remedy=f"send {describe_port(port)}"
        )
    if port.modality == MODALITY_TEXT:
        return _text(port, value.text or _decode_text(port, content))
    if port.modality == MODALITY_JSON:
        return _json(port, value.json or _decode_text(port, content))
    if value.WhichOneof("kind") == "json":
        return Media(value.json.encode(), "application/json", f"{port.name}.json")
    return Media(content, value.artifact.media_type, value.artifact.name)


def _text(port: Port, text: str) -> str:
    if not text.strip():
        raise InvalidRequest(f"input {port.name} contains no text", port=port.name, remedy="send some text")
    return text


def _decode_text(port: Port, content: bytes) -> str:
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


# ---------------------------------------------------------------- outputs

ConvertedOutputs = Mapping[str, Value | Media]
"""Outputs by port; Media are not yet in the store."""


def output_ports(spec: TaskSpec) -> Mapping[str, Port]:
    """Returns the output ports of a task by name."""
    return {port.name: port for port in spec.outputs}


def convert_outputs(
    ports: Mapping[str, Port], model_id: str, outputs: Outputs, inline_bytes: float = INLINE_BYTES
) -> ConvertedOutputs:
    """Converts a model's outputs and checks them against the ports of its task; must be called on a thread.

    Args:
        ports: of the task's outputs, by name.
        model_id: the model.
        outputs: of the model.
        inline_bytes: longest text or JSON in bytes that is not stored as an artifact.

    Raises:
        CorruptData: the outputs violate the task spec.
        ModelFailed: a number is not finite.
    """
    if outputs.keys() != ports.keys():
        _check_names(ports, model_id, outputs)
    return {name: _convert_output(ports[name], model_id, output, inline_bytes) for name, output in outputs.items()}


def _check_names(ports: Mapping[str, Port], model_id: str, outputs: Outputs) -> None:
    problems = [f"there is no output {name}" for name in outputs if name not in ports]
    problems += [f"output {name} is missing" for name, port in ports.items() if port.required and name not in outputs]
    if problems:
        raise _spec_error(model_id, problems[0])


async def store_outputs(outputs: ConvertedOutputs, store: ArtifactStore, tenant: str) -> dict[str, Value]:
    """Stores media as artifacts of the tenant; returns all outputs as values."""
    values = {}
    for name, output in outputs.items():
        if isinstance(output, Media):
            artifact = await store.put(tenant, output.content, media_type=output.media_type, name=output.name)
            values[name] = Value(artifact=artifact)
        else:
            values[name] = output
    return values


def _convert_output(port: Port, model_id: str, output: Any, inline_bytes: float) -> Value | Media:
    if port.modality == MODALITY_JSON:
        text = _canonical_json(port, model_id, output)
        content = _encode(port, model_id, text)
        is_long = len(content) > inline_bytes
        return Media(content, "application/json", f"{port.name}.json") if is_long else Value(json=text)
    if port.modality == MODALITY_TEXT and isinstance(output, str):
        content = _encode(port, model_id, output)
        return Media(content, "text/plain", f"{port.name}.txt") if len(content) > inline_bytes else Value(text=output)
    if port.modality == MODALITY_TEXT or not _is_media_for(port, output):
        what = type(output).__name__
        if isinstance(output, Media):
            what = output.media_type if output.content else "empty"
        raise _spec_error(model_id, f"output {port.name} is {what}, not {describe_port(port)}")
    return output  # type: ignore[no-any-return]  # it is Media


def _is_media_for(port: Port, output: Any) -> bool:
    return (
        isinstance(output, Media) and bool(output.content) and output.media_type.startswith(MEDIA_TYPES[port.modality])
    )


def _canonical_json(port: Port, model_id: str, output: Any) -> str:
    try:
        return strict_json.write(output)
    except TypeError as error:
        raise _spec_error(model_id, f"output {port.name} is not JSON: {error}") from None
    except (ValueError, RecursionError):
        found = next(
            _find_non_finite(output, port.name, _MAX_DEPTH), f"output {port.name} is not JSON with finite numbers"
        )
        raise ModelFailed(
            f"{model_id} failed on this input: {found}", remedy="try another input or another model"
        ) from None


def _find_non_finite(value: Any, path: str, depth: int) -> Iterator[str]:
    """Yields a message for each NaN or infinity in an output, with its path."""
    if isinstance(value, float) and not isfinite(value):
        yield f"output {path} is {value}"
    if not depth or isinstance(value, str):
        return
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _find_non_finite(item, f"{path}.{key}", depth - 1)
    elif isinstance(value, Sequence):
        for index, item in enumerate(value):
            yield from _find_non_finite(item, f"{path}[{index}]", depth - 1)


def _encode(port: Port, model_id: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise _spec_error(model_id, f"output {port.name} contains invalid Unicode") from None


def _spec_error(model_id: str, problem: str) -> CorruptData:
    return CorruptData(
        f"{model_id} violates the spec of its task: {problem}", remedy="report it to the maintainer of the expert"
    )

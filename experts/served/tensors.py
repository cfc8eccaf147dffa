"""Converts inputs to tensors and tensors to outputs, as configured."""

import json
import struct
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from experts.endpoints import results
from experts.host.handler import Inputs, Media, Outputs, Parameters
from experts.host.media import open_image, png, read_audio, wav
from experts.served import oip_messages
from experts.served.config import Input, Model, Output
from services.common.errors import InvalidRequest

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

_DTYPES: Mapping[str, str] = {
    "BOOL": "?",
    "UINT8": "<u1",
    "INT8": "<i1",
    "UINT16": "<u2",
    "INT16": "<i2",
    "UINT32": "<u4",
    "INT32": "<i4",
    "UINT64": "<u8",
    "INT64": "<i8",
    "FP16": "<f2",
    "FP32": "<f4",
    "FP64": "<f8",
}
_CONTENTS: Mapping[str, str] = {
    "BOOL": "bool_contents",
    "UINT8": "uint_contents",
    "INT8": "int_contents",
    "UINT16": "uint_contents",
    "INT16": "int_contents",
    "UINT32": "uint_contents",
    "INT32": "int_contents",
    "UINT64": "uint64_contents",
    "INT64": "int64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
}
_CHANNELS = 3
_WHITE = 255
_DIGITS = 6


def build_request(model: Model, inputs: Inputs, parameters: Parameters) -> Any:
    """Builds the request of one call; tensors of absent inputs and parameters are omitted."""
    call = oip_messages.ModelInferRequest(model_name=model.name, model_version=model.version)
    for spec in model.inputs:
        value = inputs.get(spec.port) if spec.port else parameters.get(spec.parameter)
        if value is None:
            continue
        shape, raw = _encode(spec, value)
        call.inputs.append(oip_messages.Tensor(name=spec.tensor, datatype=spec.datatype, shape=shape))
        call.raw_input_contents.append(raw)
    call.outputs.extend(oip_messages.RequestedOutput(name=spec.tensor) for spec in model.outputs)
    return call


def build_outputs(model: Model, response: Any, parameters: Parameters) -> Outputs:
    """Converts a server's answer to outputs by port.

    Raises:
        ValueError: it does not match the configuration; also KeyError, struct.error.
    """
    tensors = {tensor.name: (tensor, index) for index, tensor in enumerate(response.outputs)}
    outputs: dict[str, Any] = {}
    for spec in model.outputs:
        tensor, index = tensors[spec.tensor]
        raw = response.raw_output_contents[index] if response.raw_output_contents else None
        outputs |= _decode(spec, tensor, raw, parameters)
    return outputs


# ---------------------------------------------------------------- to tensors


def _encode(spec: Input, value: Any) -> tuple[list[int], bytes]:
    import numpy as np

    if spec.datatype == "BYTES":
        items = value if isinstance(value, list) else [value]
        raw = b"".join(struct.pack("<I", len(item)) + item for item in map(_to_bytes, items))
        return (list(spec.shape) if len(items) == 1 else [len(items)]), raw
    if spec.as_ == "pixels":
        array = _to_pixels(spec, value)
    elif spec.as_ == "samples":
        samples, _ = read_audio(value, rate=spec.rate, port=spec.port)
        array = samples[None, :]
    else:
        array = _to_array(spec, value)
    return list(array.shape), np.ascontiguousarray(array.astype(_DTYPES[spec.datatype])).tobytes()


def _to_bytes(item: Any) -> bytes:
    if isinstance(item, Media):
        return item.content
    return (item if isinstance(item, str) else json.dumps(item)).encode()


def _to_array(spec: Input, value: Any) -> "Array":
    import numpy as np

    try:
        array = np.array(value, dtype=_DTYPES[spec.datatype])
        return array.reshape(spec.shape) if not array.shape else array
    except (ValueError, TypeError, OverflowError) as error:
        message = f"{spec.port or spec.parameter} is not an array of numbers"
        raise InvalidRequest(message, port=spec.port, remedy="send lists of numbers, all of one length") from error


def _to_pixels(spec: Input, media: Media) -> "Array":
    import numpy as np

    picture = open_image(media, port=spec.port)
    height, width = spec.shape[2:4] if spec.layout == "NCHW" else spec.shape[1:3]
    size = (width if width > 0 else picture.width, height if height > 0 else picture.height)
    array: Array = np.asarray(picture.resize(size), dtype=np.float32)
    if spec.datatype != "UINT8":
        array = (array / _WHITE - np.array(spec.mean, dtype=np.float32)) / np.array(spec.std, dtype=np.float32)
    return array.transpose(2, 0, 1)[None] if spec.layout == "NCHW" else array[None]


# ---------------------------------------------------------------- to ports


def _decode(spec: Output, tensor: Any, raw: bytes | None, parameters: Parameters) -> Outputs:
    import numpy as np

    if tensor.datatype == "BYTES":
        texts = [item.decode() for item in (tensor.contents.bytes_contents if raw is None else _split_items(raw))]
        return {spec.port: texts[0] if spec.as_ == "text" else json.loads(texts[0])}
    if raw is None:
        array = np.array(getattr(tensor.contents, _CONTENTS[tensor.datatype]), dtype=_DTYPES[tensor.datatype])
    else:
        array = np.frombuffer(raw, dtype=_DTYPES[tensor.datatype])
    array = array.reshape(tuple(tensor.shape))
    if spec.as_ == "labels":
        return _build_labels(spec, array, parameters)
    if spec.as_ == "image":
        return {spec.port: _to_image(spec, array)}
    if spec.as_ == "samples":
        return {spec.port: wav(array.reshape(-1).astype(np.float32), spec.rate, f"{spec.port}.wav")}
    if spec.as_ == "vector":
        return {spec.port: [round(float(value), results.VECTOR_DIGITS) for value in array.reshape(-1)]}
    return {spec.port: str(array.reshape(-1)[0]) if spec.as_ == "text" else _round(array)}


def _split_items(raw: bytes) -> Iterator[bytes]:
    """Yields the items, each of which is preceded by its length."""
    offset = 0
    while offset < len(raw):
        (length,) = struct.unpack_from("<I", raw, offset)
        offset += 4 + length
        if offset > len(raw):
            raise ValueError("a text is truncated")
        yield raw[offset - length : offset]


def _build_labels(spec: Output, array: "Array", parameters: Parameters) -> Outputs:
    import numpy as np

    scores = array.reshape(-1).astype(np.float64)
    if spec.softmax:
        scores = np.exp(scores - scores.max())
        scores /= scores.sum()
    return results.build_labels(zip(spec.labels, scores.tolist(), strict=True), parameters.get("top_k"))


def _to_image(spec: Output, array: "Array") -> Media:
    import numpy as np
    from PIL import Image

    pixels = array[0] if array.ndim > _CHANNELS else array
    if spec.layout == "NCHW" and pixels.ndim == _CHANNELS:
        pixels = pixels.transpose(1, 2, 0)
    if pixels.dtype != np.uint8:
        pixels = (pixels.astype(np.float32).clip(0, 1) * _WHITE).round().astype(np.uint8)
    return png(Image.fromarray(pixels[:, :, 0] if pixels.shape[2:] == (1,) else pixels), f"{spec.port}.png")


def _round(array: "Array") -> Any:
    return array.round(_DIGITS).tolist() if array.dtype.kind == "f" else array.tolist()

"""Converts inputs to tensors and tensors to outputs, as configured."""

import json
import struct
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from experts.endpoints import results
from experts.host.audio import read_audio, wav
from experts.host.handler import Inputs, Media, Outputs, Parameters
from experts.host.media import open_image, png
from experts.served import oip
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


def request(model: Model, inputs: Inputs, parameters: Parameters) -> Any:
    """Builds the request of one call; tensors of absent inputs and parameters are omitted."""
    call = oip.ModelInferRequest(model_name=model.name, model_version=model.version)
    for one in model.inputs:
        value = inputs.get(one.port) if one.port else parameters.get(one.parameter)
        if value is None:
            continue
        shape, raw = _encoded(one, value)
        call.inputs.append(oip.Tensor(name=one.tensor, datatype=one.datatype, shape=shape))
        call.raw_input_contents.append(raw)
    call.outputs.extend(oip.RequestedOutput(name=one.tensor) for one in model.outputs)
    return call


def outputs(model: Model, response: Any, parameters: Parameters) -> Outputs:
    """Converts a server's answer to outputs by port.

    Raises:
        ValueError: it does not match the configuration; also KeyError, struct.error.
    """
    tensors = {tensor.name: (tensor, at) for at, tensor in enumerate(response.outputs)}
    written: dict[str, Any] = {}
    for one in model.outputs:
        tensor, at = tensors[one.tensor]
        raw = response.raw_output_contents[at] if response.raw_output_contents else None
        written |= _decoded(one, tensor, raw, parameters)
    return written


# ---------------------------------------------------------------- to tensors


def _encoded(one: Input, value: Any) -> tuple[list[int], bytes]:
    import numpy as np

    if one.datatype == "BYTES":
        items = value if isinstance(value, list) else [value]
        raw = b"".join(struct.pack("<I", len(item)) + item for item in map(_bytes, items))
        return (list(one.shape) if len(items) == 1 else [len(items)]), raw
    if one.as_ == "pixels":
        array = _pixels(one, value)
    elif one.as_ == "samples":
        samples, _ = read_audio(value, rate=one.rate, port=one.port)
        array = samples[None, :]
    else:
        array = _numbers(one, value)
    return list(array.shape), np.ascontiguousarray(array.astype(_DTYPES[one.datatype])).tobytes()


def _bytes(item: Any) -> bytes:
    if isinstance(item, Media):
        return item.content
    return (item if isinstance(item, str) else json.dumps(item)).encode()


def _numbers(one: Input, value: Any) -> "Array":
    import numpy as np

    try:
        array = np.array(value, dtype=_DTYPES[one.datatype])
        return array.reshape(one.shape) if not array.shape else array
    except (ValueError, TypeError, OverflowError) as error:
        what = f"{one.port or one.parameter} is not an array of numbers"
        raise InvalidRequest(what, port=one.port, remedy="send lists of numbers, all of one length") from error


def _pixels(one: Input, media: Media) -> "Array":
    import numpy as np

    picture = open_image(media, port=one.port)
    height, width = one.shape[2:4] if one.layout == "NCHW" else one.shape[1:3]
    size = (width if width > 0 else picture.width, height if height > 0 else picture.height)
    array: Array = np.asarray(picture.resize(size), dtype=np.float32)
    if one.datatype != "UINT8":
        array = (array / _WHITE - np.array(one.mean, dtype=np.float32)) / np.array(one.std, dtype=np.float32)
    return array.transpose(2, 0, 1)[None] if one.layout == "NCHW" else array[None]


# ---------------------------------------------------------------- to ports


def _decoded(one: Output, tensor: Any, raw: bytes | None, parameters: Parameters) -> Outputs:
    import numpy as np

    if tensor.datatype == "BYTES":
        texts = [item.decode() for item in (tensor.contents.bytes_contents if raw is None else _items(raw))]
        return {one.port: texts[0] if one.as_ == "text" else json.loads(texts[0])}
    if raw is None:
        array = np.array(getattr(tensor.contents, _CONTENTS[tensor.datatype]), dtype=_DTYPES[tensor.datatype])
    else:
        array = np.frombuffer(raw, dtype=_DTYPES[tensor.datatype])
    array = array.reshape(tuple(tensor.shape))
    if one.as_ == "labels":
        return _labels(one, array, parameters)
    if one.as_ == "image":
        return {one.port: _image(one, array)}
    if one.as_ == "samples":
        return {one.port: wav(array.reshape(-1).astype(np.float32), one.rate, f"{one.port}.wav")}
    if one.as_ == "vector":
        return {one.port: [round(float(value), results.VECTOR_DIGITS) for value in array.reshape(-1)]}
    return {one.port: str(array.reshape(-1)[0]) if one.as_ == "text" else _rounded(array)}


def _items(raw: bytes) -> Iterator[bytes]:
    """Yields the items, each of which is preceded by its length."""
    at = 0
    while at < len(raw):
        (length,) = struct.unpack_from("<I", raw, at)
        at += 4 + length
        if at > len(raw):
            raise ValueError("a text is truncated")
        yield raw[at - length : at]


def _labels(one: Output, array: "Array", parameters: Parameters) -> Outputs:
    import numpy as np

    scores = array.reshape(-1).astype(np.float64)
    if one.softmax:
        scores = np.exp(scores - scores.max())
        scores /= scores.sum()
    return results.labels(zip(one.labels, scores.tolist(), strict=True), parameters.get("top_k"))


def _image(one: Output, array: "Array") -> Media:
    import numpy as np
    from PIL import Image

    pixels = array[0] if array.ndim > _CHANNELS else array
    if one.layout == "NCHW" and pixels.ndim == _CHANNELS:
        pixels = pixels.transpose(1, 2, 0)
    if pixels.dtype != np.uint8:
        pixels = (pixels.astype(np.float32).clip(0, 1) * _WHITE).round().astype(np.uint8)
    return png(Image.fromarray(pixels[:, :, 0] if pixels.shape[2:] == (1,) else pixels), f"{one.port}.png")


def _rounded(array: "Array") -> Any:
    return array.round(_DIGITS).tolist() if array.dtype.kind == "f" else array.tolist()

"""Small generated inputs of every modality."""

import io
import json
import math
import struct
import wave
import zlib
from collections.abc import Mapping
from typing import Any

from protos.hugginggpt.v1.artifact_pb2 import (
    MODALITY_AUDIO,
    MODALITY_IMAGE,
    MODALITY_JSON,
    MODALITY_TABLE,
    MODALITY_TEXT,
    MODALITY_VIDEO,
    Modality,
    Value,
)
from protos.hugginggpt.v1.task_pb2 import Parameter, Port, TaskSpec
from services.common.artifacts import ArtifactStore

TEXT = "Ada Lovelace wrote the first program in London in 1843. She was happy with it."
QUESTION = "Who wrote the first program?"
INSTRUCTION = "instruction"
"""An optional port that gets a sample because most tasks that have it need it."""

_TEXTS = {"question": QUESTION, INSTRUCTION: "Make the picture grey"}
TABLE = json.dumps([{"city": "London", "people": "9000000"}, {"city": "Paris", "people": "2100000"}])

SIDE, RATE, FRAMES, FRAMES_PER_SECOND = 64, 16_000, 16, 8

_BY_TYPE: Mapping[str, Any] = {"string": "happy", "boolean": False, "array": [], "object": {}}
_LANGUAGES = {"source_language": "en", "target_language": "de", "language": "en"}


async def value(port: Port, store: ArtifactStore, tenant: str) -> Value:
    """Returns a sample for a port; a file is stored as an artifact."""
    if port.modality == MODALITY_TEXT:
        return Value(text=_TEXTS.get(port.name, TEXT))
    if port.modality in (MODALITY_JSON, MODALITY_TABLE):
        return Value(json=TABLE)
    content, media_type, name = _FILES[port.modality]()
    return Value(artifact=await store.put(tenant, content, media_type=media_type, name=name))


def parameters(spec: TaskSpec) -> dict[str, Any]:
    """Returns values for parameters without which most tasks fail: required lists, and languages."""
    schemas = {parameter.name: json.loads(parameter.json_schema or "{}") for parameter in spec.parameters}
    lists = {
        name: ["happy", "sad"] for name, schema in schemas.items() if "default" not in schema and schema.get("minItems")
    }
    return lists | {name: language for name, language in _LANGUAGES.items() if name in schemas}


def out_of_range(parameter: Parameter) -> Any:
    """Returns a value that violates the parameter's schema; None if every value is valid."""
    schema = json.loads(parameter.json_schema or "{}")
    if "maximum" in schema:
        return schema["maximum"] + 1
    if "minimum" in schema:
        return schema["minimum"] - 1
    kind = schema.get("type")
    return next((other for name, other in _BY_TYPE.items() if name != kind), None) if kind else None


def picture() -> tuple[bytes, str, str]:
    """Returns a PNG of a red disc on white."""
    rows = b"".join(b"\0" + _row(y) for y in range(SIDE))
    header = struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)
    chunks = (_chunk(b"IHDR", header), _chunk(b"IDAT", zlib.compress(rows)), _chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks), "image/png", "disc.png"


def recording() -> tuple[bytes, str, str]:
    """Returns a WAV of a tone of one second."""
    samples = (int(12_000 * math.sin(2 * math.pi * 440 * n / RATE)) for n in range(RATE))
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(RATE)
        sound.writeframes(b"".join(struct.pack("<h", sample) for sample in samples))
    return file.getvalue(), "audio/wav", "tone.wav"


def video() -> tuple[bytes, str, str]:
    """Returns an AVI that shows the disc for two seconds; AVI can be written without an encoder."""
    frame = b"".join(_row(y)[::-1] for y in range(SIDE))  # bottom-up, in BGR; the disc is symmetric
    size, interval = len(frame), 1_000_000 // FRAMES_PER_SECOND
    main = struct.pack("<14I", interval, 0, 0, 0x10, FRAMES, 0, 1, size, SIDE, SIDE, 0, 0, 0, 0)
    rate = (1, FRAMES_PER_SECOND, 0, FRAMES, size, 0, 0)
    stream = (
        b"vidsDIB " + struct.pack("<3I", 0, 0, 0) + struct.pack("<7I", *rate) + struct.pack("<4H", 0, 0, SIDE, SIDE)
    )
    picture_header = struct.pack("<IiiHHIIiiII", 40, SIDE, SIDE, 1, 24, 0, size, 0, 0, 0, 0)
    streams = _list(b"strl", _riff(b"strh", stream) + _riff(b"strf", picture_header))
    headers = _list(b"hdrl", _riff(b"avih", main) + streams)
    frames = _riff(b"00db", frame) * FRAMES
    keys = b"".join(struct.pack("<4s3I", b"00db", 0x10, 4 + n * (size + 8), size) for n in range(FRAMES))
    return (
        _riff(b"RIFF", b"AVI " + headers + _list(b"movi", frames) + _riff(b"idx1", keys)),
        "video/x-msvideo",
        "disc.avi",
    )


_FILES: Mapping["Modality.ValueType", Any] = {
    MODALITY_IMAGE: picture,
    MODALITY_AUDIO: recording,
    MODALITY_VIDEO: video,
}


def _row(y: int) -> bytes:
    middle, radius = SIDE / 2 - 0.5, SIDE / 3
    inside = ((x - middle) ** 2 + (y - middle) ** 2 < radius**2 for x in range(SIDE))
    return b"".join(b"\xd0\x20\x20" if each else b"\xff\xff\xff" for each in inside)


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def _riff(kind: bytes, content: bytes) -> bytes:
    return kind + struct.pack("<I", len(content)) + content


def _list(kind: bytes, content: bytes) -> bytes:
    return _riff(b"LIST", kind + content)

"""How far two pictures or two recordings are from each other, by their samples.

Pictures are PNG of 8 bits: the mean of the differences may be one of 255 levels. Recordings are WAV of 16 bits: the
root of the mean square of the differences may be a thousandth of full scale. Whatever else there is has no measure.
"""

import io
import math
import struct
import sys
import wave
import zlib
from array import array
from collections.abc import Iterator
from dataclasses import dataclass

LEVELS, FULL_SCALE = 1.0, 0.001
MOST_BYTES = 16 * 1024 * 1024
"""Of one file: it is read here, beside everything else."""
MOST_SAMPLES = 4_000_000
"""Of one picture."""

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
_SAMPLE_BYTES, _DEPTH = 2, 8


class NoMeasure(Exception):
    """The files cannot be compared by their samples; the message says why."""


@dataclass(frozen=True)
class _Samples:
    shape: tuple[int, ...]
    values: "bytes | array[int]"


def difference(before: bytes, after: bytes, media_type: str, where: str) -> Iterator[str]:
    """What differs between two files by more than is allowed.

    Raises:
        NoMeasure: it cannot be said.
    """
    read, measure = _READERS.get(media_type, (None, None))
    if read is None or measure is None:
        raise NoMeasure(f"there is no measure for {media_type}")
    one, other = read(before), read(after)
    if one.shape != other.shape:
        yield f"{where}: another size or another kind of samples"
    elif told := measure(one.values, other.values):
        yield f"{where}: {told}"


def _pictures(before: "bytes | array[int]", after: "bytes | array[int]") -> str:
    mean = sum(abs(a - b) for a, b in zip(before, after, strict=True)) / max(len(before), 1)
    return f"the pictures differ by {mean:.2f} of 255 levels, where {LEVELS:g} is allowed" if mean > LEVELS else ""


def _recordings(before: "bytes | array[int]", after: "bytes | array[int]") -> str:
    square = sum((a - b) ** 2 for a, b in zip(before, after, strict=True)) / max(len(before), 1)
    root = math.sqrt(square) / 2**15
    allowed = f"where {FULL_SCALE:.1%} is allowed"
    return f"the recordings differ by {root:.2%} of full scale, {allowed}" if root > FULL_SCALE else ""


def _wav(content: bytes) -> _Samples:
    try:
        with wave.open(io.BytesIO(content)) as file:
            if file.getsampwidth() != _SAMPLE_BYTES:
                raise NoMeasure("recordings are compared if their samples have 16 bits")
            values = array("h", file.readframes(file.getnframes()))
            shape = (file.getframerate(), file.getnchannels(), len(values))
    except (wave.Error, EOFError, ValueError) as error:
        raise NoMeasure("a recording cannot be read") from error
    if sys.byteorder == "big":
        values.byteswap()
    return _Samples(shape, values)


def _png(content: bytes) -> _Samples:
    try:
        header, packed, palette = _chunks(content)
        width, height, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", header)
        row = width * _CHANNELS[colour]
        if depth != _DEPTH or interlaced or row * height > MOST_SAMPLES:
            raise NoMeasure("pictures are compared if they have 8 bits, no interlacing, and up to 4 million samples")
        lines = zlib.decompressobj().decompress(packed, height * (row + 1))
        return _Samples(
            (width, height, colour, zlib.crc32(palette)), _unfiltered(lines, row, height, _CHANNELS[colour])
        )
    except (KeyError, IndexError, ValueError, struct.error, zlib.error) as error:
        raise NoMeasure("a picture cannot be read") from error


def _chunks(content: bytes) -> tuple[bytes, bytes, bytes]:
    """Header, pixels and palette."""
    header, packed, palette, at = b"", [], b"", len(_SIGNATURE)
    while at + 8 <= len(content):
        length, kind = struct.unpack(">I4s", content[at : at + 8])
        body = content[at + 8 : at + 8 + length]
        if kind == b"IHDR":
            header = body
        elif kind == b"PLTE":
            palette = body
        elif kind == b"IDAT":
            packed.append(body)
        at += length + 12
    return header, b"".join(packed), palette


def _unfiltered(lines: bytes, row: int, height: int, step: int) -> bytes:
    found, above = bytearray(), bytes(row)
    for at in range(0, height * (row + 1), row + 1):
        above = _line(lines[at], bytearray(lines[at + 1 : at + 1 + row]), above, step)
        found += above
    return bytes(found)


def _line(kind: int, line: bytearray, above: bytes, step: int) -> bytes:
    """One row of pixels, as PNG's five filters give it."""
    if kind == _UP:
        return bytes((now + up) & 255 for now, up in zip(line, above, strict=True))
    if kind:
        _FILTERS[kind](line, above, step)
    return bytes(line)


def _sub(line: bytearray, _above: bytes, step: int) -> None:
    for i in range(step, len(line)):
        line[i] = (line[i] + line[i - step]) & 255


def _average(line: bytearray, above: bytes, step: int) -> None:
    for i, up in enumerate(above):
        left = line[i - step] if i >= step else 0
        line[i] = (line[i] + ((left + up) >> 1)) & 255


def _paeth(line: bytearray, above: bytes, step: int) -> None:
    """Of left, above and the corner between them the one nearest to left + above - corner; of equals the first."""
    for i in range(step):
        line[i] = (line[i] + above[i]) & 255
    for i in range(step, len(line)):
        left, up, corner = line[i - step], above[i], above[i - step]
        by_left, by_up, by_corner = abs(up - corner), abs(left - corner), abs(left + up - corner - corner)
        if by_left <= by_up and by_left <= by_corner:
            line[i] = (line[i] + left) & 255
        else:
            line[i] = (line[i] + (up if by_up <= by_corner else corner)) & 255


_UP = 2
_FILTERS = {1: _sub, 3: _average, 4: _paeth}

_READERS = {
    "image/png": (_png, _pictures),
    "audio/wav": (_wav, _recordings),
}

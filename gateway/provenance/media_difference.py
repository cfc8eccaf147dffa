"""Measures the difference of two pictures or two recordings by their samples.

Pictures are PNG of 8 bits, with a tolerance of one of 255 levels for the mean difference. Recordings are WAV of 16
bits, with a tolerance of a thousandth of full scale for the root mean square. Other files are not measured.
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
MAX_BYTES = 16 * 1024 * 1024
"""Maximum size of one file, which is decoded in memory."""
MAX_SAMPLES = 4_000_000
"""Maximum number of samples in one image."""

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
_SAMPLE_BYTES, _DEPTH = 2, 8


class NotMeasurable(Exception):
    """The files cannot be compared by their samples; the message states the reason."""


@dataclass(frozen=True)
class _Samples:
    shape: tuple[int, ...]
    values: "bytes | array[int]"


def difference(before: bytes, after: bytes, media_type: str, where: str) -> Iterator[str]:
    """Yields the difference between two files if it exceeds the tolerance.

    Raises:
        NotMeasurable: the files cannot be compared.
    """
    read, measure = _READERS.get(media_type, (None, None))
    if read is None or measure is None:
        raise NotMeasurable(f"files of type {media_type} cannot be measured")
    one, other = read(before), read(after)
    if one.shape != other.shape:
        yield f"{where}: different size or sample format"
    elif message := measure(one.values, other.values):
        yield f"{where}: {message}"


def _pictures(before: "bytes | array[int]", after: "bytes | array[int]") -> str:
    mean = sum(abs(a - b) for a, b in zip(before, after, strict=True)) / max(len(before), 1)
    return f"the images differ by {mean:.2f} of 255 levels; the tolerance is {LEVELS:g}" if mean > LEVELS else ""


def _recordings(before: "bytes | array[int]", after: "bytes | array[int]") -> str:
    square = sum((a - b) ** 2 for a, b in zip(before, after, strict=True)) / max(len(before), 1)
    root = math.sqrt(square) / 2**15
    allowed = f"the tolerance is {FULL_SCALE:.1%}"
    return f"the recordings differ by {root:.2%} of full scale; {allowed}" if root > FULL_SCALE else ""


def _wav(content: bytes) -> _Samples:
    try:
        with wave.open(io.BytesIO(content)) as file:
            if file.getsampwidth() != _SAMPLE_BYTES:
                raise NotMeasurable("only recordings with 16-bit samples are compared")
            values = array("h", file.readframes(file.getnframes()))
            shape = (file.getframerate(), file.getnchannels(), len(values))
    except (wave.Error, EOFError, ValueError) as error:
        raise NotMeasurable("a recording cannot be decoded") from error
    if sys.byteorder == "big":
        values.byteswap()
    return _Samples(shape, values)


def _png(content: bytes) -> _Samples:
    try:
        header, packed, palette = _chunks(content)
        width, height, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", header)
        row = width * _CHANNELS[colour]
        if depth != _DEPTH or interlaced or row * height > MAX_SAMPLES:
            raise NotMeasurable(
                "pictures are compared if they have 8 bits, no interlacing, and up to 4 million samples"
            )
        lines = zlib.decompressobj().decompress(packed, height * (row + 1))
        return _Samples(
            (width, height, colour, zlib.crc32(palette)), _unfiltered(lines, row, height, _CHANNELS[colour])
        )
    except (KeyError, IndexError, ValueError, struct.error, zlib.error) as error:
        raise NotMeasurable("an image cannot be decoded") from error


def _chunks(content: bytes) -> tuple[bytes, bytes, bytes]:
    """Extracts header, pixel data and palette."""
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
    """Undoes the PNG filter of one row of pixels."""
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
    """Undoes the Paeth filter: adds the neighbour (left, above, upper left) closest to left + above - upper left."""
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

"""Small files whose decoding takes much time or memory, or whose headers are wrong; created on demand."""

import io
import struct
import zlib
from collections.abc import Iterator
from functools import cache

from PIL import Image

from experts.host.handler import Media

_PATH = b"0 0 m 595 842 l S 595 0 m 0 842 l S\n"
_CHUNK = 1 << 20


@cache
def path_pdf(unpacked: int, name: str) -> Media:
    """A PDF of one page whose content stream expands to the given bytes of path operators."""
    packer = zlib.compressobj(9)
    operators = _PATH * (_CHUNK // len(_PATH))
    stream = b"".join(packer.compress(operators) for _ in range(max(1, unpacked // len(operators)))) + packer.flush()
    objects = (
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Count 1 /Kids [4 0 R] >>",
        b"<< /Length %d /Filter /FlateDecode >>\nstream\n%s\nendstream" % (len(stream), stream),
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 3 0 R /Resources << >> >>",
    )
    return Media(b"".join(_pdf(objects)), "application/pdf", name)


def _pdf(objects: tuple[bytes, ...]) -> Iterator[bytes]:
    yield (start := b"%PDF-1.4\n")
    end, offsets = len(start), []
    for number, content in enumerate(objects, 1):
        offsets.append(end)
        yield (part := b"%d 0 obj\n%s\nendobj\n" % (number, content))
        end += len(part)
    yield b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    yield b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    yield b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, end)


@cache
def png_bomb(width: int, height: int, name: str) -> Media:
    """A PNG of at most some hundred kilobytes whose header declares the given number of pixels."""
    header = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)
    packer = zlib.compressobj(9)
    rows = bytes(_CHUNK)
    size = min(height * (1 + 4 * width), 600_000_000)
    pixels = b"".join(packer.compress(rows) for _ in range(-(-size // _CHUNK))) + packer.flush()
    content = b"\x89PNG\r\n\x1a\n"
    for kind, body in ((b"IHDR", header), (b"IDAT", pixels), (b"IEND", b"")):
        content += struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    return Media(content, "image/png", name)


@cache
def gif_bomb(side: int, name: str) -> Media:
    """A GIF of less than 100 bytes whose screen has the given pixels on each side."""
    buffer = io.BytesIO()
    Image.new("P", (8, 8)).save(buffer, "GIF")
    content = bytearray(buffer.getvalue())
    content[6:10] = struct.pack("<HH", side, side)
    return Media(bytes(content), "image/gif", name)


@cache
def wav_with_false_sizes() -> Media:
    """A WAV that claims almost 4 GiB of samples in 65,000 channels, and has a few kilobytes."""
    form = struct.pack("<HHIIHH", 1, 65_000, 192_000, 0xFFFFFFF0, 0xFFFF, 16)
    data = b"data" + struct.pack("<I", 0xFFFFFF00) + bytes(8192)
    body = b"WAVE" + b"fmt " + struct.pack("<I", len(form)) + form + data
    return Media(b"RIFF" + struct.pack("<I", 0xFFFFFFF8) + body, "audio/wav", "lying.wav")


@cache
def many_tracks_mp4(tracks: int = 1_000_000) -> Media:
    """An MP4 with the given number of empty tracks."""
    moov = _box(b"mvhd", bytes(100)) + _box(b"trak", _box(b"mdia", b"")) * tracks
    content = _box(b"ftyp", b"isom\0\0\2\0isomiso2mp41") + _box(b"moov", moov)
    return Media(content, "video/mp4", "tracks.mp4")


def _box(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", 8 + len(body)) + kind + body

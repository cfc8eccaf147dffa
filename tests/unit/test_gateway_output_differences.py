"""Tolerances of the comparison of values."""

import io
import json
import struct
import wave
import zlib
from array import array
from collections.abc import Iterator
from typing import Any

import pytest
from PIL import Image

from gateway.provenance import media_difference, value_difference

LABELS = [{"label": "joy", "score": 0.9}, {"label": "fear", "score": 0.1}]
BOX = [{"label": "cat", "score": 0.9, "box": {"xmin": 1000.0, "ymin": 2.0, "xmax": 3000.0, "ymax": 4.0}}]


def moved(**edges: float) -> Any:
    return [{**BOX[0], "box": {**BOX[0]["box"], **edges}}]  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        (LABELS, [{"label": "joy", "score": 0.9009}, LABELS[1]], True),
        (LABELS, [{"label": "joy", "score": 0.902}, LABELS[1]], False),
        (LABELS, LABELS[::-1], True),
        (LABELS, LABELS[:1], False),
        (LABELS, [{"label": "rage", "score": 0.9}, LABELS[1]], False),
        (BOX, moved(xmax=3000.5), True),
        (BOX, moved(xmax=3000.7), False),
        ([{"start": 60.0, "end": 61.0}], [{"start": 60.002, "end": 61.0}], True),
        ([{"start": 60.0, "end": 61.0}], [{"start": 60.003, "end": 61.0}], False),
        ({"area": 100_000}, {"area": 100_090}, True),
        ({"page": 1}, {"page": 2}, False),
        ({"page": 1}, {"page": True}, False),
        ({"page": 1}, {}, False),
        ({}, {"page": 1}, False),
        ([0.1, 0.2], [0.1005, 0.2], True),
    ],
)
def test_json_tolerance(before: Any, after: Any, same: bool) -> None:
    assert (not list(value_difference.of_json(json.dumps(before), json.dumps(after), "out"))) is same


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        ("joy (0.90)", "joy (0.91)", True),
        ("joy (0.90)", "joy (0.92)", False),
        ("joy (0.90)", "fear (0.90)", False),
        ("3 cats", "4 cats", True),
        ("", "", True),
    ],
)
def test_text_tolerance(before: str, after: str, same: bool) -> None:
    assert (not list(value_difference.of_text(before, after, "out"))) is same


def test_findings_name_the_path_without_content() -> None:
    before, after = {"labels": LABELS, "Jane Doe": 1}, {"labels": [LABELS[0], {"label": "zebra", "score": 0.5}]}
    message = list(value_difference.of_json(json.dumps(before), json.dumps(after), "out"))
    assert message == [
        "out.…: missing",
        "out.labels[0].label: different value",
        "out.labels[0].score: changed from 0.1 to 0.9; the tolerance is 0.001",
        "out.labels[1].label: different value",
        "out.labels[1].score: changed from 0.9 to 0.5; the tolerance is 0.001",
    ]


def png(picture: Image.Image) -> bytes:
    out = io.BytesIO()
    picture.save(out, "png")
    return out.getvalue()


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "LA", "P"])
def test_image_samples_are_decoded(mode: str) -> None:
    picture = Image.linear_gradient("L").resize((61, 37)).rotate(20).convert("RGB").convert(mode)
    found = media_difference._png(png(picture))
    assert bytes(found.values) == picture.tobytes()
    assert found.shape[:2] == picture.size


@pytest.mark.parametrize("kind", range(5))
def test_all_png_filters_are_undone(kind: int) -> None:
    picture = Image.merge("RGB", [Image.effect_noise((19, 11), 60) for _ in range(3)])
    width, pixels = 19 * 3, picture.tobytes()
    lines, above = b"", bytes(width)
    for at in range(0, len(pixels), width):
        line = pixels[at : at + width]
        lines += bytes([kind]) + bytes((now - guess) & 255 for now, guess in _guessed(kind, line, above))
        above = line
    header = struct.pack(">IIBBBBB", 19, 11, 8, 2, 0, 0, 0)
    content = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        for name, body in ((b"IHDR", header), (b"IDAT", zlib.compress(lines)), (b"IEND", b""))
    )
    assert Image.open(io.BytesIO(content)).tobytes() == pixels
    assert bytes(media_difference._png(content).values) == pixels


def _guessed(kind: int, line: bytes, above: bytes) -> Iterator[tuple[int, int]]:
    """Each byte with the value that the PNG filter subtracts from it, by PNG's specification."""
    for i, now in enumerate(line):
        left, up, corner = (line[i - 3], above[i], above[i - 3]) if i > 2 else (0, above[i], 0)
        nearest = min((left, up, corner), key=lambda each: abs(left + up - corner - each))
        yield now, (0, left, up, (left + up) // 2, nearest)[kind]


@pytest.mark.parametrize(("step", "same"), [(1, True), (3, False)])
def test_images_may_differ_by_one_level(step: int, same: bool) -> None:
    picture = Image.linear_gradient("L").convert("RGB")
    other = picture.point(lambda level: level + step)
    message = list(media_difference.difference(png(picture), png(other), "image/png", "image"))
    assert (not message) is same
    assert list(media_difference.difference(png(picture), png(picture.resize((9, 9))), "image/png", "image"))


def wav(samples: list[int]) -> bytes:
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setparams((1, 2, 16_000, 0, "NONE", ""))
        file.writeframes(array("h", samples).tobytes())
    return out.getvalue()


@pytest.mark.parametrize(("step", "same"), [(20, True), (60, False)])
def test_recordings_may_differ_by_a_thousandth_of_full_scale(step: int, same: bool) -> None:
    samples = [1000 * (i % 7) for i in range(500)]
    other = [sample + step for sample in samples]
    assert (not list(media_difference.difference(wav(samples), wav(other), "audio/wav", "audio"))) is same
    assert list(media_difference.difference(wav(samples), wav(samples[:-1]), "audio/wav", "audio"))


def _cut() -> bytes:
    """A PNG with fewer rows than its header states."""
    whole = png(Image.new("L", (64, 64)))
    return whole.replace(struct.pack(">II", 64, 64), struct.pack(">II", 64, 65))


@pytest.mark.parametrize(
    ("content", "media_type"),
    [
        (b"x", "video/mp4"),
        (b"x", "image/png"),
        (b"x", "audio/wav"),
        (png(Image.new("1", (8, 8))), "image/png"),
        (_cut(), "image/png"),
    ],
)
def test_unmeasurable_files_state_the_reason(content: bytes, media_type: str) -> None:
    with pytest.raises(media_difference.NotMeasurable):
        list(media_difference.difference(content, content + b"y", media_type, "out"))

"""Makes the files of the cases from their descriptions: pages, signs, PDF documents, pictures and recordings.

python -m tests.eval.answers.files FOLDER    writes the files of both sets, to look at
"""

import argparse
import ctypes
import io
import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pypdfium2
from PIL import Image, ImageDraw, ImageFont

from experts.host.media import read_audio, wav
from experts.lite.text_to_speech import text_to_speech
from tests.data.make import noisy
from tests.data.signs import png, sign
from tests.eval.answers.cases import DATA, BadCases
from tests.support.samples import infer

SAMPLES = Path(__file__).parents[2] / "data"

VOICE = "female"
"""Of the recordings; speech recognition understands hardly a word of espeak-ng's other voices."""

Row = str | Sequence[str]
"""A line of a page: a text, or a text on the left and one on the right."""

_PAGE = (820, 46)
"""Width of a drawn page, and height of its lines, in pixels."""

_RIGHT = 400
"""Distance of the right column from the left edge of a PDF page, in points."""


def make(names: Sequence[str], folder: Path) -> None:
    """Writes files of the cases to a folder.

    Args:
        names: the files to write; both sets have files of different names.
        folder: created if it is missing.

    Raises:
        BadCases: a file is not described.
    """
    descriptions = described()
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        if name not in descriptions:
            raise BadCases(f"{name} is not described: add it to a file *.files.json in {DATA}")
        (folder / name).write_bytes(content(name, descriptions[name]))


def described() -> dict[str, Mapping[str, Any]]:
    """Descriptions of all files of both sets, by name."""
    found: dict[str, Mapping[str, Any]] = {}
    for path in sorted(DATA.glob("*.files.json")):
        found |= json.loads(path.read_text(encoding="utf-8"))
    return found


def content(name: str, description: Mapping[str, Any]) -> bytes:
    """Bytes of one file; the first key of the description is its kind."""
    kind = next(iter(description))
    return _KINDS[kind](name, description)


def _text(_name: str, description: Mapping[str, Any]) -> bytes:
    return "".join(line + "\n" for line in description["text"]).encode()


def _page(name: str, description: Mapping[str, Any]) -> bytes:
    """A scanned page, black on white; tilted by some degrees, a photographed one."""
    width, height = _PAGE
    rows: Sequence[Row] = description["page"]
    page = Image.new("RGB", (width, 80 + height * len(rows)), "white")
    draw, font = ImageDraw.Draw(page), ImageFont.load_default(30)
    for index, row in enumerate(rows):
        left, right = (row, "") if isinstance(row, str) else row
        top = 40 + height * index
        draw.text((60, top), left, "black", font)
        draw.text((width - 60, top), right, "black", font, anchor="ra")
    tilted = page.rotate(description.get("tilt", 0), Image.Resampling.BICUBIC, expand=True, fillcolor="#8a8378")
    return _encoded(tilted, name)


def _sign(name: str, description: Mapping[str, Any]) -> bytes:
    return _encoded(sign(description["sign"]), name)


def _pdf(_name: str, description: Mapping[str, Any]) -> bytes:
    """A PDF with a text layer, in Helvetica."""
    document = pypdfium2.PdfDocument.new()
    for rows in description["pdf"]:
        page = document.new_page(595, 842)
        for index, row in enumerate(rows):
            left, right = (row, "") if isinstance(row, str) else row
            for start, text in ((72, left), (_RIGHT, right)):
                if text:
                    _insert_text(document, page, text, (start, 760 - 18 * index))
        page.gen_content()
    file = io.BytesIO()
    document.save(file)
    return file.getvalue()


def _insert_text(document: Any, page: Any, text: str, position: tuple[float, float]) -> None:
    raw = pypdfium2.raw
    encoded = ctypes.create_string_buffer(text.encode("utf-16-le") + b"\0\0")
    item = raw.FPDFPageObj_NewTextObj(document, b"Helvetica", 11.0)
    raw.FPDFText_SetText(item, ctypes.cast(encoded, ctypes.POINTER(ctypes.c_ushort)))
    raw.FPDFPageObj_Transform(item, 1, 0, 0, 1, *position)
    raw.FPDFPage_InsertObject(page, item)


def _speech(name: str, description: Mapping[str, Any]) -> bytes:
    """A recording by espeak-ng at 16 kHz, optionally in noise."""
    said = infer(text_to_speech("espeak-ng", "cpu"), {"text": description["speech"]}, {"voice": VOICE})
    samples, rate = read_audio(said["audio"], rate=16_000)
    recording = wav(samples, rate, name).content
    return noisy(recording) if description.get("noise") else recording


def _faces(name: str, description: Mapping[str, Any]) -> bytes:
    """The photograph of one person, side by side as often as stated; every second one is mirrored."""
    photograph = Image.open(SAMPLES / "face.jpg").convert("RGB")
    width, height = photograph.size
    group = Image.new("RGB", (width * description["faces"], height))
    for index in range(description["faces"]):
        turned = photograph.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if index % 2 else photograph
        group.paste(turned, (width * index, 0))
    return _encoded(group, name)


def _halves(name: str, description: Mapping[str, Any]) -> bytes:
    """A picture whose left half and right half have one colour each."""
    width, height = description["size"]
    left, right = description["halves"]
    picture = Image.new("RGB", (width, height), left)
    picture.paste(right, (width // 2, 0, width, height))
    return _encoded(picture, name)


def _drawing(name: str, description: Mapping[str, Any]) -> bytes:
    """A picture without people: hills, the sea, or a ball whose place is known."""
    picture = Image.new("RGB", (480, 320), "#a9d3f0")
    draw = ImageDraw.Draw(picture)
    match description["drawing"]:
        case "hills":
            draw.ellipse((-120, 170, 300, 560), fill="#5f9e4f")
            draw.ellipse((180, 190, 640, 600), fill="#4b8540")
        case "sea":
            draw.rectangle((0, 170, 480, 320), fill="#2e6f9e")
            draw.rectangle((0, 280, 480, 320), fill="#e8d8a8")
        case _:
            draw.rectangle((0, 0, 480, 320), fill="#dfe8d0")
            draw.ellipse((160, 80, 320, 240), fill="#d9731a")
    return _encoded(picture, name)


def _copy(_name: str, description: Mapping[str, Any]) -> bytes:
    return _sample(description["copy"])


def _sample(name: str) -> bytes:
    return (SAMPLES / name).read_bytes()


def _truncated(_name: str, description: Mapping[str, Any]) -> bytes:
    whole = _sample(description["truncated"])
    return whole[: len(whole) // 4]


def _zip(_name: str, description: Mapping[str, Any]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for entry, text in description["zip"].items():
            archive.writestr(zipfile.ZipInfo(entry), text)
    return file.getvalue()


def _hexadecimal(_name: str, description: Mapping[str, Any]) -> bytes:
    return bytes.fromhex(description["hexadecimal"])


def _encoded(picture: Image.Image, name: str) -> bytes:
    if not name.endswith(".jpg"):
        return png(picture)
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=90)
    return file.getvalue()


_KINDS: Mapping[str, Callable[[str, Mapping[str, Any]], bytes]] = {
    "text": _text,
    "page": _page,
    "sign": _sign,
    "pdf": _pdf,
    "speech": _speech,
    "faces": _faces,
    "halves": _halves,
    "drawing": _drawing,
    "copy": _copy,
    "truncated": _truncated,
    "zip": _zip,
    "hexadecimal": _hexadecimal,
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Writes the files of the cases of tests.eval.answers.")
    parser.add_argument("folder", type=Path)
    make(list(described()), parser.parse_args().folder)

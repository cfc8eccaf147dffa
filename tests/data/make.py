"""Makes the sample inputs of this folder again: drawn with Pillow, spoken with espeak-ng, the noise from a fixed seed.

python -m tests.data.make [FOLDER]      everything but the photograph
python -m tests.data.make --face        the photograph too, from scikit-image, which must be installed
"""

import argparse
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from experts.host.handler import Media
from experts.host.media import read_audio, wav
from experts.lite.text_to_speech import text_to_speech
from tests.data.signs import sign
from tests.support.samples import infer

SPOKEN = "I would like to order a large pizza. The meeting starts at nine o'clock in the main office."
SIGN = (("We are so happy", 72), ("to see you!", 72), ("Have a wonderful day.", 50))
INVOICE = (
    ("Invoice number:", "INV-2024-0117"),
    ("Invoice date:", "12 March 2024"),
    ("Due date:", "11 April 2024"),
)
ITEMS = (
    ("Garden chair, oak", "4", "89.00", "356.00"),
    ("Garden table, oak", "1", "249.50", "249.50"),
    ("Delivery", "1", "35.00", "35.00"),
)
TOTALS = (("Subtotal", "$640.50"), ("Tax 8%", "$51.24"), ("Total", "$691.74"))
LETTER = (
    (
        "Harbour Museum",
        "14 Quay Street, Bristol",
        "",
        "3 June 2024",
        "",
        "Dear Ms. Clarke,",
        "",
        "Thank you for your letter of 20 May. We are delighted that you would like to lend us your",
        "collection of ship models. Our curator, Dr. Helen Marsh, has looked at the photographs and",
        "believes that at least twelve of the models were built before 1850.",
        "",
        "We would like to show them in the summer exhibition, which opens on 15 July and closes on",
        "30 September. The museum will pay for transport and insurance.",
    ),
    (
        "Page 2",
        "",
        "The insurance covers a value of $25,000. Please tell us before 20 June if this is enough.",
        "Our driver, Tom Reed, will collect the models on 1 July at 10:30.",
        "",
        "If you have any questions, please write to office@harbourmuseum.example.",
        "",
        "Yours sincerely,",
        "",
        "Peter Lowell",
        "Director",
    ),
)


def main() -> None:
    parser = argparse.ArgumentParser(description="Makes the sample inputs of the tests again.")
    parser.add_argument("folder", type=Path, nargs="?", default=Path(__file__).parent)
    parser.add_argument("--face", action="store_true", help="convert the photograph, too")
    arguments = parser.parse_args()
    folder: Path = arguments.folder
    sign(SIGN).quantize(128).save(folder / "sign.png", optimize=True)
    invoice().quantize(16).save(folder / "invoice.png", optimize=True)
    (folder / "letter.pdf").write_bytes(letter())
    apple().save(folder / "apple.png", optimize=True)
    speech = spoken(SPOKEN)
    (folder / "speech.wav").write_bytes(speech)
    (folder / "noisy.wav").write_bytes(noisy(speech))
    if arguments.face:
        face().save(folder / "face.jpg", quality=88)


def invoice() -> Image.Image:
    """One page with labels beside, before and above their values."""
    page = Image.new("RGB", (1000, 1160), "white")
    draw = ImageDraw.Draw(page)
    small, large = ImageFont.load_default(26), ImageFont.load_default(54)
    draw.text((70, 60), "Oak & Elm Furniture Ltd.", "black", ImageFont.load_default(36))
    draw.text((70, 110), "27 Mill Lane, Leeds", "black", small)
    draw.text((930, 60), "INVOICE", "#2f5d50", large, anchor="ra")
    for place, (label, value) in enumerate(INVOICE):
        draw.text((500, 170 + 44 * place), label, "black", small)
        draw.text((930, 170 + 44 * place), value, "black", small, anchor="ra")
    for place, line in enumerate(("Bill to", "Jane Porter", "8 Castle Road", "York")):
        draw.text((70, 210 + 40 * place), line, "#2f5d50" if not place else "black", small)
    columns, row = (70, 560, 740, 930), 430
    for cells in (("Description", "Quantity", "Price", "Amount"), *ITEMS):
        _row(draw, columns, row, cells)
        row += 70
    for label, value in TOTALS:
        draw.text((560, row + 30), label, "black", small)
        draw.text((930, row + 30), value, "black", small, anchor="ra")
        row += 56
    draw.text((70, 1060), "Thank you for your business. Questions? Call +44 113 496 0000.", "black", small)
    return page


def _row(draw: ImageDraw.ImageDraw, columns: Sequence[int], height: int, cells: Sequence[str]) -> None:
    font = ImageFont.load_default(26)
    for place, cell in enumerate(cells):
        draw.text((columns[place], height), cell, "black", font, anchor="ra" if place else "la")
    draw.line((70, height + 46, 930, height + 46), fill="#c0c0c0", width=2)


def letter() -> bytes:
    """A PDF of two pages whose text is text."""
    return pdf(
        "BT /F1 11 Tf 16 TL 72 760 Td\n" + "".join(f"({_escaped(line)}) Tj T*\n" for line in lines) + "ET"
        for lines in LETTER
    )


def pdf(
    drawings: Iterable[str], size: tuple[int, int] = (595, 842), encryption: bytes = b"", entries: bytes = b""
) -> bytes:
    """A PDF with a page for each of the drawings, which are in PDF's own language; /F1 is Helvetica.

    The entries go into the dictionary of every page, after those it has anyway.
    """
    objects = [b"<< /Type /Catalog /Pages 2 0 R >>", b"", b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"]
    kids = []
    for drawing in drawings:
        stream = drawing.encode("latin-1")
        objects.append(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream))
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 %d %d] /Contents %d 0 R "
            b"/Resources << /Font << /F1 3 0 R >> >> %s >>" % (*size, len(objects), entries)
        )
        kids.append(f"{len(objects)} 0 R")
    objects[1] = f"<< /Type /Pages /Count {len(kids)} /Kids [{' '.join(kids)}] >>".encode()
    if encryption:
        objects.append(encryption)
    return _written(objects, b"/Encrypt %d 0 R /ID [<00> <00>] " % len(objects) if encryption else b"")


def _escaped(line: str) -> str:
    return line.replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)")


def _written(objects: Sequence[bytes], trailer: bytes) -> bytes:
    file, places = io.BytesIO(), []
    file.write(b"%PDF-1.4\n")
    for number, content in enumerate(objects, 1):
        places.append(file.tell())
        file.write(b"%d 0 obj\n%s\nendobj\n" % (number, content))
    start = file.tell()
    file.write(b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1))
    file.write(b"".join(b"%010d 00000 n \n" % place for place in places))
    file.write(b"trailer\n<< /Size %d /Root 1 0 R %s>>\n" % (len(objects) + 1, trailer))
    file.write(b"startxref\n%d\n%%%%EOF\n" % start)
    return file.getvalue()


def apple() -> Image.Image:
    """A red apple on a blue ground, where it lies known to the pixel: an ellipse from (110, 90) to (290, 260)."""
    picture = Image.new("RGB", (400, 320), "#8fb8de")
    draw = ImageDraw.Draw(picture)
    draw.rectangle((0, 250, 400, 320), fill="#7aa3c9")
    draw.ellipse((110, 90, 290, 260), fill="#c62828")
    draw.ellipse((150, 115, 190, 150), fill="#e57373")
    return picture


def spoken(text: str) -> bytes:
    """At the rate that speech recognition takes, to keep the file small."""
    said = infer(text_to_speech("espeak-ng", "cpu"), {"text": text}, {"voice": "female"})
    samples, rate = read_audio(said["audio"], rate=16_000)
    return wav(samples, rate, "speech.wav").content


def noisy(speech: bytes) -> bytes:
    """The first three seconds, in a hiss and a hum that begin half a second before."""
    samples, rate = read_audio(Media(speech, "audio/wav", "speech.wav"))
    samples = np.pad(samples[: 3 * rate], (rate // 2, 0))
    hiss = np.random.default_rng(7).standard_normal(len(samples)).astype(np.float32) * 0.02
    hum = 0.02 * np.sin(2 * np.pi * 100 * np.arange(len(samples)) / rate).astype(np.float32)
    return wav(samples + hiss + hum, rate, "noisy.wav").content


def face() -> Image.Image:
    from skimage import data  # type: ignore[import-not-found]  # noqa: PLC0415  # only where it is installed

    return Image.fromarray(data.astronaut())


if __name__ == "__main__":
    main()

"""Draws twenty signs for a batch, one of them broken: python -m tests.data.signs FOLDER."""

import argparse
import io
import shutil
from collections.abc import Sequence
from pathlib import Path

from PIL import Image, ImageDraw, ImageFilter, ImageFont

WORDS = (
    ("bakery", "Fresh bread every day", "It smells wonderful!"),
    ("beach", "Danger! Strong currents", "Swimming is forbidden"),
    ("bookshop", "We love good stories", "Come in and enjoy"),
    ("bridge", "Bridge damaged", "Risk of serious injury"),
    ("cafe", "Great coffee", "and happy people"),
    ("cinema", "Tonight: a funny film", "for the whole family"),
    ("dog", "Beware of the angry dog", "He hates visitors"),
    ("exit", "Emergency exit", "Keep this door clear"),
    ("florist", "Beautiful roses", "for those you love"),
    ("garden", "Welcome to our garden", "Enjoy the peace"),
    ("hotel", "A lovely place to rest", "Breakfast is free"),
    ("library", "Please be quiet", "People are reading"),
    ("market", "Delicious fruit", "and friendly prices"),
    ("museum", "Closed today", "We are sorry"),
    ("parking", "No parking", "Cars will be towed"),
    ("playground", "Have fun", "and be kind"),
    ("road", "Road closed", "Terrible delays ahead"),
    ("school", "Congratulations", "to our best class ever!"),
    ("station", "Train cancelled", "We regret the trouble"),
    ("theatre", "An amazing show", "The critics loved it"),
)
BROKEN = "museum"

LETTERS = 56
HEIGHTS = (230, 318, 424)
"""Pixels."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Draws twenty signs, one of them broken.")
    parser.add_argument("folder", type=Path, help="made anew")
    folder: Path = parser.parse_args().folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, *lines in WORDS:
        picture = png(sign([(line, LETTERS) for line in lines]))
        (folder / f"{name}.png").write_bytes(picture[: len(picture) // 2] if name == BROKEN else picture)


def sign(lines: Sequence[tuple[str, int]]) -> Image.Image:
    """A wooden shop sign that hangs before a wall.

    Args:
        lines: up to three, each with the height of its letters in pixels.
    """
    picture = Image.new("RGB", (900, 600), "#e9dfca")
    draw = ImageDraw.Draw(picture)
    for row in range(0, 600, 40):
        for column in range(-60 * (row // 40 % 2), 900, 120):
            draw.rectangle((column, row, column + 118, row + 38), outline="#d8cbb2", width=2)
    shadow = Image.new("L", picture.size, 0)
    ImageDraw.Draw(shadow).rounded_rectangle((82, 162, 842, 532), 28, fill=110)
    picture.paste("#6b5a44", mask=shadow.filter(ImageFilter.GaussianBlur(10)))
    for side in (220, 680):
        draw.line((side, 0, side, 160), fill="#4a4a4a", width=6)
        draw.ellipse((side - 12, 148, side + 12, 172), fill="#4a4a4a")
    draw.rounded_rectangle((70, 150, 830, 520), 28, fill="#2f5d50", outline="#1d3b33", width=8)
    draw.rounded_rectangle((90, 170, 810, 500), 18, outline="#f2e3bc", width=4)
    for (line, size), height in zip(lines, HEIGHTS, strict=False):
        draw.text((450, height), line, "#fff7e0", ImageFont.load_default(size), anchor="mm")
    return picture


def png(picture: Image.Image) -> bytes:
    file = io.BytesIO()
    picture.save(file, "PNG")
    return file.getvalue()


if __name__ == "__main__":
    main()

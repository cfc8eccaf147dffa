"""Extracts text lines from PDF files and renders their pages.

PDFium is single-threaded and cannot be interrupted, so this runs in worker processes only (experts.host.isolation).
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from services.common.errors import InvalidRequest

if TYPE_CHECKING:
    from PIL.Image import Image

MEDIA_TYPE = "application/pdf"
DPI = 150
"""Resolution of rendered pages; boxes are in these pixels."""
MAX_PAGES = 100
MAX_PAGE_PIXELS = 20_000_000

_POINTS_PER_INCH = 72
_SCAN_SHARE = 0.5
_STAMP_CHARACTERS = 100
_CELL_GAP = 1.5

Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Line:
    """Words next to each other on one line."""

    text: str
    score: float
    """0 to 1; text embedded in a file has 1."""
    box: Box
    """xmin, ymin, xmax, ymax in pixels from the upper left corner of the page image."""
    slope: float = 0.0
    """Pixels by which the line falls per pixel to the right; photographed pages are rarely level."""


@dataclass(frozen=True)
class PdfPage:
    """Size and text of one page."""

    number: int
    width: float
    height: float
    lines: tuple[Line, ...]
    """Empty if the page is a scan, which needs OCR."""


def read(content: bytes, *, name: str, port: str) -> list[PdfPage]:
    """Reads all pages with their text.

    Raises:
        InvalidRequest: the file is corrupted, encrypted or has too many pages.
    """
    with _open_document(content, name, port) as document:
        if not 0 < len(document) <= MAX_PAGES:
            raise InvalidRequest(
                f"{name} has {len(document)} pages; the limit is {MAX_PAGES}",
                remedy="split it and send the parts separately",
                port=port,
            )
        return [_page(document, index) for index in range(len(document))]


def render(content: bytes, number: int, *, name: str, port: str) -> "Image":
    """Renders a page in RGB; pages are numbered from 1."""
    with (
        _open_document(content, name, port) as document,
        _close_after(document[number - 1]) as page,
        _close_after(page.render(scale=_scale(page))) as bitmap,
    ):
        return bitmap.to_pil().convert("RGB")  # type: ignore[no-any-return]  # pypdfium2 is untyped


@contextmanager
def _open_document(content: bytes, name: str, port: str) -> Iterator[Any]:
    import pypdfium2

    try:
        with _close_after(pypdfium2.PdfDocument(content)) as document:
            yield document
    except pypdfium2.PdfiumError as error:
        locked = b"/Encrypt" in content and "password" in str(error).lower()  # which may be an earlier error's
        cause = "it is protected by a password" if locked else "it is not a valid PDF"
        remedy = "save a copy without the password and send that" if locked else "open it and save it again"
        raise InvalidRequest(f"cannot read {name}: {cause}", remedy=remedy, port=port) from error


@contextmanager
def _close_after(thing: Any) -> Iterator[Any]:
    try:
        yield thing
    finally:
        thing.close()


def _page(document: Any, index: int) -> PdfPage:
    with _close_after(document[index]) as page, _close_after(page.get_textpage()) as textpage:
        width, height = page.get_size()
        scale = _scale(page)
        lines = tuple(_lines(_characters(textpage, _to_pixels(page, scale))))
        text = "".join(line.text for line in lines)
        if not _is_readable(text) or (len(text) < _STAMP_CHARACTERS and _is_scan(page, width * height)):
            lines = ()
        return PdfPage(index + 1, width * scale, height * scale, lines)


def _scale(page: Any) -> float:
    """Returns pixels per point, reduced for large pages."""
    width, height = page.get_size()
    return float(min(DPI / _POINTS_PER_INCH, (MAX_PAGE_PIXELS / max(width * height, 1)) ** 0.5))


def _is_readable(text: str) -> bool:
    """Whether the text is usable: fonts without a character map give text that renders well but reads as garbage."""
    garbage = sum(not character.isprintable() or character == "�" for character in text)
    return bool(text) and garbage <= len(text) // 10


def _is_scan(page: Any, area: float) -> bool:
    """Whether an image fills the page, so that a little text on it is only a stamp."""
    from pypdfium2 import raw

    for picture in page.get_objects(filter=[raw.FPDF_PAGEOBJ_IMAGE]):
        left, bottom, right, top = picture.get_bounds()
        if (right - left) * (top - bottom) > _SCAN_SHARE * area:
            return True
    return False


def _lines(letters: Iterable[tuple[str, Box | None]]) -> Iterator[Line]:
    """Splits letters at line ends and at wide gaps, so that table cells stay separate."""
    words: list[str] = []
    box: Box | None = None
    for letter, corners in letters:
        ends = letter in "\r\n" or (box and corners and _is_gap(box, corners))
        if ends and box:
            yield from _line(words, box)
            words, box = [], None
        if letter in "\r\n":
            continue
        words.append(letter)
        if corners:
            box = _union(box, corners) if box else corners
    if box:
        yield from _line(words, box)


def _characters(textpage: Any, to_pixels: Callable[[Box], Box]) -> Iterator[tuple[str, Box | None]]:
    """Yields every character with its box; spaces and line ends have none."""
    from pypdfium2 import raw

    for index in range(textpage.count_chars()):
        code = raw.FPDFText_GetUnicode(textpage, index)
        letter = chr(code) if code else ""
        yield letter or " ", to_pixels(textpage.get_charbox(index)) if letter.strip() else None


def _to_pixels(page: Any, scale: float) -> Callable[[Box], Box]:
    """Returns a function that converts PDF coordinates to pixels of the cropped and rotated page image."""
    left, bottom, right, top = page.get_bbox()
    rotations: dict[int, Callable[[float, float], tuple[float, float]]] = {
        0: lambda x, y: (x - left, top - y),
        90: lambda x, y: (y - bottom, x - left),
        180: lambda x, y: (right - x, y - bottom),
        270: lambda x, y: (top - y, right - x),
    }
    rotate = rotations[page.get_rotation()]

    def convert(corners: Box) -> Box:
        one, other = rotate(*corners[:2]), rotate(*corners[2:])
        (xmin, xmax), (ymin, ymax) = (sorted((scale * a, scale * b)) for a, b in zip(one, other, strict=True))
        return xmin, ymin, xmax, ymax

    return convert


def _union(one: Box, other: Box) -> Box:
    return min(one[0], other[0]), min(one[1], other[1]), max(one[2], other[2]), max(one[3], other[3])


def _is_gap(box: Box, corners: Box) -> bool:
    """Whether a letter is far from the preceding ones, horizontally or, in vertical text, vertically."""
    height = max(box[3] - box[1], corners[3] - corners[1])
    horizontal = max(corners[0] - box[2], box[0] - corners[2])
    vertical = max(corners[1] - box[3], box[1] - corners[3])
    return max(horizontal, vertical) > _CELL_GAP * height


def _line(letters: list[str], box: Box) -> Iterator[Line]:
    text = " ".join("".join(letters).split())
    if text:
        yield Line(text, 1.0, box)

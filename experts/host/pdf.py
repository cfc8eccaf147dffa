"""PDF: the text that is in the file, line by line, and the pages as pictures.

PDFium may be entered by one thread at a time, so every call here opens, reads and closes under one lock.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any

from services.runtime.errors import InvalidRequest

if TYPE_CHECKING:
    from PIL.Image import Image

MEDIA_TYPE = "application/pdf"
DPI = 150
"""Pages become pictures at this many dots per inch, and boxes count in these dots."""
MAX_PAGES = 100
MAX_PAGE_PIXELS = 20_000_000

_POINTS_PER_INCH = 72
_SCAN_SHARE = 0.5
_STAMP_CHARACTERS = 100
_CELL_GAP = 1.5

_pdfium = Lock()


@dataclass(frozen=True)
class Line:
    """Words that stand beside one another."""

    text: str
    score: float
    """0 to 1; what a file says of itself is certain."""
    box: tuple[float, float, float, float]
    """xmin, ymin, xmax, ymax from the upper left corner of the page's picture."""


@dataclass(frozen=True)
class PdfPage:
    """One page without its picture."""

    number: int
    width: float
    height: float
    lines: tuple[Line, ...]
    """Empty where the page is a scan: then its picture has to be read."""


def read(content: bytes, *, name: str, port: str) -> list[PdfPage]:
    """All pages with their text; refuses what is broken, locked or too long."""
    with _opened(content, name, port) as document:
        if not 0 < len(document) <= MAX_PAGES:
            raise InvalidRequest(
                f"{name} has {len(document)} pages; at most {MAX_PAGES} are read at once.",
                remedy="Split it and send the parts one by one.",
                port=port,
            )
        return [_page(document, index) for index in range(len(document))]


def render(content: bytes, number: int, *, name: str, port: str) -> "Image":
    """A page as a picture in RGB, pages counted from 1."""
    with (
        _opened(content, name, port) as document,
        _closing(document[number - 1]) as page,
        _closing(page.render(scale=_scale(page))) as bitmap,
    ):
        return bitmap.to_pil().convert("RGB")  # type: ignore[no-any-return]  # pypdfium2 is untyped


@contextmanager
def _opened(content: bytes, name: str, port: str) -> Iterator[Any]:
    import pypdfium2

    with _pdfium:
        try:
            with _closing(pypdfium2.PdfDocument(content)) as document:
                yield document
        except pypdfium2.PdfiumError as error:
            locked = b"/Encrypt" in content and "password" in str(error).lower()  # which may be an earlier error's
            cause = "is locked with a password" if locked else "is not a PDF that can be read"
            remedy = "Save a copy without the password and send that." if locked else "Open it and save it again."
            raise InvalidRequest(f"{name} {cause}.", remedy=remedy, port=port) from error


@contextmanager
def _closing(thing: Any) -> Iterator[Any]:
    try:
        yield thing
    finally:
        thing.close()


def _page(document: Any, index: int) -> PdfPage:
    with _closing(document[index]) as page, _closing(page.get_textpage()) as textpage:
        width, height = page.get_size()
        scale = _scale(page)
        lines = tuple(_lines(textpage, height, scale))
        text = "".join(line.text for line in lines)
        if not _readable(text) or (len(text) < _STAMP_CHARACTERS and _is_scan(page, width * height)):
            lines = ()
        return PdfPage(index + 1, width * scale, height * scale, lines)


def _scale(page: Any) -> float:
    """Dots per point; fewer on a poster."""
    width, height = page.get_size()
    return float(min(DPI / _POINTS_PER_INCH, (MAX_PAGE_PIXELS / max(width * height, 1)) ** 0.5))


def _readable(text: str) -> bool:
    """Fonts without a table of their letters give text that looks right and reads as rubbish."""
    rubbish = sum(not character.isprintable() or character == "�" for character in text)
    return bool(text) and rubbish <= len(text) // 10


def _is_scan(page: Any, area: float) -> bool:
    """A picture fills the page: what little text lies on it is a stamp."""
    from pypdfium2 import raw

    for picture in page.get_objects(filter=[raw.FPDF_PAGEOBJ_IMAGE]):
        left, bottom, right, top = picture.get_bounds()
        if (right - left) * (top - bottom) > _SCAN_SHARE * area:
            return True
    return False


def _lines(textpage: Any, height: float, scale: float) -> Iterator[Line]:
    """Cuts at line ends and at wide gaps, so that the cells of a table stay apart."""
    letters: list[str] = []
    box: list[float] = []
    for letter, corners in _letters(textpage, height, scale):
        ends = letter in "\r\n" or (box and corners and _is_gap(box, corners))
        if ends and letters:
            yield from _line(letters, box)
            letters, box = [], []
        if letter in "\r\n":
            continue
        letters.append(letter)
        if corners:
            box = [*map(min, box[:2], corners[:2]), *map(max, box[2:], corners[2:])] if box else list(corners)
    yield from _line(letters, box)


def _letters(
    textpage: Any, height: float, scale: float
) -> Iterator[tuple[str, tuple[float, float, float, float] | None]]:
    """Every character with its corners; spaces and line ends have none."""
    from pypdfium2 import raw

    for index in range(textpage.count_chars()):
        code = raw.FPDFText_GetUnicode(textpage, index)
        letter = chr(code) if code else ""
        if not letter.strip():
            yield letter or " ", None
            continue
        left, bottom, right, top = textpage.get_charbox(index)
        yield letter, (left * scale, (height - top) * scale, right * scale, (height - bottom) * scale)


def _is_gap(box: list[float], corners: tuple[float, float, float, float]) -> bool:
    tall = max(box[3] - box[1], corners[3] - corners[1])
    return corners[0] - box[2] > _CELL_GAP * tall or corners[1] > box[3] or corners[3] < box[1]


def _line(letters: list[str], box: list[float]) -> Iterator[Line]:
    text = " ".join("".join(letters).split())
    if text and box:
        yield Line(text, 1.0, (box[0], box[1], box[2], box[3]))

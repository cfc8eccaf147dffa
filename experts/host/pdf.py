"""PDF: the text that is in the file, line by line, and the pages as pictures.

PDFium takes one thread at a time and cannot be interrupted, so this runs in worker processes only (isolation).
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
"""Pages become pictures at this many dots per inch, and boxes count in these dots."""
MAX_PAGES = 100
MAX_PAGE_PIXELS = 20_000_000

_POINTS_PER_INCH = 72
_SCAN_SHARE = 0.5
_STAMP_CHARACTERS = 100
_CELL_GAP = 1.5

Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Line:
    """Words that stand beside one another."""

    text: str
    score: float
    """0 to 1; what a file says of itself is certain."""
    box: Box
    """xmin, ymin, xmax, ymax from the upper left corner of the page's picture."""
    slope: float = 0.0
    """How far it sinks from left to right, for each dot; a photographed page is hardly ever level."""


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
        lines = tuple(_lines(_letters(textpage, _placing(page, scale))))
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


def _lines(letters: Iterable[tuple[str, Box | None]]) -> Iterator[Line]:
    """Cuts at line ends and at wide gaps, so that the cells of a table stay apart."""
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
            box = _around(box, corners) if box else corners
    if box:
        yield from _line(words, box)


def _letters(textpage: Any, place: Callable[[Box], Box]) -> Iterator[tuple[str, Box | None]]:
    """Every character with its corners; spaces and line ends have none."""
    from pypdfium2 import raw

    for index in range(textpage.count_chars()):
        code = raw.FPDFText_GetUnicode(textpage, index)
        letter = chr(code) if code else ""
        yield letter or " ", place(textpage.get_charbox(index)) if letter.strip() else None


def _placing(page: Any, scale: float) -> Callable[[Box], Box]:
    """From the file's own coordinates to the dots of the picture: cropped, turned as the page is, from the top down."""
    left, bottom, right, top = page.get_bbox()
    turns: dict[int, Callable[[float, float], tuple[float, float]]] = {
        0: lambda x, y: (x - left, top - y),
        90: lambda x, y: (y - bottom, x - left),
        180: lambda x, y: (right - x, y - bottom),
        270: lambda x, y: (top - y, right - x),
    }
    turn = turns[page.get_rotation()]

    def place(corners: Box) -> Box:
        one, other = turn(*corners[:2]), turn(*corners[2:])
        (xmin, xmax), (ymin, ymax) = (sorted((scale * a, scale * b)) for a, b in zip(one, other, strict=True))
        return xmin, ymin, xmax, ymax

    return place


def _around(one: Box, other: Box) -> Box:
    return min(one[0], other[0]), min(one[1], other[1]), max(one[2], other[2]), max(one[3], other[3])


def _is_gap(box: Box, corners: Box) -> bool:
    """Whether a letter is far from those before it; in text that runs upwards they stand above one another."""
    tall = max(box[3] - box[1], corners[3] - corners[1])
    beside = max(corners[0] - box[2], box[0] - corners[2])
    above = max(corners[1] - box[3], box[1] - corners[3])
    return max(beside, above) > _CELL_GAP * tall


def _line(letters: list[str], box: Box) -> Iterator[Line]:
    text = " ".join("".join(letters).split())
    if text:
        yield Line(text, 1.0, box)

"""Text and pictures of a document's pages, for questions about it."""

from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from experts.endpoints.media import to_data_url
from experts.host.handler import Media
from experts.host.media import Page, pages, png

if TYPE_CHECKING:
    from experts.lite.ocr import TextRecognizer

ISOLATED = ("cv2", "onnxruntime", "rapidocr", "experts.lite.ocr")
"""Modules of the OCR engine, which run in worker processes."""

MAX_PICTURES = 4
"""Page images sent with one question; each takes a thousand tokens or more."""
_LONGEST_SIDE = 1600


def can_recognize() -> bool:
    """Whether the OCR engine of the expert `lite` is installed."""
    return all(map(find_spec, ("rapidocr", "onnxruntime")))


@dataclass(frozen=True)
class PageText:
    """A page with its text."""

    number: int
    text: str
    """In reading order; empty if it has none, or none could be read."""


@dataclass(frozen=True)
class Document:
    """The pages of one file."""

    file: str
    """Name of the file."""
    pages: tuple[PageText, ...]
    pictures: tuple[str, ...]
    """Data URLs of pages without embedded text, for a model that sees."""


class DocumentReader:
    """Reads documents: embedded text where there is some, else recognized text.

    Args:
        with_pictures: whether to return the pictures of pages without embedded text.
    """

    def __init__(self, *, with_pictures: bool) -> None:
        self._with_pictures = with_pictures
        self._recognizer: TextRecognizer | None = None

    def read(self, media: Media) -> Document:
        """Reads a document.

        Raises:
            InvalidRequest: it cannot be decoded, or is too large.
        """
        document = pages(media)
        scans = [page for page in document if not page.lines][:MAX_PICTURES] if self._with_pictures else []
        return Document(
            media.name,
            tuple(PageText(page.number, self._read_text(page, media.name)) for page in document),
            tuple(map(_encode, scans)),
        )

    def close(self) -> None:
        """Releases the OCR engine."""
        self._recognizer = None

    def _read_text(self, page: Page, file: str) -> str:
        from experts.lite.reading_order import join_in_reading_order

        lines = page.lines or (self._engine().recognize(page.picture(), file) if can_recognize() else ())
        return join_in_reading_order(lines)

    def _engine(self) -> "TextRecognizer":
        """Returns the OCR engine, started by the first page that needs it."""
        from experts.lite.ocr import text_recognizer

        self._recognizer = self._recognizer or text_recognizer.get()
        return self._recognizer


def _encode(page: Page) -> str:
    picture = page.picture()
    picture.thumbnail((_LONGEST_SIDE, _LONGEST_SIDE))
    return to_data_url(png(picture, f"page-{page.number}.png"))

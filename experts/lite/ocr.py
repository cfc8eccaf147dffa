"""Text read from pictures and PDF pages (rapidocr with the models inside its wheel; nothing is downloaded)."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from threading import Lock
from typing import TYPE_CHECKING, Any

from experts.host.handler import ALONE, Call, Handler, Inputs, Outputs, Parameters
from experts.host.media import Page, box, pages
from experts.host.pdf import Line
from experts.lite.layout import reading_order
from experts.lite.shared import Shared
from services.runtime.errors import FailedPrecondition

if TYPE_CHECKING:
    from PIL.Image import Image

NO_TEXT = "No text found."

_LONGEST_SIDE = 2000
_REMEMBERED = 4
_SHORTEST_SIDE = 64
_STRIP = 2.0
_STRIPS = 20
_SHARED = 0.25
_SLIMMEST = 4
_TELLING = 2


class Reader:
    """The loaded and warmed engine; takes one picture at a time."""

    def __init__(self) -> None:
        from rapidocr import RapidOCR

        self._lock = Lock()
        self._recent: dict[bytes, tuple[Line, ...]] = {}
        self._engine = RapidOCR(
            params={
                "Global.log_level": "critical",
                "Global.max_side_len": _LONGEST_SIDE,
                "Det.model_path": _bundled("det"),
                "Cls.model_path": _bundled("cls"),
                "Rec.model_path": _bundled("rec"),
            }
        )
        self._warm()

    def lines(self, picture: "Image") -> tuple[Line, ...]:
        """What is written in the picture, in no particular order; of the last few pictures it is remembered."""
        digest = hashlib.sha256(repr(picture.size).encode() + picture.tobytes()).digest()
        with self._lock:
            if digest not in self._recent:
                self._recent[digest] = tuple(self._read(picture))
                for oldest in list(self._recent)[:-_REMEMBERED]:
                    del self._recent[oldest]
            return self._recent[digest]

    def _read(self, picture: "Image") -> Iterator[Line]:
        for strip in _strips(*picture.size):
            part = _padded(picture.crop((0, strip.top, picture.width, strip.bottom)))
            for line in self._lines(part, strip.top):
                if strip.first <= (line.box[1] + line.box[3]) / 2 < strip.last:
                    yield line

    def _lines(self, picture: "Image", top: int) -> Iterator[Line]:
        import numpy as np

        found = self._engine(np.asarray(picture)[:, :, ::-1])
        for text, score, quad in zip(
            found.txts or (), found.scores or (), found.boxes if found.txts else (), strict=True
        ):
            if text.strip():
                yield Line(text.strip(), round(float(score), 4), _upright(quad, top), _slope(quad))

    def _warm(self) -> None:
        """Loads the three models, which come only when they are needed; on a square picture this is quickest."""
        from PIL import Image, ImageDraw, ImageFont

        picture = Image.new("RGB", (160, 160), "white")
        ImageDraw.Draw(picture).text((16, 48), "Ready", "black", ImageFont.load_default(40))
        self.lines(picture)


reader = Shared(Reader)


def _bundled(part: str) -> str:
    """The path of a model in the wheel: with a path given, the engine downloads nothing."""
    found = [entry for entry in (files("rapidocr") / "models").iterdir() if f"_{part}_" in entry.name]
    if not found:
        raise FailedPrecondition(
            f"The installed rapidocr brings no {part} model along.",
            remedy="Install a version of rapidocr whose wheel holds its models, such as 3.10.",
            reason="LOAD_FAILED",
        )
    return str(found[0])


@dataclass(frozen=True)
class Strip:
    """A part of a tall picture, with the part of it whose lines are its own: the rest is another's, too."""

    top: int
    bottom: int
    first: float
    last: float


def _strips(width: int, height: int) -> Iterator[Strip]:
    """Long screenshots and receipts are read in parts that overlap: made to fit, they could not be read at all."""
    size = max(round(_STRIP * max(width, _SHORTEST_SIDE)), -(-height // _STRIPS))
    shared = round(_SHARED * size)
    for top in range(0, max(1, height - shared), size - shared):
        bottom = min(height, top + size)
        yield Strip(
            top, bottom, top + shared / 2 if top else -1, bottom - shared / 2 if bottom < height else height + 1
        )


def _padded(picture: "Image") -> "Image":
    """On a canvas that is neither tiny nor slim: the engine would blow that up beyond all measure."""
    from PIL import Image

    width = max(picture.width, _SHORTEST_SIDE, picture.height // _SLIMMEST)
    height = max(picture.height, _SHORTEST_SIDE, picture.width // _SLIMMEST)
    if (width, height) == picture.size:
        return picture
    canvas = Image.new("RGB", (width, height), picture.getpixel((0, 0)))
    canvas.paste(picture, (0, 0))
    return canvas


def _upright(quad: Any, top: int) -> tuple[float, float, float, float]:
    """The smallest upright box around one that may be turned."""
    (left, upper), (right, lower) = quad.min(axis=0), quad.max(axis=0)
    return round(float(left), 1), round(float(upper) + top, 1), round(float(right), 1), round(float(lower) + top, 1)


def _slope(quad: Any) -> float:
    """By the upper edge; too short a line says nothing."""
    across, down = (float(side) for side in quad[1] - quad[0])
    return down / across if across > _TELLING * abs(quad[3][1] - quad[0][1]) else 0.0


@dataclass(frozen=True)
class Text:
    """A page that has been read."""

    page: Page
    source: str
    """Whether the file itself said so, or the engine saw it."""
    lines: tuple[Line, ...]
    text: str
    """In the order in which a person would read it."""


def read(engine: Reader, document: Sequence[Page], call: Call) -> list[Text]:
    """The pages with the file's own text where it has one, else with what the engine sees in the picture."""
    texts: list[Text] = []
    for page in document:
        if call.cancelled:
            break
        if len(document) > 1:
            call.progress(len(texts) / len(document), f"page {page.number} of {len(document)}")
        lines = page.lines or engine.lines(page.picture())
        texts.append(Text(page, "text layer" if page.lines else "ocr", lines, reading_order(lines)))
    return texts


class ImageToText:
    """The task image-to-text: all that is written, in reading order."""

    batching = ALONE

    def __init__(self, engine: Reader) -> None:
        self._engine = engine

    def prepare(self, inputs: Inputs, _parameters: Parameters) -> list[Page]:
        return pages(inputs["image"])

    def cost(self, item: list[Page]) -> float:
        return len(item)

    def run(self, items: Sequence[list[Page]], call: Call) -> list[list[Text]]:
        return [read(self._engine, document, call) for document in items]

    def finish(self, raw: list[Text]) -> Outputs:
        text = "\n\n".join(one.text for one in raw if one.text)
        return {"text": text or NO_TEXT, "details": {"pages": [_page(one) for one in raw]}}


def _page(text: Text) -> dict[str, Any]:
    return {
        "page": text.page.number,
        "source": text.source,
        "width": round(text.page.width, 1),
        "height": round(text.page.height, 1),
        "lines": [described(line) for line in text.lines],
    }


def described(line: Line) -> dict[str, Any]:
    return {"text": line.text, "score": line.score, "box": box(line.box)}


def image_to_text(_model_id: str, _device: str) -> Handler:
    """Loads and warms the engine."""
    return ImageToText(reader.get())

"""OCR of images and PDF pages (rapidocr with the models in its wheel; nothing is downloaded)."""

import hashlib
import os
import weakref
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from threading import Lock
from typing import TYPE_CHECKING, Any

from experts.host.handler import UNBATCHED, Call, Handler, Inputs, Outputs, Parameters
from experts.host.isolation import engine_pool, run_in_pool
from experts.host.media import Line, Page, box_to_json, pages
from experts.host.threads import mark_blocked
from experts.lite.reading_order import join_in_reading_order
from experts.lite.shared_engine import SharedEngine
from services.common.errors import FailedPrecondition

if TYPE_CHECKING:
    from PIL.Image import Image


_PORT = "image"
_SLOW_SECONDS = 8.0
"""A page takes one or two seconds, a page of small print more."""
_MAX_THREADS = 4
_LONGEST_SIDE = 2000
_CACHED_PICTURES = 4
_SHORTEST_SIDE = 64
_STRIP_ASPECT = 2.0
_MAX_STRIPS = 20
_OVERLAP_SHARE = 0.25
_MAX_ASPECT = 4
_MIN_SLOPE_ASPECT = 2


class TextRecognizer:
    """The OCR engine in its own worker processes; loaded and warmed up in the first of them."""

    def __init__(self) -> None:
        self._pool = engine_pool(_load_engine, slow_seconds=_SLOW_SECONDS)
        weakref.finalize(self, self._pool.close)
        self._pool.wait_ready()
        self._lock = Lock()
        self._recent: dict[bytes, Future[tuple[Line, ...]]] = {}

    @property
    def memory_bytes(self) -> int:
        return self._pool.resident_bytes

    @property
    def is_closed(self) -> bool:
        """Whether its worker processes have ended with the host."""
        return self._pool.is_closed

    def recognize(self, picture: "Image", file: str) -> tuple[Line, ...]:
        """Returns the text lines of the picture, in no particular order.

        Several tasks may read the same picture, so the results of the last few pictures are cached, and a call for a
        picture that is being recognized waits for that result.

        Raises:
            InvalidRequest: DECODE_LIMIT, naming the file.
        """
        digest = hashlib.sha256(repr(picture.size).encode() + picture.tobytes()).digest()
        with self._lock:
            cached = self._recent.get(digest)
            pending = self._recent[digest] = cached or Future()
            for oldest in list(self._recent)[:-_CACHED_PICTURES]:
                del self._recent[oldest]
        if cached is None:
            return self._recognize(picture, file, digest, pending)
        with mark_blocked():
            has_result = cached.exception() is None
        return (
            cached.result() if has_result else run_in_pool(self._pool, recognize_lines, picture, file=file, port=_PORT)
        )

    def _recognize(
        self, picture: "Image", file: str, digest: bytes, pending: "Future[tuple[Line, ...]]"
    ) -> tuple[Line, ...]:
        try:
            lines = run_in_pool(self._pool, recognize_lines, picture, file=file, port=_PORT)
        except BaseException as error:
            with self._lock:
                self._recent.pop(digest, None)
            pending.set_exception(error)
            raise
        pending.set_result(lines)
        return lines


# ------------------------------------------------------- in a worker process


@cache
def _engine() -> Any:
    from rapidocr import RapidOCR

    return RapidOCR(
        params={
            "Global.log_level": "critical",
            "Global.max_side_len": _LONGEST_SIDE,
            "EngineConfig.onnxruntime.intra_op_num_threads": min(_MAX_THREADS, os.cpu_count() or 1),
            "Det.model_path": _find_bundled_model("det"),
            "Cls.model_path": _find_bundled_model("cls"),
            "Rec.model_path": _find_bundled_model("rec"),
        }
    )


def _load_engine() -> None:
    """Loads the three models, which load lazily, by running the engine on a small square image."""
    from PIL import Image, ImageDraw, ImageFont

    picture = Image.new("RGB", (160, 160), "white")
    ImageDraw.Draw(picture).text((16, 48), "Ready", "black", ImageFont.load_default(40))
    recognize_lines(picture)


def recognize_lines(picture: "Image") -> tuple[Line, ...]:
    """Returns the text lines of the picture, in no particular order."""
    return tuple(_recognize_strips(picture))


def _recognize_strips(picture: "Image") -> Iterator[Line]:
    for strip in _split_into_strips(*picture.size):
        part = _pad(picture.crop((0, strip.top, picture.width, strip.bottom)))
        for line in _recognize_picture(part, strip.top):
            if strip.first <= (line.box[1] + line.box[3]) / 2 < strip.last:
                yield line


def _recognize_picture(picture: "Image", top: int) -> Iterator[Line]:
    import numpy as np

    output = _engine()(np.asarray(picture)[:, :, ::-1])
    for text, score, quad in zip(
        output.txts or (), output.scores or (), output.boxes if output.txts else (), strict=True
    ):
        if any(character.isalnum() for character in text):  # edges in a picture are often read as dashes
            yield Line(text.strip(), round(float(score), 4), _bounding_box(quad, top), _measure_slope(quad))


def _find_bundled_model(part: str) -> str:
    """Returns the path of a model in the wheel; given a path, the engine downloads nothing."""
    models = [entry for entry in (files("rapidocr") / "models").iterdir() if f"_{part}_" in entry.name]
    if not models:
        raise FailedPrecondition(
            f"the installed rapidocr contains no {part} model",
            remedy="install a version of rapidocr whose wheel holds its models, such as 3.10",
            reason="LOAD_FAILED",
        )
    return str(models[0])


@dataclass(frozen=True)
class Strip:
    """A part of a tall image, and the range of rows whose lines belong to it; the rest overlaps with other parts."""

    top: int
    bottom: int
    first: float
    last: float


def _split_into_strips(width: int, height: int) -> Iterator[Strip]:
    """Splits long screenshots and receipts into overlapping parts: scaled down as a whole they would be illegible."""
    size = max(round(_STRIP_ASPECT * max(width, _SHORTEST_SIDE)), -(-height // _MAX_STRIPS))
    overlap = round(_OVERLAP_SHARE * size)
    for top in range(0, max(1, height - overlap), size - overlap):
        bottom = min(height, top + size)
        yield Strip(
            top, bottom, top + overlap / 2 if top else -1, bottom - overlap / 2 if bottom < height else height + 1
        )


def _pad(picture: "Image") -> "Image":
    """Pads tiny and narrow images, which the engine would enlarge excessively."""
    from PIL import Image

    width = max(picture.width, _SHORTEST_SIDE, picture.height // _MAX_ASPECT)
    height = max(picture.height, _SHORTEST_SIDE, picture.width // _MAX_ASPECT)
    if (width, height) == picture.size:
        return picture
    canvas = Image.new("RGB", (width, height), picture.getpixel((0, 0)))
    canvas.paste(picture, (0, 0))
    return canvas


def _bounding_box(quad: Any, top: int) -> tuple[float, float, float, float]:
    """Returns the smallest upright box around a rotated one."""
    (left, upper), (right, lower) = quad.min(axis=0), quad.max(axis=0)
    return round(float(left), 1), round(float(upper) + top, 1), round(float(right), 1), round(float(lower) + top, 1)


def _measure_slope(quad: Any) -> float:
    """Returns the slope of a line by its upper edge; 0 for a short line."""
    across, down = (float(side) for side in quad[1] - quad[0])
    return down / across if across > _MIN_SLOPE_ASPECT * abs(quad[3][1] - quad[0][1]) else 0.0


# ------------------------------------------------------- in the expert


text_recognizer = SharedEngine(TextRecognizer, is_closed=lambda engine: engine.is_closed)


@dataclass(frozen=True)
class PageText:
    """A page with its text."""

    page: Page
    source: str
    """Whether the text is embedded in the file or was recognized by the engine."""
    lines: tuple[Line, ...]
    text: str
    """Text in reading order."""


def read_pages(engine: TextRecognizer, document: Sequence[Page], call: Call, file: str) -> list[PageText]:
    """Returns the pages with their embedded text or, without one, with recognized text."""
    texts: list[PageText] = []
    for page in document:
        if call.cancelled:
            break
        if len(document) > 1:
            call.progress(len(texts) / len(document), f"page {page.number} of {len(document)}")
        lines = page.lines or engine.recognize(page.picture(), file)
        texts.append(PageText(page, "text layer" if page.lines else "ocr", lines, join_in_reading_order(lines)))
    return texts


@dataclass(frozen=True)
class Document:
    """The pages of one file."""

    file: str
    """Name of the file."""
    pages: Sequence[Page]


class ImageToText(Handler):
    """The task image-to-text: all text, in reading order."""

    batching = UNBATCHED
    concurrent = True

    def __init__(self, engine: TextRecognizer) -> None:
        self._engine = engine
        self.memory_bytes = engine.memory_bytes

    def prepare(self, inputs: Inputs, _parameters: Parameters) -> Document:
        return Document(inputs["image"].name, pages(inputs["image"]))

    def cost(self, item: Document) -> float:
        return len(item.pages)

    def run(self, items: Sequence[Document], call: Call) -> list[list[PageText]]:
        return [read_pages(self._engine, document.pages, call, document.file) for document in items]

    def finish(self, raw: list[PageText]) -> Outputs:
        text = "\n\n".join(page.text for page in raw if page.text)
        return {"text": text, "details": {"pages": [_render_page(page) for page in raw]}}


def _render_page(text: PageText) -> dict[str, Any]:
    return {
        "page": text.page.number,
        "source": text.source,
        "width": round(text.page.width, 1),
        "height": round(text.page.height, 1),
        "lines": [render_line(line) for line in text.lines],
    }


def render_line(line: Line) -> dict[str, Any]:
    return {"text": line.text, "score": line.score, "box": box_to_json(line.box)}


def image_to_text(_model_id: str, _device: str) -> Handler:
    """Loads and warms up the engine."""
    return ImageToText(text_recognizer.get())

"""Detection of faces and people, with OpenCV's built-in detectors."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from experts.host.handler import Handler, Inputs, Outputs, Parameters
from experts.host.isolation import isolated_single
from experts.host.media import box, open_image, png, renamed

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL.Image import Image

    Pixels = NDArray[np.uint8]

_FACE_SIDE = 1024
_BODY_SIDE = 800
_SMALLEST_FACE = 20
_BODY_WINDOW = (64, 128)
_AIR = (0.15, 0.05)
_THRESHOLD = 0.5
_HALF_VOTES = 6.0
_HALF_MARGIN = 1.0
_SAME = 0.4
_HEAD = 0.4
_HEADS_TALL = 3.0
_COLOURS = {"face": "#ffb000", "person": "#00c2a8"}


@dataclass(frozen=True)
class Found:
    """A detected object; its box is in pixels of the original image."""

    label: str
    score: float
    box: tuple[float, float, float, float]

    @property
    def height(self) -> float:
        return self.box[3] - self.box[1]


Detector = Callable[["Image"], list[Found]]


_LABELS = {"opencv/haar-frontalface": ("face", "faces"), "opencv/people": ("person", "people")}


def object_detection(model_id: str, _device: str) -> Handler:
    """Loads the face or the people detector, by model id."""
    return isolated_single(partial(_detected, model_id), port="image")


def _detected(model_id: str, inputs: Inputs, parameters: Parameters) -> Outputs:
    """Runs in a worker process."""
    labels, picture = _LABELS[model_id], open_image(inputs["image"])
    least = float(parameters.get("threshold", _THRESHOLD))
    found = [one for one in _detector(model_id)(picture) if one.score >= least]
    return {
        "objects": [_described(one) for one in found],
        "image": png(_marked(picture, found), renamed(inputs["image"], labels[1], "png")),
        "text": _counted(len(found), *labels),
    }


@cache
def _detector(model_id: str) -> Detector:
    return {"opencv/haar-frontalface": faces, "opencv/people": people}[model_id]()


def faces() -> Detector:
    """Detects frontal faces; the score grows with the number of overlapping detection windows."""
    import cv2

    cascade = cv2.CascadeClassifier(str(files("cv2.data") / "haarcascade_frontalface_alt.xml"))

    def detect(picture: "Image") -> list[Found]:
        grey, scale = _scaled(picture.convert("L"), _FACE_SIDE)
        if min(grey.shape) < _SMALLEST_FACE:
            return []
        smallest = (_SMALLEST_FACE, _SMALLEST_FACE)
        windows = cascade.detectMultiScale(cv2.equalizeHist(grey), scaleFactor=1.1, minNeighbors=0, minSize=smallest)
        if not len(windows):
            return []
        grouped, votes = cv2.groupRectangles([[int(side) for side in window] for window in windows], 1, 0.2)
        found = [
            Found("face", int(count) / (int(count) + _HALF_VOTES), _box(window, scale, picture))
            for window, count in zip(grouped, votes, strict=True)
        ]
        return _distinct(found)

    return detect


def people() -> Detector:
    """Detects standing people by their outline, and faces; the score of an outline is its margin."""
    import cv2

    find_faces = faces()
    outlines = cv2.HOGDescriptor()
    outlines.setSVMDetector(cv2.HOGDescriptor.getDefaultPeopleDetector())

    def detect(picture: "Image") -> list[Found]:
        seen = [Found("person", face.score, face.box) for face in find_faces(picture)]
        pixels, scale = _scaled(picture, _BODY_SIDE)
        if pixels.shape[1] < _BODY_WINDOW[0] or pixels.shape[0] < _BODY_WINDOW[1]:
            return seen
        windows, margins = outlines.detectMultiScale(pixels, winStride=(8, 8), padding=(16, 16), scale=1.05)
        bodies = [
            Found("person", float(margin) / (float(margin) + _HALF_MARGIN), _box(_tight(window), scale, picture))
            for window, margin in zip(windows, margins, strict=True)
        ]
        return merged(seen, _distinct(bodies))

    return detect


def merged(seen: Sequence[Found], bodies: Sequence[Found]) -> list[Found]:
    """Merges bodies with their faces, and drops small bodies next to a large face, which are false positives."""
    tallest = max((face.height for face in seen), default=0.0)
    plausible = [body for body in bodies if body.height >= _HEADS_TALL * tallest or any(_wears(body, f) for f in seen)]
    whole = [
        Found("person", max([body.score, *(face.score for face in seen if _wears(body, face))]), body.box)
        for body in plausible
    ]
    alone = [face for face in seen if not any(_wears(body, face) for body in plausible)]
    return sorted([*whole, *alone], key=lambda one: -one.score)


def _wears(body: Found, face: Found) -> bool:
    x, y = (face.box[0] + face.box[2]) / 2, (face.box[1] + face.box[3]) / 2
    left, top, right, _ = body.box
    return left <= x <= right and top <= y <= top + _HEAD * body.height and body.height >= _HEADS_TALL * face.height


def _scaled(picture: "Image", side: int) -> "tuple[Pixels, float]":
    """Returns the image scaled down for the detector, and the scale."""
    import numpy as np

    small = picture.copy()
    small.thumbnail((side, side))
    return np.asarray(small), picture.width / small.width


def _tight(window: Any) -> tuple[float, ...]:
    """Shrinks the box, because the detector was trained with a margin around people."""
    left, top, width, height = (float(value) for value in window)
    return left + _AIR[0] * width, top + _AIR[1] * height, (1 - 2 * _AIR[0]) * width, (1 - 2 * _AIR[1]) * height


def _box(window: Any, scale: float, picture: "Image") -> tuple[float, float, float, float]:
    left, top, width, height = (float(value) * scale for value in window)
    right, bottom = min(left + width, picture.width), min(top + height, picture.height)
    return max(0.0, left), max(0.0, top), right, bottom


def _distinct(found: Iterable[Found]) -> list[Found]:
    """Returns objects best first, without those that overlap a better one."""
    kept: list[Found] = []
    for one in sorted(found, key=lambda one: -one.score):
        if all(_overlap(one.box, other.box) < _SAME for other in kept):
            kept.append(one)
    return kept


def _overlap(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    """Returns the overlap as a fraction of the smaller box."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    smaller = min((box[2] - box[0]) * (box[3] - box[1]) for box in (one, other))
    return max(0.0, width) * max(0.0, height) / max(smaller, 1e-9)


def _described(found: Found) -> dict[str, Any]:
    return {"label": found.label, "score": round(found.score, 4), "box": box(found.box)}


def _marked(picture: "Image", found: Sequence[Found]) -> "Image":
    from PIL import ImageDraw, ImageFont

    marked = picture.copy()
    draw = ImageDraw.Draw(marked)
    line = max(2, round(max(picture.size) / 300))
    font = ImageFont.load_default(max(12, 5 * line))
    for one in found:
        colour, corner = _COLOURS[one.label], (one.box[0] + line, one.box[1] + line)
        label = f"{one.label} {one.score:.2f}"
        draw.rectangle(one.box, outline=colour, width=line)
        draw.rectangle(draw.textbbox(corner, label, font=font), fill=colour)
        draw.text(corner, label, fill="black", font=font)
    return marked


def _counted(count: int, one: str, many: str) -> str:
    return f"{count} {one}" if count == 1 else f"{count or 'no'} {many}"

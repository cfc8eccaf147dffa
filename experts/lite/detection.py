"""Detection of faces and people, with OpenCV's built-in detectors."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from experts.host.handler import Handler, Inputs, Outputs, Parameters
from experts.host.isolation import isolated_single
from experts.host.media import box_to_json, derive_name, open_image, png

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL.Image import Image

    Pixels = NDArray[np.uint8]

_FACE_SIDE = 1024
_BODY_SIDE = 800
_SMALLEST_FACE = 20
_BODY_WINDOW = (64, 128)
_WINDOW_MARGIN = (0.15, 0.05)
_THRESHOLD = 0.5
_HALF_VOTES = 6.0
"""Number of overlapping face windows with a score of 0.5."""
_HALF_MARGIN = 1.0
"""Margin of a body window with a score of 0.5."""
_DUPLICATE_OVERLAP = 0.4
_HEAD_SHARE = 0.4
_MIN_BODY_IN_FACES = 3.0
_COLOURS = {"face": "#ffb000", "person": "#00c2a8"}


@dataclass(frozen=True)
class DetectedObject:
    """A detected object; its box is in pixels of the original image."""

    label: str
    score: float
    box: tuple[float, float, float, float]

    @property
    def height(self) -> float:
        return self.box[3] - self.box[1]


Detector = Callable[["Image"], list[DetectedObject]]


_LABELS = {"opencv/haar-frontalface": ("face", "faces"), "opencv/people": ("person", "people")}


def object_detection(model_id: str, _device: str) -> Handler:
    """Loads the face or the people detector, by model id."""
    return isolated_single(partial(_detect, model_id), port="image")


def _detect(model_id: str, inputs: Inputs, parameters: Parameters) -> Outputs:
    """Runs in a worker process."""
    labels, picture = _LABELS[model_id], open_image(inputs["image"])
    threshold = float(parameters.get("threshold", _THRESHOLD))
    detections = [detection for detection in _load_detector(model_id)(picture) if detection.score >= threshold]
    return {
        "objects": [_render_object(detection) for detection in detections],
        "image": png(_draw_boxes(picture, detections), derive_name(inputs["image"], labels[1], "png")),
        "text": _format_count(len(detections), *labels),
    }


@cache
def _load_detector(model_id: str) -> Detector:
    return {"opencv/haar-frontalface": load_face_detector, "opencv/people": load_people_detector}[model_id]()


def load_face_detector() -> Detector:
    """Detects frontal faces; the score grows with the number of overlapping detection windows."""
    import cv2

    cascade = cv2.CascadeClassifier(str(files("cv2.data") / "haarcascade_frontalface_alt.xml"))

    def detect(picture: "Image") -> list[DetectedObject]:
        grey, scale = _scale_down(picture.convert("L"), _FACE_SIDE)
        if min(grey.shape) < _SMALLEST_FACE:
            return []
        smallest = (_SMALLEST_FACE, _SMALLEST_FACE)
        windows = cascade.detectMultiScale(cv2.equalizeHist(grey), scaleFactor=1.1, minNeighbors=0, minSize=smallest)
        if not len(windows):
            return []
        grouped, votes = cv2.groupRectangles([[int(side) for side in window] for window in windows], 1, 0.2)
        faces = [
            DetectedObject("face", int(count) / (int(count) + _HALF_VOTES), _to_box(window, scale, picture))
            for window, count in zip(grouped, votes, strict=True)
        ]
        return _drop_duplicates(faces)

    return detect


def load_people_detector() -> Detector:
    """Detects standing people by their outline, and faces; the score of an outline is its margin."""
    import cv2

    detect_faces = load_face_detector()
    outlines = cv2.HOGDescriptor()
    outlines.setSVMDetector(cv2.HOGDescriptor.getDefaultPeopleDetector())

    def detect(picture: "Image") -> list[DetectedObject]:
        faces = [DetectedObject("person", face.score, face.box) for face in detect_faces(picture)]
        pixels, scale = _scale_down(picture, _BODY_SIDE)
        if pixels.shape[1] < _BODY_WINDOW[0] or pixels.shape[0] < _BODY_WINDOW[1]:
            return faces
        windows, margins = outlines.detectMultiScale(pixels, winStride=(8, 8), padding=(16, 16), scale=1.05)
        bodies = [
            DetectedObject(
                "person", float(margin) / (float(margin) + _HALF_MARGIN), _to_box(_trim_margin(window), scale, picture)
            )
            for window, margin in zip(windows, margins, strict=True)
        ]
        return merge_faces_into_bodies(faces, _drop_duplicates(bodies))

    return detect


def merge_faces_into_bodies(faces: Sequence[DetectedObject], bodies: Sequence[DetectedObject]) -> list[DetectedObject]:
    """Merges each body with its faces, and drops small bodies next to a large face, which are false positives."""
    tallest = max((face.height for face in faces), default=0.0)
    plausible = [
        body for body in bodies if body.height >= _MIN_BODY_IN_FACES * tallest or any(_has_face(body, f) for f in faces)
    ]
    whole = [
        DetectedObject("person", max([body.score, *(face.score for face in faces if _has_face(body, face))]), body.box)
        for body in plausible
    ]
    unmatched = [face for face in faces if not any(_has_face(body, face) for body in plausible)]
    return sorted([*whole, *unmatched], key=lambda person: -person.score)


def _has_face(body: DetectedObject, face: DetectedObject) -> bool:
    x, y = (face.box[0] + face.box[2]) / 2, (face.box[1] + face.box[3]) / 2
    left, top, right, _ = body.box
    return (
        left <= x <= right
        and top <= y <= top + _HEAD_SHARE * body.height
        and body.height >= _MIN_BODY_IN_FACES * face.height
    )


def _scale_down(picture: "Image", side: int) -> "tuple[Pixels, float]":
    """Returns the image scaled down for the detector, and the scale."""
    import numpy as np

    small = picture.copy()
    small.thumbnail((side, side))
    return np.asarray(small), picture.width / small.width


def _trim_margin(window: Any) -> tuple[float, ...]:
    """Shrinks the box, because the detector was trained with a margin around people."""
    left, top, width, height = (float(value) for value in window)
    return (
        left + _WINDOW_MARGIN[0] * width,
        top + _WINDOW_MARGIN[1] * height,
        (1 - 2 * _WINDOW_MARGIN[0]) * width,
        (1 - 2 * _WINDOW_MARGIN[1]) * height,
    )


def _to_box(window: Any, scale: float, picture: "Image") -> tuple[float, float, float, float]:
    left, top, width, height = (float(value) * scale for value in window)
    right, bottom = min(left + width, picture.width), min(top + height, picture.height)
    return max(0.0, left), max(0.0, top), right, bottom


def _drop_duplicates(detections: Iterable[DetectedObject]) -> list[DetectedObject]:
    """Returns objects best first, without those that overlap a better one."""
    distinct: list[DetectedObject] = []
    for detection in sorted(detections, key=lambda detection: -detection.score):
        if all(_measure_overlap(detection.box, other.box) < _DUPLICATE_OVERLAP for other in distinct):
            distinct.append(detection)
    return distinct


def _measure_overlap(first: tuple[float, ...], second: tuple[float, ...]) -> float:
    """Returns the overlap as a fraction of the smaller box."""
    width = min(first[2], second[2]) - max(first[0], second[0])
    height = min(first[3], second[3]) - max(first[1], second[1])
    smaller = min((box[2] - box[0]) * (box[3] - box[1]) for box in (first, second))
    return max(0.0, width) * max(0.0, height) / max(smaller, 1e-9)


def _render_object(detection: DetectedObject) -> dict[str, Any]:
    return {"label": detection.label, "score": round(detection.score, 4), "box": box_to_json(detection.box)}


def _draw_boxes(picture: "Image", detections: Sequence[DetectedObject]) -> "Image":
    from PIL import ImageDraw, ImageFont

    drawing = picture.copy()
    draw = ImageDraw.Draw(drawing)
    line = max(2, round(max(picture.size) / 300))
    font = ImageFont.load_default(max(12, 5 * line))
    for detection in detections:
        colour, corner = _COLOURS[detection.label], (detection.box[0] + line, detection.box[1] + line)
        label = f"{detection.label} {detection.score:.2f}"
        draw.rectangle(detection.box, outline=colour, width=line)
        draw.rectangle(draw.textbbox(corner, label, font=font), fill=colour)
        draw.text(corner, label, fill="black", font=font)
    return drawing


def _format_count(count: int, singular: str, plural: str) -> str:
    return f"{count} {singular}" if count == 1 else f"{count or 'no'} {plural}"

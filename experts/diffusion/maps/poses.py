"""Pose maps: a detector finds people, ViTPose their joints; limbs are drawn as OpenPose does."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from experts.diffusion.maps.map_handler import MapHandler
from experts.host import load_context
from experts.host.handler import Handler
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.generation import move_to_device
from experts.torch_host.non_finite import require_finite
from services.common.errors import InvalidRequest

if TYPE_CHECKING:
    from PIL.Image import Image

DETECTOR = "PekingU/rtdetr_r18vd_coco_o365"
"""Model that detects people; it has no pinned commit, so the available one is used."""
_PERSON = "person"
_PERSON_THRESHOLD, _JOINT_THRESHOLD = 0.5, 0.3
_MAX_PEOPLE = 50

_JOINTS = (0, None, 6, 8, 10, 5, 7, 9, 12, 14, 16, 11, 13, 15, 2, 1, 4, 3)
"""COCO numbers of OpenPose's 18 joints; COCO has no neck, which is placed between the shoulders."""
_NECK, _SHOULDERS = 1, (2, 5)
_LIMBS = (
    (1, 2), (1, 5), (2, 3), (3, 4), (5, 6), (6, 7), (1, 8), (8, 9), (9, 10),
    (1, 11), (11, 12), (12, 13), (1, 0), (0, 14), (14, 16), (0, 15), (15, 17),
)  # fmt: skip
_LIMB_SHADE = 0.6

Point = tuple[float, float]


def openpose_control(model_id: str, device: str) -> Handler:
    """Loads a ViTPose and a detector of people."""
    from transformers import AutoImageProcessor, AutoModelForObjectDetection, VitPoseForPoseEstimation

    checkpoint = Checkpoint.fetch(model_id, device)
    with load_context.use_revision(""):
        detector = Checkpoint.fetch(DETECTOR, device)
    return PoseMap(
        checkpoint,
        checkpoint.model(VitPoseForPoseEstimation),
        checkpoint.processor(AutoImageProcessor),
        detector.model(AutoModelForObjectDetection),
        detector.processor(AutoImageProcessor),
    )


class PoseMap(MapHandler):
    """Draws people as stick figures."""

    suffix = "poses"

    def __init__(
        self, checkpoint: Checkpoint, model: Any, processor: Any, detector: Any, detector_processor: Any
    ) -> None:
        super().__init__(checkpoint, model)
        self._processor, self._detector, self._detector_processor = processor, detector, detector_processor

    def predict(self, picture: "Image") -> list[dict[int, Point]]:
        """Returns the visible joints of each person, by OpenPose number."""
        boxes = self._detect_people(picture)
        if not boxes:
            raise InvalidRequest(
                "there are no people in the picture", remedy="send a picture that shows people", port="image"
            )
        batch = self._processor(images=picture, boxes=[boxes], return_tensors="pt")
        outputs = self.model(**move_to_device(batch, self.model))
        outputs.heatmaps = outputs.heatmaps.float().cpu()
        self.check_finite(outputs.heatmaps.numpy())
        poses = self._processor.post_process_pose_estimation(outputs, boxes=[boxes], threshold=_JOINT_THRESHOLD)[0]
        return [to_openpose(_index_joints(person)) for person in poses]

    def draw(self, prediction: list[dict[int, Point]], picture: "Image") -> "Image":
        from PIL import Image

        canvas = Image.new("RGB", picture.size)
        for person in prediction:
            _draw_person(canvas, person)
        return canvas

    def close(self) -> None:
        """Releases the detector too."""
        self._detector = None
        super().close()

    def _detect_people(self, picture: "Image") -> list[list[float]]:
        """Returns boxes as left, top, width and height, highest score first."""
        outputs = self._detector(
            **move_to_device(self._detector_processor(images=picture, return_tensors="pt"), self._detector)
        )
        outputs.logits = require_finite(outputs.logits.float(), self.model_id)
        outputs.pred_boxes = require_finite(outputs.pred_boxes.float(), self.model_id)
        sizes = [(picture.height, picture.width)]
        detections = self._detector_processor.post_process_object_detection(
            outputs, threshold=_PERSON_THRESHOLD, target_sizes=sizes
        )[0]
        names = self._detector.config.id2label
        rows = zip(
            detections["scores"].tolist(), detections["labels"].tolist(), detections["boxes"].tolist(), strict=True
        )
        people = sorted((score, box) for score, label, box in rows if names[label] == _PERSON)[::-1]
        return [[x, y, right - x, bottom - y] for _, (x, y, right, bottom) in people[:_MAX_PEOPLE]]


def _index_joints(person: Mapping[str, Any]) -> dict[int, Point]:
    """Returns COCO's joints by number."""
    rows = zip(person["labels"].tolist(), person["keypoints"].tolist(), strict=True)
    return {label: (point[0], point[1]) for label, point in rows}


def to_openpose(coco: Mapping[int, Point]) -> dict[int, Point]:
    """Converts the visible COCO joints to OpenPose's joints."""
    joints = {number: coco[at] for number, at in enumerate(_JOINTS) if at is not None and at in coco}
    shoulders = [joints[number] for number in _SHOULDERS if number in joints]
    if len(shoulders) == len(_SHOULDERS):
        (left, top), (right, bottom) = shoulders
        joints[_NECK] = ((left + right) / 2, (top + bottom) / 2)
    return joints


def _draw_person(canvas: "Image", person: Mapping[int, Point]) -> None:
    """Draws darker limbs below joints; ControlNet distinguishes left and right by their colours."""
    from PIL import ImageDraw

    pen, radius = ImageDraw.Draw(canvas), max(1.0, min(canvas.size) / 128)
    for number, (start, end) in enumerate(_LIMBS):
        if start in person and end in person:
            shade = tuple(int(value * _LIMB_SHADE) for value in pose_colour(number))
            pen.polygon(_limb_polygon(person[start], person[end], radius), fill=shade)
    for number, (x, y) in person.items():
        pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=pose_colour(number))


def _limb_polygon(start: Point, end: Point, radius: float) -> Sequence[Point]:
    """Returns an ellipse around a limb, as a polygon."""
    (x, y), (right, bottom) = start, end
    middle, half, angle_of_limb = (
        ((x + right) / 2, (y + bottom) / 2),
        math.dist(start, end) / 2,
        math.atan2(bottom - y, right - x),
    )
    along, across = (
        (math.cos(angle_of_limb), math.sin(angle_of_limb)),
        (-math.sin(angle_of_limb), math.cos(angle_of_limb)),
    )
    angles = [step * math.tau / 24 for step in range(24)]
    return [
        (
            middle[0] + half * math.cos(angle) * along[0] + radius * math.sin(angle) * across[0],
            middle[1] + half * math.cos(angle) * along[1] + radius * math.sin(angle) * across[1],
        )
        for angle in angles
    ]


def pose_colour(number: int) -> tuple[int, int, int]:
    """Returns the colour of a limb or joint, from a colour wheel of 18 steps that starts with red."""
    sixth, part = divmod(number * 6, 18)
    rising, falling = round(255 * part / 18), round(255 * (18 - part) / 18)
    wheel = (
        (255, rising, 0),
        (falling, 255, 0),
        (0, 255, rising),
        (0, falling, 255),
        (rising, 0, 255),
        (255, 0, falling),
    )
    return wheel[sixth]

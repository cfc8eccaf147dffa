"""Maps of how people stand: found by a detector, their joints by ViTPose, drawn as OpenPose draws them."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from experts.diffusion.checkpoints import at_commit
from experts.diffusion.maps.map_maker import Drawer
from experts.host.handler import Handler
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.generation import move_to_device
from experts.torch_host.non_finite import require_finite
from services.common.errors import InvalidRequest

if TYPE_CHECKING:
    from PIL.Image import Image

DETECTOR = "PekingU/rtdetr_r50vd_coco_o365"
"""Finds the people; its commit is not known here, so the one at hand is taken."""
_PERSON = "person"
_SURE_PERSON, _SURE_JOINT = 0.5, 0.3
_MOST_PEOPLE = 50

_JOINTS = (0, None, 6, 8, 10, 5, 7, 9, 12, 14, 16, 11, 13, 15, 2, 1, 4, 3)
"""OpenPose's 18 joints by COCO's numbers; the neck, which COCO lacks, is between the shoulders."""
_NECK, _SHOULDERS = 1, (2, 5)
_LIMBS = (
    (1, 2), (1, 5), (2, 3), (3, 4), (5, 6), (6, 7), (1, 8), (8, 9), (9, 10),
    (1, 11), (11, 12), (12, 13), (1, 0), (0, 14), (14, 16), (0, 15), (15, 17),
)  # fmt: skip
_LIMB_SHADE = 0.6

Point = tuple[float, float]


def openpose_control(model_id: str, device: str) -> Handler:
    """A ViTPose, beside a detector of people."""
    from transformers import AutoImageProcessor, AutoModelForObjectDetection, VitPoseForPoseEstimation

    checkpoint = Checkpoint.fetch(model_id, device)
    with at_commit(""):
        people = Checkpoint.fetch(DETECTOR, device)
    return Poses(
        checkpoint,
        checkpoint.model(VitPoseForPoseEstimation),
        checkpoint.processor(AutoImageProcessor),
        people.model(AutoModelForObjectDetection),
        people.processor(AutoImageProcessor),
    )


class Poses(Drawer):
    """People as sticks."""

    suffix = "poses"

    def __init__(self, checkpoint: Checkpoint, model: Any, processor: Any, detector: Any, reader: Any) -> None:
        super().__init__(checkpoint, model)
        self._processor, self._detector, self._reader = processor, detector, reader

    def look(self, picture: "Image") -> list[dict[int, Point]]:
        """Of each person the joints that can be seen, by OpenPose's number."""
        boxes = self._people(picture)
        if not boxes:
            raise InvalidRequest(
                "there are no people in the picture", remedy="send one that shows people", port="image"
            )
        batch = self._processor(images=picture, boxes=[boxes], return_tensors="pt")
        outputs = self.model(**move_to_device(batch, self.model))
        outputs.heatmaps = outputs.heatmaps.float().cpu()
        self.checked(outputs.heatmaps.numpy())
        found = self._processor.post_process_pose_estimation(outputs, boxes=[boxes], threshold=_SURE_JOINT)[0]
        return [joints(_by_number(person)) for person in found]

    def draw(self, found: list[dict[int, Point]], picture: "Image") -> "Image":
        from PIL import Image

        canvas = Image.new("RGB", picture.size)
        for person in found:
            _draw(canvas, person)
        return canvas

    def close(self) -> None:
        """Lets go of the detector too."""
        self._detector = None
        super().close()

    def _people(self, picture: "Image") -> list[list[float]]:
        """Boxes as left, top, width, height, the surest first."""
        outputs = self._detector(**move_to_device(self._reader(images=picture, return_tensors="pt"), self._detector))
        outputs.logits = require_finite(outputs.logits.float(), self.model_id)
        outputs.pred_boxes = require_finite(outputs.pred_boxes.float(), self.model_id)
        sizes = [(picture.height, picture.width)]
        found = self._reader.post_process_object_detection(outputs, threshold=_SURE_PERSON, target_sizes=sizes)[0]
        names = self._detector.config.id2label
        rows = zip(found["scores"].tolist(), found["labels"].tolist(), found["boxes"].tolist(), strict=True)
        people = sorted((score, box) for score, label, box in rows if names[label] == _PERSON)[::-1]
        return [[x, y, right - x, bottom - y] for _, (x, y, right, bottom) in people[:_MOST_PEOPLE]]


def _by_number(person: Mapping[str, Any]) -> dict[int, Point]:
    """COCO's joints by number."""
    rows = zip(person["labels"].tolist(), person["keypoints"].tolist(), strict=True)
    return {label: (point[0], point[1]) for label, point in rows}


def joints(coco: Mapping[int, Point]) -> dict[int, Point]:
    """OpenPose's joints, as far as COCO's are seen."""
    seen = {number: coco[at] for number, at in enumerate(_JOINTS) if at is not None and at in coco}
    shoulders = [seen[number] for number in _SHOULDERS if number in seen]
    if len(shoulders) == len(_SHOULDERS):
        (left, top), (right, bottom) = shoulders
        seen[_NECK] = ((left + right) / 2, (top + bottom) / 2)
    return seen


def _draw(canvas: "Image", person: Mapping[int, Point]) -> None:
    """Limbs, darker, below joints; each in a colour of its own by which ControlNet tells left from right."""
    from PIL import ImageDraw

    pen, radius = ImageDraw.Draw(canvas), max(1.0, min(canvas.size) / 128)
    for number, (start, end) in enumerate(_LIMBS):
        if start in person and end in person:
            shade = tuple(int(value * _LIMB_SHADE) for value in colour(number))
            pen.polygon(_thick(person[start], person[end], radius), fill=shade)
    for number, (x, y) in person.items():
        pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=colour(number))


def _thick(start: Point, end: Point, radius: float) -> Sequence[Point]:
    """An ellipse round a limb, as a polygon."""
    (x, y), (right, bottom) = start, end
    middle, half, turn = (
        ((x + right) / 2, (y + bottom) / 2),
        math.dist(start, end) / 2,
        math.atan2(bottom - y, right - x),
    )
    along, across = (math.cos(turn), math.sin(turn)), (-math.sin(turn), math.cos(turn))
    angles = [step * math.tau / 24 for step in range(24)]
    return [
        (
            middle[0] + half * math.cos(angle) * along[0] + radius * math.sin(angle) * across[0],
            middle[1] + half * math.cos(angle) * along[1] + radius * math.sin(angle) * across[1],
        )
        for angle in angles
    ]


def colour(number: int) -> tuple[int, int, int]:
    """The colours go round the wheel in 18 steps, red first."""
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

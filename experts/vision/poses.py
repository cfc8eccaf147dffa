"""Keypoint detection: detects people, then the joints of each (ViTPose)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from experts.host import load_context
from experts.host.handler import Call, Handler, Outputs
from experts.host.media import png
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.classification import DIGITS, label_names
from experts.torch_host.devices import inference_context
from experts.torch_host.generation import move_to_device
from experts.torch_host.non_finite import require_finite
from experts.vision.detection import Detector, load_detector
from experts.vision.image_batches import ImageHandler, ImageItem, InputImage
from experts.vision.overlays import draw_poses

if TYPE_CHECKING:
    import torch

PERSON_DETECTOR = "PekingU/rtdetr_r18vd_coco_o365"
"""Detector that is loaded with every pose model."""
_PERSON = "person"
_MIN_PERSON_SCORE = 0.3
"""Minimum score of a person whose pose is estimated."""
_MAX_PEOPLE = 64
"""Maximum people in one image; those with the highest scores are used."""


@dataclass(frozen=True)
class Poses:
    """Joints and their scores for each person in one image."""

    joints: list[list[tuple[float, float]]]
    scores: list[list[float]]
    image: InputImage
    threshold: float


def keypoint_detection(model_id: str, device: str) -> Handler:
    """Loads ViTPose and the detector of people."""
    from transformers import AutoImageProcessor, VitPoseForPoseEstimation

    checkpoint = Checkpoint.fetch(model_id, device)
    with load_context.use_revision(""):  # the card's revision is that of the pose model
        people = Checkpoint.fetch(PERSON_DETECTOR, device)
    model = checkpoint.model(VitPoseForPoseEstimation)
    return PoseEstimator(checkpoint, model, checkpoint.processor(AutoImageProcessor), load_detector(people))


class PoseEstimator(ImageHandler):
    def __init__(self, checkpoint: Checkpoint, model: Any, processor: Any, detector: Detector) -> None:
        super().__init__(checkpoint, model, processor)
        self._detector = detector

    def preprocess(self, image: InputImage, parameters: Any) -> ImageItem:
        """Preprocesses an image for the detector."""
        return self._detector.preprocess(image, parameters)

    def run(self, items: Sequence[ImageItem], call: Call) -> list[Poses]:
        detector_items = [replace(item, parameters={"threshold": _MIN_PERSON_SCORE}) for item in items]
        results = self._detector.run(detector_items, call)
        return [
            self._estimate(
                item, [detection.box for detection in detections if detection.label == _PERSON][:_MAX_PEOPLE]
            )
            for item, (detections, _) in zip(items, results, strict=False)
            if not call.cancelled
        ]

    def finish(self, raw: Poses) -> Outputs:
        names, edges = label_names(self.model.config), self.model.config.edges
        poses = [_describe_pose(*pose, names, raw.threshold) for pose in zip(raw.joints, raw.scores, strict=True)]
        visible_joints = [
            [joint if score >= raw.threshold else None for joint, score in zip(joints, scores, strict=True)]
            for joints, scores in zip(raw.joints, raw.scores, strict=True)
        ]
        visible = [pose for pose in poses if pose["points"]]
        return {
            "keypoints": sorted(visible, key=lambda pose: -pose["score"]),
            "image": png(draw_poses(raw.image.load(), visible_joints, edges or ()), raw.image.output_name("poses")),
            "text": f"{len(visible) or 'no'} pose{'' if len(visible) == 1 else 's'}",
        }

    def close(self) -> None:
        self._detector.close()
        super().close()

    def _estimate(self, item: ImageItem, boxes: Sequence[Sequence[float]]) -> Poses:
        threshold = item.parameters["threshold"]
        if not boxes:
            return Poses([], [], item.image, threshold)
        coco_boxes = [[[left, top, right - left, bottom - top] for left, top, right, bottom in boxes]]
        pixels = self.processor(item.image.load(), boxes=coco_boxes, return_tensors="pt")
        with inference_context(self.model_id):
            output = self.model(**move_to_device(pixels, self.model), **self._expert_input(len(boxes)))
        heatmaps = require_finite(output.heatmaps.float().cpu(), self.model_id)
        (people,) = self.processor.post_process_pose_estimation(SimpleNamespace(heatmaps=heatmaps), boxes=coco_boxes)
        joints = [[(x, y) for x, y in person["keypoints"].tolist()] for person in people]
        return Poses(joints, [person["scores"].tolist() for person in people], item.image, threshold)

    def _expert_input(self, count: int) -> "dict[str, torch.Tensor]":
        """Returns the input that selects the first expert, for people, of a mixture of experts."""
        import torch

        if getattr(self.model.config.backbone_config, "num_experts", 1) <= 1:
            return {}
        return {"dataset_index": torch.zeros(count, dtype=torch.long, device=self.model.device)}


def _describe_pose(
    joints: Sequence[tuple[float, float]], scores: Sequence[float], names: Sequence[str], threshold: float
) -> dict[str, Any]:
    points: list[dict[str, Any]] = [
        {"name": name, "x": round(x, 1), "y": round(y, 1), "score": round(score, DIGITS)}
        for name, (x, y), score in zip(names, joints, scores, strict=True)
        if score >= threshold
    ]
    mean = sum(point["score"] for point in points) / max(len(points), 1)
    return {"score": round(mean, DIGITS), "points": points}

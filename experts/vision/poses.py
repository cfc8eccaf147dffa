"""Poses: people are found first, then the joints of each (ViTPose)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from experts.host import load_context
from experts.host.handler import Call, Handler, Outputs
from experts.host.media import png
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.classification import DIGITS, label_names
from experts.torch_host.devices import inference_context
from experts.torch_host.generation import move_to_device
from experts.vision.detection import Detector, detector
from experts.vision.image_batches import Scene, Seen, Viewer
from experts.vision.overlays import skeletons

if TYPE_CHECKING:
    import torch

FINDS_PEOPLE = "PekingU/rtdetr_r18vd_coco_o365"
"""Loaded beside every model of poses."""
_PERSON = "person"
_SURE = 0.3
"""Lowest score of a person whose pose is looked at."""
_PEOPLE = 64
"""Most of them in one picture, the surest first."""


@dataclass(frozen=True)
class Poses:
    """Of one picture: for each person the joints and their scores."""

    joints: list[list[tuple[float, float]]]
    scores: list[list[float]]
    scene: Scene
    threshold: float


def keypoint_detection(model_id: str, device: str) -> Handler:
    """ViTPose, and what finds people for it."""
    from transformers import AutoImageProcessor, VitPoseForPoseEstimation

    checkpoint = Checkpoint.fetch(model_id, device)
    with load_context.use(replace(load_context.current(), revision="")):  # the card's is of the other one
        people = Checkpoint.fetch(FINDS_PEOPLE, device)
    model = checkpoint.model(VitPoseForPoseEstimation)
    return Poser(checkpoint, model, checkpoint.processor(AutoImageProcessor), detector(people))


class Poser(Viewer):
    def __init__(self, checkpoint: Checkpoint, model: Any, processor: Any, finder: Detector) -> None:
        super().__init__(checkpoint, model, processor)
        self._finder = finder

    def seen(self, scene: Scene, parameters: Any) -> Seen:
        """As the one who finds people sees it."""
        return self._finder.seen(scene, parameters)

    def run(self, items: Sequence[Seen], call: Call) -> list[Poses]:
        sought = [replace(item, parameters={"threshold": _SURE}) for item in items]
        people = self._finder.run(sought, call)
        return [
            self._posed(item, [one.box for one in found if one.label == _PERSON][:_PEOPLE])
            for item, (found, _) in zip(items, people, strict=False)
            if not call.cancelled
        ]

    def finish(self, raw: Poses) -> Outputs:
        names, edges = label_names(self.model.config), self.model.config.edges
        poses = [_described(*one, names, raw.threshold) for one in zip(raw.joints, raw.scores, strict=True)]
        shown = [
            [joint if score >= raw.threshold else None for joint, score in zip(joints, scores, strict=True)]
            for joints, scores in zip(raw.joints, raw.scores, strict=True)
        ]
        kept = [pose for pose in poses if pose["points"]]
        return {
            "keypoints": sorted(kept, key=lambda pose: -pose["score"]),
            "image": png(skeletons(raw.scene.picture(), shown, edges or ()), raw.scene.named("poses")),
            "text": f"{len(kept) or 'no'} pose{'' if len(kept) == 1 else 's'}",
        }

    def close(self) -> None:
        self._finder.close()
        super().close()

    def _posed(self, item: Seen, boxes: Sequence[Sequence[float]]) -> Poses:
        threshold = item.parameters["threshold"]
        if not boxes:
            return Poses([], [], item.scene, threshold)
        placed = [[[left, top, right - left, bottom - top] for left, top, right, bottom in boxes]]
        pixels = self.processor(item.scene.picture(), boxes=placed, return_tensors="pt")
        with inference_context(self.model_id):
            output = self.model(**move_to_device(pixels, self.model), **self._expert(len(boxes)))
        (people,) = self.processor.post_process_pose_estimation(self.plain(output, "heatmaps"), boxes=placed)
        joints = [[(x, y) for x, y in one["keypoints"].tolist()] for one in people]
        return Poses(joints, [one["scores"].tolist() for one in people], item.scene, threshold)

    def _expert(self, count: int) -> "dict[str, torch.Tensor]":
        """Of a mixture of experts the first: people."""
        import torch

        if getattr(self.model.config.backbone_config, "num_experts", 1) <= 1:
            return {}
        return {"dataset_index": torch.zeros(count, dtype=torch.long, device=self.model.device)}


def _described(
    joints: Sequence[tuple[float, float]], scores: Sequence[float], names: Sequence[str], threshold: float
) -> dict[str, Any]:
    points: list[dict[str, Any]] = [
        {"name": name, "x": round(x, 1), "y": round(y, 1), "score": round(score, DIGITS)}
        for name, (x, y), score in zip(names, joints, scores, strict=True)
        if score >= threshold
    ]
    mean = sum(point["score"] for point in points) / max(len(points), 1)
    return {"score": round(mean, DIGITS), "points": points}

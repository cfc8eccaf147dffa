"""Detection, segmentation, depth and poses over gRPC, with tiny trained models."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoImageProcessor, AutoProcessor, OwlViTForObjectDetection, VitPoseForPoseEstimation

from services.common.errors import InvalidRequest
from tests.tiny import ExpertClient, TinyModels
from tests.tiny.image_files import LARGE, LEFT, RIGHT, solid_image, square_image, to_image, to_media

pytestmark = pytest.mark.slow

SIZE = (128, 192)
PERSON_DETECTOR = "PekingU/rtdetr_r18vd_coco_o365"


@pytest.fixture
async def expert(tiny_models: TinyModels) -> AsyncIterator[ExpertClient]:
    async with tiny_models.serve("vision") as expert:
        yield expert


def corners(box: Mapping[str, float]) -> list[float]:
    return [box[side] for side in ("xmin", "ymin", "xmax", "ymax")]


def is_near(
    box: Mapping[str, float], position: tuple[int, int, int, int], size: tuple[int, int], tolerance: float
) -> bool:
    """Whether a box is at the expected position, which like the tolerance is in 64ths of the size."""
    expected = [value * scale / 64 for value, scale in zip(position, size * 2, strict=True)]
    return corners(box) == pytest.approx(expected, abs=tolerance * max(size) / 64)


async def test_detected_objects_are_counted_and_drawn(expert: ExpertClient) -> None:
    picture = square_image("red", LEFT, SIZE)
    out = await expert.call("object-detection", {"image": to_media(picture)}, "tiny/yolos")
    (found,) = out["objects"]
    assert found["label"] == "red square"
    assert found["score"] > 0.8
    assert is_near(found["box"], LEFT, SIZE, 6)
    assert out["text"] == "1 red square"
    overlay = to_image(out["image"])
    assert overlay.size == SIZE
    left, top = int(found["box"]["xmin"]), int(found["box"]["ymax"])
    assert overlay.getpixel((left, top - 20)) != picture.getpixel((left, top - 20))


async def test_threshold_above_all_scores_returns_no_objects(expert: ExpertClient) -> None:
    out = await expert.call(
        "object-detection", {"image": to_media(square_image("red", LEFT))}, "tiny/yolos", threshold=1
    )
    assert out["objects"] == []
    assert out["text"] == "nothing"


async def test_concurrent_detections_equal_sequential_ones(expert: ExpertClient) -> None:
    images = [to_media(square_image("red", LEFT, (64 + 10 * (index % 3), 64))) for index in range(9)]
    sequential = [
        await expert.call("object-detection", {"image": image}, "tiny/yolos", threshold=0.01) for image in images
    ]
    calls = [expert.call("object-detection", {"image": image}, "tiny/yolos", threshold=0.01) for image in images]
    assert await asyncio.gather(*calls) == sequential


async def test_zero_shot_detection_equals_that_of_transformers_alone(
    expert: ExpertClient, tiny_models: TinyModels
) -> None:
    labels = ["red", "blue"]
    picture = square_image("red", LEFT, (96, 96))
    out = await expert.call(
        "zero-shot-object-detection", {"image": to_media(picture)}, candidate_labels=labels, threshold=0.001
    )
    folder = tiny_models.build("vision", "tiny/owl")
    processor = AutoProcessor.from_pretrained(folder)
    inputs = processor(
        text=[[f"a photo of {label}" for label in labels]], images=picture, padding=True, return_tensors="pt"
    )
    with torch.inference_mode():
        output = OwlViTForObjectDetection.from_pretrained(folder)(**inputs)
    (result,) = processor.post_process_grounded_object_detection(
        output, threshold=0.001, target_sizes=torch.tensor([[96, 96]]), text_labels=[labels]
    )
    assert len(out["objects"]) == len(result["scores"]) > 0
    assert out["objects"][0]["score"] == pytest.approx(float(result["scores"].max()), abs=1e-4)
    assert [one["label"] for one in out["objects"]].count("red") == result["text_labels"].count("red")


async def test_zero_shot_detection_without_labels_is_rejected(expert: ExpertClient) -> None:
    error = await expert.call_error("zero-shot-object-detection", {"image": to_media(solid_image("red"))})
    assert isinstance(error, InvalidRequest)
    assert "candidate_labels" in str(error)


def _two_squares() -> Any:
    picture = square_image("red", LEFT)
    picture.paste("blue", RIGHT)
    return picture


async def test_semantic_segmentation_labels_every_pixel(expert: ExpertClient) -> None:
    picture = square_image("blue", RIGHT, SIZE)
    out = await expert.call("image-segmentation", {"image": to_media(picture)}, "tiny/segformer")
    labels = {one["label"]: one for one in out["segments"]}
    assert labels.keys() == {"paper", "blue square"}
    mask, image = to_image(out["mask"]), to_image(out["image"])
    assert mask.size == SIZE
    assert image.size == SIZE
    grey = labels["blue square"]["grey"]
    segment = np.asarray(mask) == grey
    expected = (np.asarray(picture) == (0, 0, 255)).all(-1)
    assert (segment & expected).sum() / (segment | expected).sum() > 0.8
    assert labels["blue square"]["area"] == segment.sum()
    assert out["text"].startswith("paper (")


async def test_panoptic_segmentation_separates_objects_of_one_class(expert: ExpertClient) -> None:
    out = await expert.call("image-segmentation", {"image": to_media(_two_squares())}, "tiny/eomt")
    assert sorted(one["label"] for one in out["segments"]) == ["paper", "square", "square"]
    mask = np.asarray(to_image(out["mask"]))
    greys = {mask[32, 16], mask[32, 48], mask[2, 2]}
    assert greys == {one["grey"] for one in out["segments"]}
    assert max(greys) == 255


@pytest.mark.parametrize(("model", "size"), [("tiny/sam", (64, 64)), ("tiny/sam2", (64, 64)), ("tiny/sam2", (96, 64))])
async def test_every_object_gets_one_mask(expert: ExpertClient, model: str, size: tuple[int, int]) -> None:
    out = await expert.call("mask-generation", {"image": to_media(square_image("red", LARGE, size))}, model)
    boxes = [one["box"] for one in out["masks"]]
    assert any(is_near(box, LARGE, size, 3) for box in boxes)
    assert len(boxes) <= 4
    best = next(one for one in out["masks"] if is_near(one["box"], LARGE, size, 3))
    assert best["area"] == pytest.approx(0.75 * size[0] * 0.75 * size[1], rel=0.2)
    assert out["text"] == f"{len(boxes)} mask{'' if len(boxes) == 1 else 's'}"
    assert to_image(out["image"]).size == size


async def test_near_pixels_are_bright(expert: ExpertClient) -> None:
    picture = square_image("black", LEFT, (112, 112))
    out = await expert.call("depth-estimation", {"image": to_media(picture)})
    depth, image = to_image(out["depth"]), to_image(out["image"])
    assert depth.mode == "I;16"
    assert image.mode == "RGB"
    assert depth.size == (112, 112)
    assert image.size == (112, 112)
    values = np.asarray(depth)
    assert values.min() == 0
    assert values.max() == 65535
    far, close = values[40:70, 15:40].mean(), values[40:70, 75:100].mean()
    assert far < 0.5 * close
    colours = np.asarray(image).sum(-1)
    assert colours[40:70, 15:40].mean() < colours[40:70, 75:100].mean()


async def test_poses_are_estimated_for_detected_people(expert: ExpertClient, tiny_models: TinyModels) -> None:
    tiny_models.build("vision", PERSON_DETECTOR)
    picture = square_image("red", LEFT, SIZE)
    person = (await expert.call("object-detection", {"image": to_media(picture)}, PERSON_DETECTOR, threshold=0.3))[
        "objects"
    ][0]
    out = await expert.call("keypoint-detection", {"image": to_media(picture)}, "tiny/vitpose", threshold=0)
    (pose,) = out["keypoints"]
    assert [point["name"] for point in pose["points"]] == ["nose", "neck", "hip"]
    left, top, right, bottom = corners(person["box"])
    boxes = [[[left, top, right - left, bottom - top]]]
    folder = tiny_models.build("vision", "tiny/vitpose")
    processor = AutoImageProcessor.from_pretrained(folder)
    with torch.inference_mode():
        output = VitPoseForPoseEstimation.from_pretrained(folder)(
            **processor(picture, boxes=boxes, return_tensors="pt")
        )
    ((expected,),) = processor.post_process_pose_estimation(output, boxes=boxes)
    found = [[point["x"], point["y"]] for point in pose["points"]]
    assert np.asarray(found) == pytest.approx(expected["keypoints"].numpy(), abs=1)
    assert found[0][1] < found[1][1] < found[2][1]
    assert out["text"] == "1 pose"


async def test_image_without_people_has_no_poses(expert: ExpertClient, tiny_models: TinyModels) -> None:
    tiny_models.build("vision", PERSON_DETECTOR)
    out = await expert.call("keypoint-detection", {"image": to_media(square_image("blue", RIGHT))}, "tiny/vitpose")
    assert out["keypoints"] == []
    assert out["text"] == "no poses"

"""Where in a picture things are, through gRPC, by tiny models that were taught it."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoImageProcessor, AutoProcessor, OwlViTForObjectDetection, VitPoseForPoseEstimation

from services.common.errors import InvalidRequest
from tests.tiny import Served, Tiny
from tests.tiny.pictures import LARGE, LEFT, RIGHT, plain, received, sent, square

pytestmark = pytest.mark.slow

SIZE = (128, 192)
PEOPLE = "PekingU/rtdetr_r18vd_coco_o365"


@pytest.fixture
async def expert(tiny: Tiny) -> AsyncIterator[Served]:
    async with tiny.expert("vision") as expert:
        yield expert


def corners(box: Mapping[str, float]) -> list[float]:
    return [box[side] for side in ("xmin", "ymin", "xmax", "ymax")]


def near(box: Mapping[str, float], place: tuple[int, int, int, int], size: tuple[int, int], tolerance: float) -> bool:
    """Whether a box is where a square stands, to so many 64ths."""
    right = [value * scale / 64 for value, scale in zip(place, size * 2, strict=True)]
    return corners(box) == pytest.approx(right, abs=tolerance * max(size) / 64)


async def test_things_are_found_counted_and_marked(expert: Served) -> None:
    picture = square("red", LEFT, SIZE)
    out = await expert.ask("object-detection", {"image": sent(picture)}, "tiny/yolos")
    (found,) = out["objects"]
    assert found["label"] == "red square"
    assert found["score"] > 0.8
    assert near(found["box"], LEFT, SIZE, 6)
    assert out["text"] == "1 red square"
    marked = received(out["image"])
    assert marked.size == SIZE
    left, top = int(found["box"]["xmin"]), int(found["box"]["ymax"])
    assert marked.getpixel((left, top - 20)) != picture.getpixel((left, top - 20))


async def test_a_threshold_that_nothing_reaches_leaves_nothing(expert: Served) -> None:
    out = await expert.ask("object-detection", {"image": sent(square("red", LEFT))}, "tiny/yolos", threshold=1)
    assert (out["objects"], out["text"]) == ([], "nothing")


async def test_detections_of_many_at_once_are_those_of_each_alone(expert: Served) -> None:
    pictures = [sent(square("red", LEFT, (64 + 10 * (at % 3), 64))) for at in range(9)]
    alone = [await expert.ask("object-detection", {"image": one}, "tiny/yolos", threshold=0.01) for one in pictures]
    asked = [expert.ask("object-detection", {"image": one}, "tiny/yolos", threshold=0.01) for one in pictures]
    assert await asyncio.gather(*asked) == alone


async def test_named_things_are_found_where_the_model_called_directly_finds_them(expert: Served, tiny: Tiny) -> None:
    labels = ["red", "blue"]
    picture = square("red", LEFT, (96, 96))
    out = await expert.ask(
        "zero-shot-object-detection", {"image": sent(picture)}, candidate_labels=labels, threshold=0.001
    )
    folder = tiny.built("vision", "tiny/owl")
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


async def test_named_things_need_names(expert: Served) -> None:
    error = await expert.refusal("zero-shot-object-detection", {"image": sent(plain("red"))})
    assert isinstance(error, InvalidRequest)
    assert "candidate_labels" in str(error)


def _both() -> Any:
    picture = square("red", LEFT)
    picture.paste("blue", RIGHT)
    return picture


async def test_each_class_is_parted_to_the_pixel(expert: Served) -> None:
    picture = square("blue", RIGHT, SIZE)
    out = await expert.ask("image-segmentation", {"image": sent(picture)}, "tiny/segformer")
    labels = {one["label"]: one for one in out["segments"]}
    assert labels.keys() == {"paper", "blue square"}
    mask, image = received(out["mask"]), received(out["image"])
    assert mask.size == image.size == SIZE
    grey = labels["blue square"]["grey"]
    drawn = np.asarray(mask) == grey
    right = (np.asarray(picture) == (0, 0, 255)).all(-1)
    assert (drawn & right).sum() / (drawn | right).sum() > 0.8
    assert labels["blue square"]["area"] == drawn.sum()
    assert out["text"].startswith("paper (")


async def test_things_of_one_class_are_parted_from_one_another(expert: Served) -> None:
    out = await expert.ask("image-segmentation", {"image": sent(_both())}, "tiny/eomt")
    assert sorted(one["label"] for one in out["segments"]) == ["paper", "square", "square"]
    mask = np.asarray(received(out["mask"]))
    greys = {mask[32, 16], mask[32, 48], mask[2, 2]}
    assert greys == {one["grey"] for one in out["segments"]}
    assert max(greys) == 255


async def test_everything_gets_a_mask_once(expert: Served) -> None:
    out = await expert.ask("mask-generation", {"image": sent(square("red", LARGE))}, "tiny/sam")
    boxes = [one["box"] for one in out["masks"]]
    assert any(near(box, LARGE, (64, 64), 3) for box in boxes)
    assert len(boxes) <= 4
    best = next(one for one in out["masks"] if near(one["box"], LARGE, (64, 64), 3))
    assert best["area"] == pytest.approx(48 * 48, rel=0.2)
    assert out["text"] == f"{len(boxes)} mask{'' if len(boxes) == 1 else 's'}"
    assert received(out["image"]).size == (64, 64)


async def test_what_is_near_is_bright(expert: Served) -> None:
    picture = square("black", LEFT, (112, 112))
    out = await expert.ask("depth-estimation", {"image": sent(picture)})
    depth, image = received(out["depth"]), received(out["image"])
    assert (depth.mode, image.mode) == ("I;16", "RGB")
    assert depth.size == image.size == (112, 112)
    values = np.asarray(depth)
    assert (values.min(), values.max()) == (0, 65535)
    far, close = values[40:70, 15:40].mean(), values[40:70, 75:100].mean()
    assert far < 0.5 * close
    colours = np.asarray(image).sum(-1)
    assert colours[40:70, 15:40].mean() < colours[40:70, 75:100].mean()


async def test_poses_are_those_of_the_people_found(expert: Served, tiny: Tiny) -> None:
    tiny.built("vision", PEOPLE)
    picture = square("red", LEFT, SIZE)
    person = (await expert.ask("object-detection", {"image": sent(picture)}, PEOPLE, threshold=0.3))["objects"][0]
    out = await expert.ask("keypoint-detection", {"image": sent(picture)}, "tiny/vitpose", threshold=0)
    (pose,) = out["keypoints"]
    assert [point["name"] for point in pose["points"]] == ["nose", "neck", "hip"]
    left, top, right, bottom = corners(person["box"])
    placed = [[[left, top, right - left, bottom - top]]]
    folder = tiny.built("vision", "tiny/vitpose")
    processor = AutoImageProcessor.from_pretrained(folder)
    with torch.inference_mode():
        output = VitPoseForPoseEstimation.from_pretrained(folder)(
            **processor(picture, boxes=placed, return_tensors="pt")
        )
    ((expected,),) = processor.post_process_pose_estimation(output, boxes=placed)
    found = [[point["x"], point["y"]] for point in pose["points"]]
    assert np.asarray(found) == pytest.approx(expected["keypoints"].numpy(), abs=1)
    assert found[0][1] < found[1][1] < found[2][1]
    assert out["text"] == "1 pose"


async def test_a_picture_without_people_has_no_poses(expert: Served, tiny: Tiny) -> None:
    tiny.built("vision", PEOPLE)
    out = await expert.ask("keypoint-detection", {"image": sent(square("blue", RIGHT))}, "tiny/vitpose")
    assert (out["keypoints"], out["text"]) == ([], "no poses")

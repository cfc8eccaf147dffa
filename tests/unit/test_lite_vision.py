"""Object detection and segmentation of the lite expert, on the real detectors."""

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from experts.host.handler import Media
from experts.host.media import open_image, png
from experts.lite.detection import DetectedObject, merge_faces_into_bodies
from services.common.errors import InvalidRequest
from tests.support.samples import infer, load_lite_model, run_lite_task, sample

FACE = "opencv/haar-frontalface"
PEOPLE = "opencv/people"
NOSE = (224, 118)
"""Pixel position of the nose of the astronaut in face.jpg."""


def detect(model: str, image: Media, parameters_json: str = "") -> tuple[list[dict[str, Any]], Image.Image, str]:
    outputs = run_lite_task("object-detection", model, {"image": image}, parameters_json)
    return outputs["objects"], Image.open(io.BytesIO(outputs["image"].content)), outputs["text"]


def contains_point(box: dict[str, float], x: float, y: float) -> bool:
    return box["xmin"] < x < box["xmax"] and box["ymin"] < y < box["ymax"]


def to_media(image: Image.Image) -> Media:
    return png(image, "x.png")


def test_face_in_a_photograph_is_located() -> None:
    objects, marked, text = detect(FACE, sample("face.jpg"))
    assert text == "1 face"
    (face,) = objects
    assert face["label"] == "face"
    assert 0.7 < face["score"] <= 1
    box = face["box"]
    assert contains_point(box, *NOSE)
    assert 70 < box["xmax"] - box["xmin"] < 130
    assert marked.size == (512, 512)


def test_only_the_box_around_the_face_is_drawn() -> None:
    objects, marked, _ = detect(FACE, sample("face.jpg"))
    box = objects[0]["box"]
    before, after = np.asarray(open_image(sample("face.jpg"))), np.asarray(marked)
    changed = (before != after).any(axis=2)
    assert changed[round(box["ymax"]), round(box["xmin"]) + 30]
    assert not changed[:50].any()
    assert not changed[200:].any()


def test_boxes_are_in_pixels_of_the_original_image() -> None:
    large = open_image(sample("face.jpg")).resize((2048, 2048))
    (face,), _, _ = detect(FACE, to_media(large))
    assert contains_point(face["box"], 4 * NOSE[0], 4 * NOSE[1])


def test_two_adjacent_faces_are_detected() -> None:
    one = open_image(sample("face.jpg"))
    pair = Image.new("RGB", (1024, 512))
    pair.paste(one, (0, 0))
    pair.paste(one.transpose(Image.Transpose.FLIP_LEFT_RIGHT), (512, 0))
    assert detect(FACE, to_media(pair))[2] == "2 faces"
    assert detect(PEOPLE, to_media(pair))[2] == "2 people"


@pytest.mark.parametrize(
    ("model", "image"),
    [
        (FACE, sample("sign.png")),
        (FACE, sample("apple.png")),
        (FACE, to_media(Image.new("RGB", (3, 3), "white"))),
        (PEOPLE, sample("apple.png")),
        (PEOPLE, to_media(Image.new("RGB", (3, 3), "white"))),
    ],
)
def test_image_without_people_has_no_detections(model: str, image: Media) -> None:
    objects, _, text = detect(model, image)
    assert objects == []
    assert text == {FACE: "no faces", PEOPLE: "no people"}[model]


def test_person_is_detected_by_a_face() -> None:
    (person,), _, text = detect(PEOPLE, sample("face.jpg"))
    assert person["label"] == "person"
    assert text == "1 person"
    assert contains_point(person["box"], *NOSE)


def test_higher_threshold_reports_fewer_objects() -> None:
    assert detect(FACE, sample("face.jpg"), '{"threshold":0.99}')[2] == "no faces"


def test_scores_and_boxes_are_rounded() -> None:
    (face,), _, _ = detect(FACE, sample("face.jpg"))
    assert face["score"] == round(face["score"], 4)
    assert all(side == round(side, 1) for side in face["box"].values())


FACES = [DetectedObject("person", 0.9, (100, 40, 140, 80))]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ((60, 20, 180, 300), [(60, 20, 180, 300)]),  # its own face: one person, with the body's box
        ((300, 20, 400, 300), [(100, 40, 140, 80), (300, 20, 400, 300)]),  # another person
        ((300, 200, 340, 290), [(100, 40, 140, 80)]),  # no taller than two heads of this size
    ],
)
def test_body_and_its_face_are_counted_once(body: tuple[float, ...], expected: list[tuple[float, ...]]) -> None:
    found = merge_faces_into_bodies(FACES, [DetectedObject("person", 0.6, body)])  # type: ignore[arg-type]
    assert [person.box for person in found] == expected


# ---------------------------------------------------------------- segmentation


def segment_image(image: Media, parameters_json: str = "") -> tuple[list[dict[str, Any]], Image.Image, Any, str]:
    outputs = run_lite_task("image-segmentation", "opencv/grabcut", {"image": image}, parameters_json)
    overlay, mask = (Image.open(io.BytesIO(outputs[port].content)) for port in ("image", "mask"))
    return outputs["segments"], overlay, np.asarray(mask), outputs["text"]


def apple_mask() -> Any:
    """Returns a mask of the ellipse that the sample shows."""
    y, x = np.mgrid[:320, :400]
    return ((x - 200) / 90) ** 2 + ((y - 175) / 85) ** 2 <= 1


def test_mask_covers_the_subject() -> None:
    (segment,), overlay, mask, text = segment_image(sample("apple.png"))
    truth = apple_mask()
    assert set(np.unique(mask)) == {0, 255}
    assert ((mask > 0) & truth).sum() / ((mask > 0) | truth).sum() > 0.95
    assert segment["label"] == "foreground"
    assert segment["area"] == (mask > 0).sum()
    assert 0.8 < segment["score"] <= 1
    assert text == "One subject, 19% of the picture."
    assert overlay.getpixel((200, 200)) == (198, 40, 40)
    assert overlay.getpixel((20, 20)) != (143, 184, 222)


def test_portrait_is_segmented_with_its_head() -> None:
    (segment,), _, mask, _ = segment_image(sample("face.jpg"))
    assert mask[NOSE[1], NOSE[0]] == 255
    assert mask[20, 480] == 0
    assert segment["score"] > 0.5


def test_segmentation_is_deterministic() -> None:
    assert (segment_image(sample("face.jpg"))[2] == segment_image(sample("face.jpg"))[2]).all()


@pytest.mark.parametrize("size", [(200, 150), (1, 1), (7, 300)])
def test_uniform_image_has_no_subject(size: tuple[int, int]) -> None:
    segments, overlay, mask, text = segment_image(to_media(Image.new("RGB", size, "#777777")))
    assert segments == []
    assert text == "No subject stands out from the background."
    assert overlay.size == size
    assert mask.shape == (size[1], size[0])
    assert not mask.any()


def test_subject_below_the_threshold_leaves_the_mask_black() -> None:
    segments, _, mask, _ = segment_image(sample("face.jpg"), '{"threshold":0.99}')
    assert segments == []
    assert not mask.any()


@pytest.mark.parametrize(("task", "model"), [("object-detection", FACE), ("image-segmentation", "opencv/grabcut")])
def test_file_that_is_not_an_image_is_rejected(task: str, model: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        infer(load_lite_model(task, model), {"image": Media(b"words", "text/plain", "notes.png")})
    assert caught.value.port == "image"

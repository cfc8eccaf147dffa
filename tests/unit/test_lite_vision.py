"""Faces, people and subjects, on real detectors."""

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from experts.host.handler import Media
from experts.host.media import open_image, png
from experts.lite.detection import Found, merged
from services.common.errors import InvalidRequest
from tests.support.samples import ask_lite, infer, lite, sample

FACE = "opencv/haar-frontalface"
PEOPLE = "opencv/people"
NOSE = (224, 118)
"""Of the astronaut in face.jpg."""


def detected(model: str, image: Media, parameters_json: str = "") -> tuple[list[dict[str, Any]], Image.Image, str]:
    outputs = ask_lite("object-detection", model, {"image": image}, parameters_json)
    return outputs["objects"], Image.open(io.BytesIO(outputs["image"].content)), outputs["text"]


def holds(box: dict[str, float], x: float, y: float) -> bool:
    return box["xmin"] < x < box["xmax"] and box["ymin"] < y < box["ymax"]


def media(image: Image.Image) -> Media:
    return png(image, "x.png")


def test_the_face_in_a_photograph_is_found_where_it_is() -> None:
    objects, marked, text = detected(FACE, sample("face.jpg"))
    assert text == "1 face"
    (face,) = objects
    assert face["label"] == "face"
    assert 0.7 < face["score"] <= 1
    box = face["box"]
    assert holds(box, *NOSE)
    assert 70 < box["xmax"] - box["xmin"] < 130
    assert marked.size == (512, 512)


def test_the_box_is_drawn_around_the_face_and_nothing_else_is_changed() -> None:
    objects, marked, _ = detected(FACE, sample("face.jpg"))
    box = objects[0]["box"]
    before, after = np.asarray(open_image(sample("face.jpg"))), np.asarray(marked)
    changed = (before != after).any(axis=2)
    assert changed[round(box["ymax"]), round(box["xmin"]) + 30]
    assert not changed[:50].any()
    assert not changed[200:].any()


def test_boxes_are_in_the_pixels_of_the_picture_however_large_it_is() -> None:
    large = open_image(sample("face.jpg")).resize((2048, 2048))
    (face,), _, _ = detected(FACE, media(large))
    assert holds(face["box"], 4 * NOSE[0], 4 * NOSE[1])


def test_two_faces_side_by_side_are_two() -> None:
    one = open_image(sample("face.jpg"))
    pair = Image.new("RGB", (1024, 512))
    pair.paste(one, (0, 0))
    pair.paste(one.transpose(Image.Transpose.FLIP_LEFT_RIGHT), (512, 0))
    assert detected(FACE, media(pair))[2] == "2 faces"
    assert detected(PEOPLE, media(pair))[2] == "2 people"


@pytest.mark.parametrize(
    ("model", "image"),
    [
        (FACE, sample("sign.png")),
        (FACE, sample("apple.png")),
        (FACE, media(Image.new("RGB", (3, 3), "white"))),
        (PEOPLE, sample("apple.png")),
        (PEOPLE, media(Image.new("RGB", (3, 3), "white"))),
    ],
)
def test_where_there_is_nobody_nobody_is_found(model: str, image: Media) -> None:
    objects, _, text = detected(model, image)
    assert objects == []
    assert text == {FACE: "no faces", PEOPLE: "no people"}[model]


def test_someone_who_shows_a_face_is_a_person() -> None:
    (person,), _, text = detected(PEOPLE, sample("face.jpg"))
    assert (person["label"], text) == ("person", "1 person")
    assert holds(person["box"], *NOSE)


def test_a_higher_threshold_reports_less() -> None:
    assert detected(FACE, sample("face.jpg"), '{"threshold":0.99}')[2] == "no faces"


def test_scores_and_boxes_are_rounded() -> None:
    (face,), _, _ = detected(FACE, sample("face.jpg"))
    assert face["score"] == round(face["score"], 4)
    assert all(side == round(side, 1) for side in face["box"].values())


FACES = [Found("person", 0.9, (100, 40, 140, 80))]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ((60, 20, 180, 300), [(60, 20, 180, 300)]),  # its own face: one person, with the body's box
        ((300, 20, 400, 300), [(100, 40, 140, 80), (300, 20, 400, 300)]),  # another person
        ((300, 200, 340, 290), [(100, 40, 140, 80)]),  # no taller than two heads beside this face
    ],
)
def test_a_body_and_a_face_are_counted_once_if_they_belong_together(
    body: tuple[float, ...], expected: list[tuple[float, ...]]
) -> None:
    found = merged(FACES, [Found("person", 0.6, body)])  # type: ignore[arg-type]
    assert [one.box for one in found] == expected


# ---------------------------------------------------------------- segmentation


def segmented(image: Media, parameters_json: str = "") -> tuple[list[dict[str, Any]], Image.Image, Any, str]:
    outputs = ask_lite("image-segmentation", "opencv/grabcut", {"image": image}, parameters_json)
    overlay, mask = (Image.open(io.BytesIO(outputs[port].content)) for port in ("image", "mask"))
    return outputs["segments"], overlay, np.asarray(mask), outputs["text"]


def apple_mask() -> Any:
    """The pixels of the ellipse that the sample shows."""
    y, x = np.mgrid[:320, :400]
    return ((x - 200) / 90) ** 2 + ((y - 175) / 85) ** 2 <= 1


def test_the_mask_lies_on_the_subject_to_the_pixel() -> None:
    (segment,), overlay, mask, text = segmented(sample("apple.png"))
    truth = apple_mask()
    assert set(np.unique(mask)) == {0, 255}
    assert ((mask > 0) & truth).sum() / ((mask > 0) | truth).sum() > 0.95
    assert segment["label"] == "foreground"
    assert segment["area"] == (mask > 0).sum()
    assert 0.8 < segment["score"] <= 1
    assert text == "One subject, 19% of the picture."
    assert overlay.getpixel((200, 200)) == (198, 40, 40)
    assert overlay.getpixel((20, 20)) != (143, 184, 222)


def test_a_portrait_is_cut_out_with_its_head() -> None:
    (segment,), _, mask, _ = segmented(sample("face.jpg"))
    assert mask[NOSE[1], NOSE[0]] == 255
    assert mask[20, 480] == 0
    assert segment["score"] > 0.5


def test_the_same_picture_is_cut_the_same_way() -> None:
    assert (segmented(sample("face.jpg"))[2] == segmented(sample("face.jpg"))[2]).all()


@pytest.mark.parametrize("size", [(200, 150), (1, 1), (7, 300)])
def test_where_nothing_stands_out_the_answer_says_so(size: tuple[int, int]) -> None:
    segments, overlay, mask, text = segmented(media(Image.new("RGB", size, "#777777")))
    assert (segments, text) == ([], "No subject stands out from the background.")
    assert overlay.size == size
    assert mask.shape == (size[1], size[0])
    assert not mask.any()


def test_a_threshold_no_subject_reaches_leaves_the_mask_black() -> None:
    segments, _, mask, _ = segmented(sample("face.jpg"), '{"threshold":0.99}')
    assert segments == []
    assert not mask.any()


@pytest.mark.parametrize(("task", "model"), [("object-detection", FACE), ("image-segmentation", "opencv/grabcut")])
def test_what_is_no_picture_is_refused(task: str, model: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        infer(lite(task, model), {"image": Media(b"words", "text/plain", "notes.png")})
    assert caught.value.port == "image"

"""Edits of pictures: what a sentence is taken to mean, and what becomes of the pixels."""

import io

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from experts.host.handler import Media
from experts.host.media import png
from experts.lite.edit_instructions import steps
from services.common.errors import InvalidRequest
from tests.support.samples import ask_lite, infer, lite, sample

MODEL = "lite/image-edits"


@pytest.mark.parametrize(
    ("instruction", "expected"),
    [
        ("Turn this photo into a pencil sketch", [("sketch", {})]),
        ("Make the picture black and white", [("grey", {})]),
        ("b/w please", [("grey", {})]),
        ("Rotate it by 90 degrees", [("rotate", {"degrees": -90})]),
        ("rotate left", [("rotate", {"degrees": 90})]),
        ("Turn it to the right", [("rotate", {"degrees": -90})]),
        ("turn it upside down", [("rotate", {"degrees": -180})]),
        (
            "Rotate the photo 45° counter-clockwise and flip it horizontally",
            [("rotate", {"degrees": 45}), ("mirror", {})],
        ),
        ("flip upside down", [("flip", {})]),
        ("Blur this image", [("blur", {"radius": 6})]),
        ("blur it slightly", [("blur", {"radius": 3})]),
        ("blur with radius 12", [("blur", {"radius": 12})]),
        ("Blur the photo of the red car and sharpen it", [("blur", {"radius": 6}), ("sharpen", {"amount": 1.5})]),
        ("Show me the edges in this picture", [("edges", {})]),
        ("invert the colours", [("invert", {})]),
        ("Make it sepia", [("sepia", {})]),
        ("blur both pictures", [("blur", {"radius": 6})]),
        ("Sharpen each of these images", [("sharpen", {"amount": 1.5})]),
        ("make it 25% brighter", [("brightness", {"factor": 1.25})]),
        ("darker", [("brightness", {"factor": 0.7})]),
        ("reduce the contrast by 50%", [("contrast", {"factor": 0.5})]),
        ("resize to 800x600", [("resize", {"width": 800, "height": 600})]),
        ("resize to 640 by 480 pixels", [("resize", {"width": 640, "height": 480})]),
        ("Resize the image to 50%", [("scale", {"factor": 0.5})]),
        ("reduce the size by 25%", [("scale", {"factor": 0.75})]),
        ("make it half the size", [("scale", {"factor": 0.5})]),
        ("Make it twice as large.", [("scale", {"factor": 2})]),
        ("scale by 1.5", [("scale", {"factor": 1.5})]),
        ("resize to a width of 1,200 pixels", [("side", {"wide": 1200})]),
        ("thumbnail", [("side", {"longest": 256})]),
        ("crop to a square", [("square", {})]),
        ("crop it to 400 x 300", [("crop", {"width": 400, "height": 300})]),
        (
            "convert photo.jpg to greyscale, then blur it and rotate it by 180 degrees",
            [("grey", {}), ("blur", {"radius": 6}), ("rotate", {"degrees": -180})],
        ),
    ],
)
def test_an_instruction_is_understood_in_its_order(
    instruction: str, expected: list[tuple[str, dict[str, float]]]
) -> None:
    assert [(step.name, step.numbers) for step in steps(instruction)] == expected


@pytest.mark.parametrize(
    "instruction",
    [
        "make it look like Van Gogh",
        "remove the car",
        "blur the faces",
        "turn the cat into a dog and blur",
        "resize it",
        "crop it",
        "please",
        "20%",
        "؟؟؟",
    ],
)
def test_what_it_cannot_do_is_refused_with_what_it_can(instruction: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        steps(instruction)
    assert caught.value.port == "instruction"
    assert "pencil sketch" in caught.value.remedy


# ---------------------------------------------------------------- pixels


def corners() -> Image.Image:
    """60 x 40, every corner in a colour of its own."""
    image = Image.new("RGB", (60, 40), "white")
    draw = ImageDraw.Draw(image)
    for box, colour in (((0, 0), "red"), ((50, 0), "lime"), ((0, 30), "blue"), ((50, 30), "black")):
        draw.rectangle((*box, box[0] + 9, box[1] + 9), fill=colour)
    return image


def edited(image: Image.Image, instruction: str) -> Image.Image:
    outputs = ask_lite("image-to-image", MODEL, {"image": png(image, "photo.png"), "instruction": instruction})
    return Image.open(io.BytesIO(outputs["image"].content))


def pixels(image: Image.Image) -> NDArray[np.float64]:
    return np.asarray(image.convert("RGB"), dtype=np.float64)


RED, LIME, BLUE, BLACK = (255, 0, 0), (0, 255, 0), (0, 0, 255), (0, 0, 0)


@pytest.mark.parametrize(
    ("instruction", "size", "around"),
    [
        ("rotate by 90 degrees", (40, 60), (BLUE, RED, BLACK, LIME)),
        ("rotate left", (40, 60), (LIME, BLACK, RED, BLUE)),
        ("rotate by 180 degrees", (60, 40), (BLACK, BLUE, LIME, RED)),
        ("mirror it", (60, 40), (LIME, RED, BLACK, BLUE)),
        ("flip it vertically", (60, 40), (BLUE, BLACK, RED, LIME)),
        ("mirror it and flip it vertically", (60, 40), (BLACK, BLUE, LIME, RED)),
    ],
)
def test_turning_moves_the_corners(
    instruction: str, size: tuple[int, int], around: tuple[tuple[int, ...], ...]
) -> None:
    image = edited(corners(), instruction)
    assert image.size == size
    right, bottom = size[0] - 3, size[1] - 3
    assert tuple(image.getpixel(place) for place in ((2, 2), (right, 2), (2, bottom), (right, bottom))) == around


@pytest.mark.parametrize(
    ("instruction", "size"),
    [
        ("resize to 30x10", (30, 10)),
        ("resize to 50%", (30, 20)),
        ("twice as large", (120, 80)),
        ("make it 30 pixels wide", (30, 20)),
        ("make it 80 pixels high", (120, 80)),
        ("crop to 20x10", (20, 10)),
        ("crop to a square", (40, 40)),
        ("rotate by 45 degrees", (72, 72)),
    ],
)
def test_sizes_are_what_was_asked_for(instruction: str, size: tuple[int, int]) -> None:
    assert edited(corners(), instruction).size == size


def test_grey_has_no_colours_left() -> None:
    grey = pixels(edited(corners(), "make it black and white"))
    assert (grey[..., 0] == grey[..., 1]).all()
    assert (grey[..., 1] == grey[..., 2]).all()
    assert len(np.unique(grey)) > 2


def test_inverting_turns_every_value_around() -> None:
    assert (pixels(edited(corners(), "invert the colours")) == 255 - pixels(corners())).all()


def test_brighter_is_brighter_and_darker_is_darker() -> None:
    photo = Image.open(io.BytesIO(sample("face.jpg").content))
    before = pixels(photo).mean()
    assert pixels(edited(photo, "brighter")).mean() > 1.1 * before
    assert pixels(edited(photo, "darker by 50%")).mean() == pytest.approx(before / 2, rel=0.02)


def test_contrast_spreads_the_values() -> None:
    photo = Image.open(io.BytesIO(sample("face.jpg").content))
    assert (
        pixels(edited(photo, "more contrast")).std()
        > pixels(photo).std()
        > pixels(edited(photo, "less contrast")).std()
    )


def test_blurring_smooths_and_sharpening_roughens() -> None:
    photo = Image.open(io.BytesIO(sample("face.jpg").content))

    def roughness(image: Image.Image) -> float:
        return float(abs(np.diff(pixels(image), axis=0)).mean())

    assert roughness(edited(photo, "blur it")) < 0.5 * roughness(photo)
    assert roughness(edited(photo, "sharpen it")) > 1.2 * roughness(photo)


def test_edges_lie_where_the_subject_ends() -> None:
    edges = pixels(edited(Image.open(io.BytesIO(sample("apple.png").content)), "edges"))[..., 0]
    assert set(np.unique(edges)) == {0, 255}
    assert edges[170, 105:116].any()  # the left side of the ellipse
    assert not edges[180:240, 150:250].any()  # within it


def test_a_sketch_is_dark_lines_on_light_paper() -> None:
    sketch = pixels(edited(Image.open(io.BytesIO(sample("face.jpg").content)), "pencil sketch"))
    assert np.median(sketch) > 220
    assert 0.02 < (sketch < 160).mean() < 0.3


def test_sepia_is_brownish() -> None:
    red, green, blue = pixels(edited(corners(), "sepia"))[20, 30]
    assert red >= green > blue


def test_transparency_survives_an_edit() -> None:
    clear = corners().convert("RGBA")
    clear.putpixel((30, 20), (9, 9, 9, 0))
    image = edited(clear, "grey and mirror")
    assert image.mode == "RGBA"
    assert image.getpixel((29, 20))[3] == 0  # type: ignore[index]
    assert image.getpixel((0, 0))[3] == 255  # type: ignore[index]


def test_the_result_is_named_after_the_picture_and_what_was_done() -> None:
    outputs = infer(
        lite("image-to-image", MODEL), {"image": png(corners(), "photo.png"), "instruction": "grey and mirror"}
    )
    assert outputs["image"].name == "photo-grey-mirror.png"


@pytest.mark.parametrize(
    ("inputs", "message", "port"),
    [
        ({"image": sample("apple.png")}, "no instruction", "instruction"),
        ({"image": sample("apple.png"), "instruction": " "}, "no instruction", "instruction"),
        ({"image": sample("apple.png"), "instruction": "resize to 50000x50000"}, "at most 40 million", "instruction"),
        ({"image": Media(b"words", "text/plain", "x.png"), "instruction": "blur"}, "not a supported image", "image"),
    ],
)
def test_an_edit_that_cannot_be_made_is_refused(inputs: dict[str, object], message: str, port: str) -> None:
    with pytest.raises(InvalidRequest, match=message) as caught:
        infer(lite("image-to-image", MODEL), inputs)
    assert caught.value.port == port
    assert caught.value.remedy

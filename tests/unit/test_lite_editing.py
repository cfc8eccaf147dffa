"""Image editing of the lite expert: parsed instructions, and the pixels of the results."""

import io

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from experts.host.handler import Media
from experts.host.media import png
from experts.lite.edit_instructions import parse_steps
from services.common.errors import InvalidRequest
from tests.support.samples import infer, load_lite_model, run_lite_task, sample

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
        ("make these two black and white", [("grey", {})]),
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
        ("Crop it so that just the upper half remains", [("trim-share", {"bottom": 0.5})]),
        ("keep only the right half and throw the rest away", [("trim-share", {"left": 0.5})]),
        ("crop to the bottom left quarter", [("trim-share", {"top": 0.5, "right": 0.5})]),
        ("chop off the bottom quarter", [("trim-share", {"bottom": 0.25})]),
        ("trim 20 px off the left", [("trim-px", {"left": 20})]),
        ("crop to the middle half", [("trim-share", dict.fromkeys(("left", "right", "top", "bottom"), 0.25))]),
        ("crop this banner to 16:9", [("ratio", {"width": 16, "height": 9})]),
        ("turn the poster a quarter to the right", [("rotate", {"degrees": -90})]),
        ("give it half a turn", [("rotate", {"degrees": -180})]),
        ("rotate this nameplate 90 degrees anticlockwise", [("rotate", {"degrees": 90})]),
        ("flip it around the vertical axis", [("mirror", {})]),
        (
            "For the library card: make our headshot black and white and 300 by 400 px",
            [("grey", {}), ("resize", {"width": 300, "height": 400})],
        ),
        ("resize it to precisely 64x64", [("resize", {"width": 64, "height": 64})]),
        ("resize to 400x400 but keep the aspect ratio", [("fit", {"width": 400, "height": 400})]),
        ("make it smaller, at most 300 px wide", [("side", {"wide": 300})]),
        ("shrink it to a quarter of its size", [("scale", {"factor": 0.25})]),
        ("blur it without cropping", [("blur", {"radius": 6})]),
        ("don't rotate it, just flip it horizontally", [("mirror", {})]),
        ("it's too dark, brighten it", [("brightness", {"factor": 1.3})]),
        ("make it less bright, but not too much", [("brightness", {"factor": 0.85})]),
        (
            "convert photo.jpg to greyscale, then blur it and rotate it by 180 degrees",
            [("grey", {}), ("blur", {"radius": 6}), ("rotate", {"degrees": -180})],
        ),
    ],
)
def test_instruction_is_parsed_into_steps_in_order(
    instruction: str, expected: list[tuple[str, dict[str, float]]]
) -> None:
    assert [(step.name, step.numbers) for step in parse_steps(instruction)] == expected


@pytest.mark.parametrize(
    "instruction",
    [
        "make it look like Van Gogh",
        "remove the car",
        "blur the faces",
        "make the left half grey",
        "only blur the top part",
        "make my jacket darker",
        "make the sky brighter",
        "make it grey except the ball",
        "resize the dog to 100x100",
        "crop the left half",
        "crop the left corner",
        "cut it in half",
        "turn the cat into a dog and blur",
        "resize it",
        "crop it",
        "please",
        "20%",
        "؟؟؟",
    ],
)
def test_unsupported_instruction_is_rejected_with_supported_edits(instruction: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_steps(instruction)
    assert caught.value.port == "instruction"
    assert "pencil sketch" in caught.value.remedy


# ---------------------------------------------------------------- pixels


def image_with_corners() -> Image.Image:
    """Returns an image of 60 x 40 pixels whose corners have different colours."""
    image = Image.new("RGB", (60, 40), "white")
    draw = ImageDraw.Draw(image)
    for box, colour in (((0, 0), "red"), ((50, 0), "lime"), ((0, 30), "blue"), ((50, 30), "black")):
        draw.rectangle((*box, box[0] + 9, box[1] + 9), fill=colour)
    return image


def edit_image(image: Image.Image, instruction: str) -> Image.Image:
    outputs = run_lite_task("image-to-image", MODEL, {"image": png(image, "photo.png"), "instruction": instruction})
    return Image.open(io.BytesIO(outputs["image"].content))


def pixels(image: Image.Image) -> NDArray[np.float64]:
    return np.asarray(image.convert("RGB"), dtype=np.float64)


RED, LIME, BLUE, BLACK = (255, 0, 0), (0, 255, 0), (0, 0, 255), (0, 0, 0)


@pytest.mark.parametrize(
    ("instruction", "size", "colour"),
    [
        ("keep only the top left corner", (30, 20), RED),
        ("cut off the right half", (30, 40), RED),
        ("keep the bottom half", (60, 20), (255, 255, 255)),
        ("trim 10 pixels off all sides", (40, 20), (255, 255, 255)),
        ("resize to 30x30 and keep the proportions", (30, 20), RED),
        ("crop to 1:1", (40, 40), (255, 255, 255)),
    ],
)
def test_cut_picture_has_the_size_and_the_corner(
    instruction: str, size: tuple[int, int], colour: tuple[int, int, int]
) -> None:
    image = edit_image(image_with_corners(), instruction)
    assert image.size == size
    assert image.getpixel((0, 0)) == colour


def test_cutting_off_everything_is_rejected() -> None:
    with pytest.raises(InvalidRequest, match="nothing of the 60 x 40 pixels"):
        edit_image(image_with_corners(), "trim 30 pixels off all sides")


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "part", ["for the a ", "top left ", "this ", "9 % ", "don't ", "keep the same ", "a quarter ", "turn ", " ", "1:"]
)
def test_hostile_instruction_is_parsed_in_time(part: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_steps(part * (20_000 // len(part)) + "!")


@pytest.mark.parametrize(
    ("instruction", "size", "expected_corners"),
    [
        ("rotate by 90 degrees", (40, 60), (BLUE, RED, BLACK, LIME)),
        ("rotate left", (40, 60), (LIME, BLACK, RED, BLUE)),
        ("rotate by 180 degrees", (60, 40), (BLACK, BLUE, LIME, RED)),
        ("mirror it", (60, 40), (LIME, RED, BLACK, BLUE)),
        ("flip it vertically", (60, 40), (BLUE, BLACK, RED, LIME)),
        ("mirror it and flip it vertically", (60, 40), (BLACK, BLUE, LIME, RED)),
    ],
)
def test_rotation_and_flips_move_the_corners(
    instruction: str, size: tuple[int, int], expected_corners: tuple[tuple[int, ...], ...]
) -> None:
    image = edit_image(image_with_corners(), instruction)
    assert image.size == size
    right, bottom = size[0] - 3, size[1] - 3
    assert (
        tuple(image.getpixel(position) for position in ((2, 2), (right, 2), (2, bottom), (right, bottom)))
        == expected_corners
    )


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
def test_result_has_the_requested_size(instruction: str, size: tuple[int, int]) -> None:
    assert edit_image(image_with_corners(), instruction).size == size


def test_grey_image_has_equal_channels() -> None:
    grey = pixels(edit_image(image_with_corners(), "make it black and white"))
    assert (grey[..., 0] == grey[..., 1]).all()
    assert (grey[..., 1] == grey[..., 2]).all()
    assert len(np.unique(grey)) > 2


def test_invert_complements_every_value() -> None:
    assert (pixels(edit_image(image_with_corners(), "invert the colours")) == 255 - pixels(image_with_corners())).all()


def test_brightness_scales_the_mean() -> None:
    photo = Image.open(io.BytesIO(sample("face.jpg").content))
    before = pixels(photo).mean()
    assert pixels(edit_image(photo, "brighter")).mean() > 1.1 * before
    assert pixels(edit_image(photo, "darker by 50%")).mean() == pytest.approx(before / 2, rel=0.02)


def test_contrast_changes_the_standard_deviation() -> None:
    photo = Image.open(io.BytesIO(sample("face.jpg").content))
    assert (
        pixels(edit_image(photo, "more contrast")).std()
        > pixels(photo).std()
        > pixels(edit_image(photo, "less contrast")).std()
    )


def test_blur_lowers_and_sharpen_raises_pixel_differences() -> None:
    photo = Image.open(io.BytesIO(sample("face.jpg").content))

    def roughness(image: Image.Image) -> float:
        return float(abs(np.diff(pixels(image), axis=0)).mean())

    assert roughness(edit_image(photo, "blur it")) < 0.5 * roughness(photo)
    assert roughness(edit_image(photo, "sharpen it")) > 1.2 * roughness(photo)


def test_edges_follow_the_outline_of_the_subject() -> None:
    edges = pixels(edit_image(Image.open(io.BytesIO(sample("apple.png").content)), "edges"))[..., 0]
    assert set(np.unique(edges)) == {0, 255}
    assert edges[170, 105:116].any()  # the left side of the ellipse
    assert not edges[180:240, 150:250].any()  # within it


def test_sketch_has_dark_lines_on_a_light_background() -> None:
    sketch = pixels(edit_image(Image.open(io.BytesIO(sample("face.jpg").content)), "pencil sketch"))
    assert np.median(sketch) > 220
    assert 0.02 < (sketch < 160).mean() < 0.3


def test_sepia_is_brownish() -> None:
    red, green, blue = pixels(edit_image(image_with_corners(), "sepia"))[20, 30]
    assert red >= green > blue


def test_edit_preserves_transparency() -> None:
    clear = image_with_corners().convert("RGBA")
    clear.putpixel((30, 20), (9, 9, 9, 0))
    image = edit_image(clear, "grey and mirror")
    assert image.mode == "RGBA"
    assert image.getpixel((29, 20))[3] == 0  # type: ignore[index]
    assert image.getpixel((0, 0))[3] == 255  # type: ignore[index]


def test_result_is_named_after_the_picture_and_its_edits() -> None:
    outputs = infer(
        load_lite_model("image-to-image", MODEL),
        {"image": png(image_with_corners(), "photo.png"), "instruction": "grey and mirror"},
    )
    assert outputs["image"].name == "photo-grey-mirror.png"


@pytest.mark.parametrize(
    ("inputs", "message", "port"),
    [
        ({"image": sample("apple.png")}, "no instruction", "instruction"),
        ({"image": sample("apple.png"), "instruction": " "}, "no instruction", "instruction"),
        (
            {"image": sample("apple.png"), "instruction": "resize to 50000x50000"},
            "the limit is 40 million",
            "instruction",
        ),
        ({"image": Media(b"words", "text/plain", "x.png"), "instruction": "blur"}, "not a supported image", "image"),
    ],
)
def test_invalid_edit_is_rejected(inputs: dict[str, object], message: str, port: str) -> None:
    with pytest.raises(InvalidRequest, match=message) as caught:
        infer(load_lite_model("image-to-image", MODEL), inputs)
    assert caught.value.port == port
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("instruction", "name", "numbers"),
    [
        ("make it 20% bigger", "scale", {"factor": 1.2}),
        ("make it 20% smaller", "scale", {"factor": 0.8}),
        ("enlarge it by 50%", "scale", {"factor": 1.5}),
        ("scale it to 50%", "scale", {"factor": 0.5}),
        ("make it 300 wide and 200 high", "resize", {"width": 300.0, "height": 200.0}),
        ("it is too bright", "brightness", {"factor": 0.7}),
        ("make it less dark", "brightness", {"factor": 1.3}),
        ("make it less blurry", "sharpen", {"amount": 1.5}),
        ("too much contrast", "contrast", {"factor": 0.7}),
    ],
)
def test_a_change_goes_in_the_direction_of_the_words(instruction: str, name: str, numbers: dict[str, float]) -> None:
    (step,) = parse_steps(instruction)
    assert step.name == name
    assert dict(step.numbers) == pytest.approx(numbers)


@pytest.mark.parametrize("instruction", ["rotate it slightly to the left", "crop it by 10%"])
def test_an_amount_that_is_not_clear_is_rejected(instruction: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_steps(instruction)

"""Invalid inputs and parameters of the diffusion expert: errors name the port, and the next call succeeds."""

import asyncio
import io
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from PIL import Image

from experts.diffusion.tasks import MAPS
from experts.host.handler import Media
from tests.tiny import ExpertClient, TinyModels
from tests.tiny.image_files import solid_image, to_image, to_media

GENERATE, EDIT, INPAINT, UPSCALE = "text-to-image", "image-to-image", "inpainting", "image-super-resolution"
CANNY, FROM_MAP = "canny-control", "canny-text-to-image"
PROMPT = {"text": "a castle"}
PICTURE = {"image": to_media(solid_image("red", (32, 32)))}
HUGE = Media(b"P4\n20000 20000\n" + bytes(64), "image/x-portable-bitmap", "huge.pbm")
AUDIO = Media(b"RIFF\x00\x00\x00\x00WAVE", "audio/wav", "a.wav")
MAP_TASKS = [f"{name}-control" for name in MAPS if name != "openpose"]

# diffusers asks torch for TorchScript when it is imported.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def expert(tiny_models: TinyModels) -> AsyncIterator[ExpertClient]:
    async with tiny_models.serve("diffusion") as expert:
        yield expert


async def _check_next_call(expert: ExpertClient) -> None:
    """Checks that a valid call succeeds after the invalid one."""
    assert to_image((await expert.call(CANNY, PICTURE))["image"]).size == (32, 32)


def _other_inputs(task: str) -> dict[str, Any]:
    """Returns the required inputs of a task other than the picture."""
    mask = {"mask": to_media(solid_image("white", (32, 32)))} if task == INPAINT else {}
    texts = {EDIT: {"instruction": "a castle"}, INPAINT: PROMPT, FROM_MAP: PROMPT}
    return mask | texts.get(task, {})


@pytest.mark.parametrize("task", [EDIT, INPAINT, UPSCALE, *MAP_TASKS, FROM_MAP])
@pytest.mark.parametrize(
    "image", [HUGE, AUDIO, Media(b"\x89PNG\r\n\x1a\n broken", "image/png", "a.png"), "a text"], ids=range(4)
)
async def test_invalid_picture_is_rejected_by_every_task(expert: ExpertClient, task: str, image: Media | str) -> None:
    error = await expert.call_error(task, {"image": image, **_other_inputs(task)})
    assert error.code.name == "INVALID_ARGUMENT"
    assert error.port == "image"
    assert error.remedy
    await _check_next_call(expert)


@pytest.mark.parametrize(
    ("task", "inputs", "port"),
    [
        (GENERATE, {"text": " "}, "text"),
        (GENERATE, {"text": "castle " * 1000}, "text"),
        (GENERATE, {"words": "a castle"}, "words"),
        (GENERATE, {}, "text"),
        (EDIT, PICTURE, "instruction"),
        (INPAINT, {**PICTURE, **PROMPT, "mask": HUGE}, "mask"),
        (INPAINT, {**PICTURE, **PROMPT, "mask": to_media(solid_image("black", (32, 32)))}, "mask"),
        (INPAINT, {**PICTURE, **PROMPT, "mask": to_media(solid_image("white", (16, 16)))}, "mask"),
        (INPAINT, {**PICTURE, **PROMPT}, "mask"),
        (FROM_MAP, {"image": to_media(solid_image("red", (10, 200))), **PROMPT}, "image"),
        (FROM_MAP, {**PICTURE, "text": ""}, "text"),
    ],
    ids=range(11),
)
async def test_invalid_input_error_names_the_port(expert: ExpertClient, task: str, inputs: Any, port: str) -> None:
    error = await expert.call_error(task, inputs)
    assert error.code.name == "INVALID_ARGUMENT"
    assert error.port == port
    assert error.remedy
    await _check_next_call(expert)


@pytest.mark.parametrize(
    ("task", "inputs", "parameters", "message"),
    [
        (GENERATE, PROMPT, {"width": 63}, "width"),
        (GENERATE, PROMPT, {"height": 4097}, "height"),
        (GENERATE, PROMPT, {"width": 4096, "height": 4096}, "4096 x 4096 pixels are too many"),
        (GENERATE, PROMPT, {"num_inference_steps": 201}, "num_inference_steps"),
        (GENERATE, PROMPT, {"guidance_scale": 51}, "guidance_scale"),
        (GENERATE, PROMPT, {"seed": 0.5}, "seed"),
        (GENERATE, PROMPT, {"style": "oil"}, "no parameter style"),
        (EDIT, {**PICTURE, "instruction": "blue"}, {"strength": 1.1}, "strength"),
        (UPSCALE, PICTURE, {"scale": 9}, "scale"),
        (CANNY, PICTURE, {"low": 1}, "no parameter low"),
    ],
)
async def test_invalid_parameter_is_rejected(
    expert: ExpertClient, task: str, inputs: Any, parameters: dict[str, Any], message: str
) -> None:
    error = await expert.call_error(task, inputs, **parameters)
    assert error.code.name == "INVALID_ARGUMENT"
    assert message in error.message
    await _check_next_call(expert)


async def test_unknown_model_error_names_the_model(expert: ExpertClient) -> None:
    error = await expert.call_error(GENERATE, PROMPT, "unknown/model")
    assert error.code.name == "NOT_FOUND"
    assert error.reason == "MODEL"
    assert "unknown/model" in error.message


@pytest.mark.parametrize("task", [EDIT, INPAINT, UPSCALE, *MAP_TASKS, FROM_MAP])
async def test_one_pixel_picture_is_accepted(expert: ExpertClient, task: str) -> None:
    mask = {"mask": to_media(solid_image("white", (1, 1)))} if task == INPAINT else {}
    parameters: dict[str, Any] = {"num_inference_steps": 2} if task in (EDIT, INPAINT, FROM_MAP) else {}
    inputs = {"image": to_media(solid_image("red", (1, 1)), "dot.png"), **_other_inputs(task), **mask}
    outputs = await expert.call(task, inputs, **parameters)
    assert to_image(outputs["image"]).width >= 1


async def test_pictures_of_any_mode_and_orientation_are_accepted(expert: ExpertClient) -> None:
    """Rotated by EXIF, in CMYK, with transparency, in 16 bits."""
    rotated = Image.new("RGB", (32, 16), "red")
    exif = rotated.getexif()
    exif[0x0112] = 6
    for image, kind, options, size in (
        (rotated, "JPEG", {"exif": exif}, (16, 32)),
        (Image.new("CMYK", (24, 16)), "JPEG", {}, (24, 16)),
        (Image.new("RGBA", (24, 16), (0, 0, 0, 0)), "PNG", {}, (24, 16)),
        (Image.new("I;16", (24, 16), 40_000), "PNG", {}, (24, 16)),
    ):
        buffer = io.BytesIO()
        image.save(buffer, kind, **options)
        outputs = await expert.call(CANNY, {"image": Media(buffer.getvalue(), f"image/{kind.lower()}", "a")})
        assert to_image(outputs["image"]).size == size


async def test_invalid_call_does_not_affect_concurrent_calls(expert: ExpertClient) -> None:
    parameters: dict[str, Any] = {"num_inference_steps": 2, "seed": 3}
    valid_calls = [expert.call(GENERATE, PROMPT, **parameters) for _ in range(2)]
    (first, second), error = await asyncio.gather(
        asyncio.gather(*valid_calls), expert.call_error(GENERATE, {"text": " "}, **parameters)
    )
    assert first == second
    assert error.port == "text"

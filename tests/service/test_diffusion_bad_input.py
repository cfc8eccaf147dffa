"""Pictures, words and parameters that cannot be taken are refused by name, and the next ones are answered."""

import asyncio
import io
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from PIL import Image

from experts.diffusion.tasks import MAPS
from experts.host.handler import Media
from tests.tiny import Served, Tiny
from tests.tiny.pictures import plain, received, sent

PAINT, REPAINT, FILL, ENLARGE = "text-to-image", "image-to-image", "inpainting", "image-super-resolution"
CANNY, AFTER = "canny-control", "canny-text-to-image"
WORDS = {"text": "a castle"}
PICTURE = {"image": sent(plain("red", (32, 32)))}
HUGE = Media(b"P4\n20000 20000\n" + bytes(64), "image/x-portable-bitmap", "huge.pbm")
SOUND = Media(b"RIFF\x00\x00\x00\x00WAVE", "audio/wav", "a.wav")
DRAWN = [f"{name}-control" for name in MAPS if name != "openpose"]

# diffusers asks torch for TorchScript when it is imported.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def expert(tiny: Tiny) -> AsyncIterator[Served]:
    async with tiny.expert("diffusion") as expert:
        yield expert


async def _goes_on(expert: Served) -> None:
    assert received((await expert.ask(CANNY, PICTURE))["image"]).size == (32, 32)


def _needs(task: str) -> dict[str, Any]:
    """What a task has besides a picture."""
    mask = {"mask": sent(plain("white", (32, 32)))} if task == FILL else {}
    words = {REPAINT: {"instruction": "a castle"}, FILL: WORDS, AFTER: WORDS}
    return mask | words.get(task, {})


@pytest.mark.parametrize("task", [REPAINT, FILL, ENLARGE, *DRAWN, AFTER])
@pytest.mark.parametrize(
    "image", [HUGE, SOUND, Media(b"\x89PNG\r\n\x1a\n broken", "image/png", "a.png"), "a text"], ids=range(4)
)
async def test_what_is_no_picture_is_refused_by_every_task(expert: Served, task: str, image: Media | str) -> None:
    error = await expert.refusal(task, {"image": image, **_needs(task)})
    assert (error.code.name, error.port, bool(error.remedy)) == ("INVALID_ARGUMENT", "image", True)
    await _goes_on(expert)


@pytest.mark.parametrize(
    ("task", "inputs", "port"),
    [
        (PAINT, {"text": " "}, "text"),
        (PAINT, {"text": "castle " * 1000}, "text"),
        (PAINT, {"words": "a castle"}, "words"),
        (PAINT, {}, "text"),
        (REPAINT, PICTURE, "instruction"),
        (FILL, {**PICTURE, **WORDS, "mask": HUGE}, "mask"),
        (FILL, {**PICTURE, **WORDS, "mask": sent(plain("black", (32, 32)))}, "mask"),
        (FILL, {**PICTURE, **WORDS, "mask": sent(plain("white", (16, 16)))}, "mask"),
        (FILL, {**PICTURE, **WORDS}, "mask"),
        (AFTER, {"image": sent(plain("red", (10, 200))), **WORDS}, "image"),
        (AFTER, {**PICTURE, "text": ""}, "text"),
    ],
    ids=range(11),
)
async def test_what_is_not_for_a_port_is_refused_by_it(expert: Served, task: str, inputs: Any, port: str) -> None:
    error = await expert.refusal(task, inputs)
    assert (error.code.name, error.port, bool(error.remedy)) == ("INVALID_ARGUMENT", port, True)
    await _goes_on(expert)


@pytest.mark.parametrize(
    ("task", "inputs", "parameters", "said"),
    [
        (PAINT, WORDS, {"width": 63}, "width"),
        (PAINT, WORDS, {"height": 4097}, "height"),
        (PAINT, WORDS, {"width": 4096, "height": 4096}, "4096 x 4096 pixels are too many"),
        (PAINT, WORDS, {"num_inference_steps": 201}, "num_inference_steps"),
        (PAINT, WORDS, {"guidance_scale": 51}, "guidance_scale"),
        (PAINT, WORDS, {"seed": 0.5}, "seed"),
        (PAINT, WORDS, {"style": "oil"}, "no parameter style"),
        (REPAINT, {**PICTURE, "instruction": "blue"}, {"strength": 1.1}, "strength"),
        (ENLARGE, PICTURE, {"scale": 9}, "scale"),
        (CANNY, PICTURE, {"low": 1}, "no parameter low"),
    ],
)
async def test_parameters_that_are_unknown_or_out_of_range_are_refused(
    expert: Served, task: str, inputs: Any, parameters: dict[str, Any], said: str
) -> None:
    error = await expert.refusal(task, inputs, **parameters)
    assert error.code.name == "INVALID_ARGUMENT"
    assert said in error.message
    await _goes_on(expert)


async def test_a_model_that_is_not_here_is_named(expert: Served) -> None:
    error = await expert.refusal(PAINT, WORDS, "nobody/nothing")
    assert (error.code.name, error.reason, "nobody/nothing" in error.message) == ("NOT_FOUND", "MODEL", True)


@pytest.mark.parametrize("task", [REPAINT, FILL, ENLARGE, *DRAWN, AFTER])
async def test_a_dot_is_a_picture_too(expert: Served, task: str) -> None:
    mask = {"mask": sent(plain("white", (1, 1)))} if task == FILL else {}
    few: dict[str, Any] = {"num_inference_steps": 2} if task in (REPAINT, FILL, AFTER) else {}
    inputs = {"image": sent(plain("red", (1, 1)), "dot.png"), **_needs(task), **mask}
    out = await expert.ask(task, inputs, **few)
    assert received(out["image"]).width >= 1


async def test_pictures_come_as_people_have_them(expert: Served) -> None:
    """Turned by EXIF, in print colours, with transparency, in 16 bits."""
    turned = Image.new("RGB", (32, 16), "red")
    exif = turned.getexif()
    exif[0x0112] = 6
    for image, kind, options, size in (
        (turned, "JPEG", {"exif": exif}, (16, 32)),
        (Image.new("CMYK", (24, 16)), "JPEG", {}, (24, 16)),
        (Image.new("RGBA", (24, 16), (0, 0, 0, 0)), "PNG", {}, (24, 16)),
        (Image.new("I;16", (24, 16), 40_000), "PNG", {}, (24, 16)),
    ):
        buffer = io.BytesIO()
        image.save(buffer, kind, **options)
        out = await expert.ask(CANNY, {"image": Media(buffer.getvalue(), f"image/{kind.lower()}", "a")})
        assert received(out["image"]).size == size


async def test_bad_input_harms_nobody_beside_it(expert: Served) -> None:
    few: dict[str, Any] = {"num_inference_steps": 2, "seed": 3}
    good = [expert.ask(PAINT, WORDS, **few) for _ in range(2)]
    (first, second), refused = await asyncio.gather(asyncio.gather(*good), expert.refusal(PAINT, {"text": " "}, **few))
    assert first == second
    assert refused.port == "text"

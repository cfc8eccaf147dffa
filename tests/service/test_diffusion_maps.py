"""Control maps and pictures after them, over gRPC."""

import io
from typing import Any

import diffusers
import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw

from experts.diffusion.controlnet import BASES
from experts.diffusion.maps.segmentation import colours
from experts.diffusion.tasks import MAPS
from experts.host.handler import Media
from tests.tiny import Tiny

# diffusers asks torch for TorchScript when it is imported.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning"),
]

SIDE = 32
MODELS = {
    "canny": "opencv/canny",
    "depth": "tiny/depth-map",
    "hed": "tiny/hed",
    "mlsd": "opencv/line-segments",
    "normal": "tiny/depth-map",
    "openpose": "tiny/pose-map",
    "scribble": "opencv/scribble",
    "seg": "tiny/segmenter",
}


def media(image: Image.Image) -> Media:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return Media(buffer.getvalue(), "image/png", "photo.png")


def pixels(made: Media) -> Any:
    return np.asarray(Image.open(io.BytesIO(made.content)).convert("RGB"))


def halves(width: int = SIDE, height: int = SIDE) -> Image.Image:
    """Black on the left, white on the right."""
    drawn = Image.new("RGB", (width, height))
    drawn.paste("white", (width // 2, 0, width, height))
    return drawn


async def test_each_map_is_drawn_as_large_as_its_picture_and_steers_a_picture(tiny: Tiny) -> None:
    steps: dict[str, Any] = {"num_inference_steps": 2, "seed": 7}
    async with tiny.expert("diffusion") as expert:
        for name in MAPS:
            drawn = (await expert.ask(f"{name}-control", {"image": media(halves(48, 32))}, MODELS[name]))["image"]
            assert pixels(drawn).shape == (32, 48, 3)
            made = await expert.ask(f"{name}-text-to-image", {"image": drawn, "text": "a robot"}, **steps)
            assert pixels(made["image"]).shape == (24, 40, 3)


async def test_a_picture_after_a_map_is_the_pipelines_own(tiny: Tiny) -> None:
    drawing = Image.new("RGB", (SIDE, SIDE))
    ImageDraw.Draw(drawing).ellipse((8, 8, 24, 24), outline="white")
    folder = tiny.built("diffusion", "tiny/controlnet")
    pipeline = diffusers.StableDiffusionControlNetPipeline.from_pretrained(
        folder.parents[1] / BASES[768].model_id, controlnet=diffusers.ControlNetModel.from_pretrained(folder)
    )
    generator = torch.Generator().manual_seed(7)
    expected = pipeline("a robot", image=drawing, generator=generator, num_inference_steps=3).images[0]
    async with tiny.expert("diffusion") as expert:
        asked = {"image": media(drawing), "text": "a robot"}
        made = await expert.ask("canny-text-to-image", asked, num_inference_steps=3, seed=7)
        blank = await expert.ask(
            "canny-text-to-image",
            {**asked, "image": media(Image.new("RGB", (SIDE, SIDE)))},
            num_inference_steps=3,
            seed=7,
        )
    assert (pixels(made["image"]) == np.asarray(expected)).all()
    assert made["image"].content != blank["image"].content


async def test_edges_lines_and_strokes_are_where_the_picture_changes(tiny: Tiny) -> None:
    async with tiny.expert("diffusion") as expert:
        given = {"image": media(halves(64, 64))}
        for name, model in (("canny", ""), ("mlsd", ""), ("scribble", ""), ("hed", "opencv/soft-edges")):
            drawn = pixels((await expert.ask(f"{name}-control", given, model))["image"])
            assert drawn[:, 24:40].max() == 255, name
            assert not drawn[:, :16].any(), name
            assert not drawn[:, 48:].any(), name


async def test_segments_have_the_colours_of_what_they_show(tiny: Tiny) -> None:
    async with tiny.expert("diffusion") as expert:
        drawn = pixels((await expert.ask("seg-control", {"image": media(halves())}))["image"])
    assert tuple(drawn[16, 4]) == tuple(colours()[0]) == (120, 120, 120)
    assert tuple(drawn[16, 28]) == tuple(colours()[1]) == (180, 120, 120)


async def test_depth_is_the_models_own_and_spans_black_to_white(tiny: Tiny) -> None:
    async with tiny.expert("diffusion") as expert:
        drawn = pixels((await expert.ask("depth-control", {"image": media(halves())}))["image"])
    assert (drawn.min(), drawn.max()) == (0, 255)


@pytest.mark.parametrize("size", [(1, 1), (1, 40), (2, 2)])
async def test_maps_of_dots_and_strips_are_drawn_too(tiny: Tiny, size: tuple[int, int]) -> None:
    async with tiny.expert("diffusion") as expert:
        for name in ("canny", "mlsd", "scribble", "hed", "depth", "normal", "seg"):
            made = await expert.ask(f"{name}-control", {"image": media(halves(*size))}, MODELS[name])
            assert pixels(made["image"]).shape == (size[1], size[0], 3), name


async def test_a_map_takes_no_words_and_no_parameters(tiny: Tiny) -> None:
    async with tiny.expert("diffusion") as expert:
        error = await expert.refusal("canny-control", {"image": "a castle"})
        other = await expert.refusal("canny-control", {"image": media(halves())}, low=3)
    assert error.port == "image"
    assert "no parameter low" in other.message

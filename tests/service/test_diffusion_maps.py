"""Control maps, and pictures generated from them, over gRPC."""

import io
from typing import Any

import diffusers
import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw

from experts.diffusion.controlnet import BASE_MODELS, map_text_to_image
from experts.diffusion.maps.segmentation import load_palette
from experts.diffusion.tasks import MAPS
from experts.host import load_context
from experts.host.handler import Media
from experts.host.load_context import LoadContext, PipelineOptions
from tests.tiny import TinyModels
from tests.tiny.image_files import LEFT, square_image

# diffusers asks torch for TorchScript when it is imported.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning"),
]

SIDE = 32
MAP_MODELS = {
    "canny": "opencv/canny",
    "depth": "tiny/depth-map",
    "hed": "tiny/hed",
    "mlsd": "opencv/line-segments",
    "normal": "tiny/depth-map",
    "openpose": "tiny/pose-map",
    "scribble": "opencv/scribble",
    "seg": "tiny/segmenter",
}


def to_media(image: Image.Image) -> Media:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return Media(buffer.getvalue(), "image/png", "photo.png")


def to_pixels(media: Media) -> Any:
    return np.asarray(Image.open(io.BytesIO(media.content)).convert("RGB"))


def half_white(width: int = SIDE, height: int = SIDE) -> Image.Image:
    """Returns a picture that is black on the left and white on the right."""
    picture = Image.new("RGB", (width, height))
    picture.paste("white", (width // 2, 0, width, height))
    return picture


async def test_each_map_has_the_picture_size_and_conditions_a_picture(tiny_models: TinyModels) -> None:
    steps: dict[str, Any] = {"num_inference_steps": 2, "seed": 7}
    async with tiny_models.serve("diffusion") as expert:
        for name in MAPS:
            picture = square_image("red", LEFT, (48, 32)) if name == "openpose" else half_white(48, 32)
            control_map = (await expert.call(f"{name}-control", {"image": to_media(picture)}, MAP_MODELS[name]))[
                "image"
            ]
            assert to_pixels(control_map).shape == (32, 48, 3)
            outputs = await expert.call(f"{name}-text-to-image", {"image": control_map, "text": "a robot"}, **steps)
            assert to_pixels(outputs["image"]).shape == (24, 40, 3)


async def test_picture_from_a_map_equals_the_direct_pipeline(tiny_models: TinyModels) -> None:
    control_map = Image.new("RGB", (SIDE, SIDE))
    ImageDraw.Draw(control_map).ellipse((8, 8, 24, 24), outline="white")
    folder = tiny_models.build("diffusion", "tiny/controlnet")
    pipeline = diffusers.StableDiffusionControlNetPipeline.from_pretrained(
        folder.parents[1] / BASE_MODELS[768].model_id, controlnet=diffusers.ControlNetModel.from_pretrained(folder)
    )
    generator = torch.Generator().manual_seed(7)
    expected = pipeline("a robot", image=control_map, generator=generator, num_inference_steps=3).images[0]
    async with tiny_models.serve("diffusion") as expert:
        inputs = {"image": to_media(control_map), "text": "a robot"}
        outputs = await expert.call("canny-text-to-image", inputs, num_inference_steps=3, seed=7)
        blank = await expert.call(
            "canny-text-to-image",
            {**inputs, "image": to_media(Image.new("RGB", (SIDE, SIDE)))},
            num_inference_steps=3,
            seed=7,
        )
    assert (to_pixels(outputs["image"]) == np.asarray(expected)).all()
    assert outputs["image"].content != blank["image"].content


class RunningCall:
    cancelled = False

    def progress(self, fraction: float, message: str = "") -> None: ...


def paint_with_union(mode: int, control_map: Image.Image) -> Any:
    """Returns the picture of a union of ControlNets whose card has the mode."""
    with load_context.use(LoadContext(pipeline=PipelineOptions({"control_mode": mode}))):
        handler: Any = map_text_to_image("tiny/union", "cpu")
    inputs = {"image": to_media(control_map), "text": "a robot"}
    (raw,) = handler.run([handler.prepare(inputs, {"num_inference_steps": 2, "seed": 7})], RunningCall())
    return to_pixels(handler.finish(raw)["image"])


@pytest.mark.parametrize("mode", [0, 3])
def test_picture_of_a_union_equals_the_direct_pipeline_in_its_mode(tiny_models: TinyModels, mode: int) -> None:
    folder = tiny_models.build("diffusion", "tiny/union")
    pipeline = diffusers.StableDiffusionXLControlNetUnionPipeline.from_pretrained(
        folder.parents[1] / BASE_MODELS[2048].model_id,
        controlnet=diffusers.ControlNetUnionModel.from_pretrained(folder),
    )
    options: dict[str, Any] = {"num_inference_steps": 2, "generator": torch.Generator().manual_seed(7)}
    expected = pipeline("a robot", control_image=[half_white()], control_mode=[mode], **options).images[0]
    assert (paint_with_union(mode, half_white()) == np.asarray(expected)).all()


def test_modes_of_a_union_differ(tiny_models: TinyModels) -> None:
    tiny_models.build("diffusion", "tiny/union")
    assert (paint_with_union(0, half_white()) != paint_with_union(3, half_white())).any()


def test_union_of_controlnets_reads_its_map(tiny_models: TinyModels) -> None:
    tiny_models.build("diffusion", "tiny/union")
    assert (paint_with_union(3, half_white()) != paint_with_union(3, Image.new("RGB", (SIDE, SIDE)))).any()


async def test_edge_maps_are_white_only_at_the_edge(tiny_models: TinyModels) -> None:
    async with tiny_models.serve("diffusion") as expert:
        inputs = {"image": to_media(half_white(64, 64))}
        for name, model in (("canny", ""), ("mlsd", ""), ("scribble", ""), ("hed", "opencv/soft-edges")):
            control_map = to_pixels((await expert.call(f"{name}-control", inputs, model))["image"])
            assert control_map[:, 24:40].max() == 255, name
            assert not control_map[:, :16].any(), name
            assert not control_map[:, 48:].any(), name


async def test_segments_have_the_colours_of_their_classes(tiny_models: TinyModels) -> None:
    async with tiny_models.serve("diffusion") as expert:
        control_map = to_pixels((await expert.call("seg-control", {"image": to_media(half_white())}))["image"])
    assert tuple(control_map[16, 4]) == tuple(load_palette()[0]) == (120, 120, 120)
    assert tuple(control_map[16, 28]) == tuple(load_palette()[1]) == (180, 120, 120)


async def test_depth_map_spans_black_to_white(tiny_models: TinyModels) -> None:
    async with tiny_models.serve("diffusion") as expert:
        control_map = to_pixels((await expert.call("depth-control", {"image": to_media(half_white())}))["image"])
    assert control_map.min() == 0
    assert control_map.max() == 255


@pytest.mark.parametrize("size", [(1, 1), (1, 40), (2, 2)])
async def test_maps_of_tiny_and_narrow_pictures_are_drawn(tiny_models: TinyModels, size: tuple[int, int]) -> None:
    async with tiny_models.serve("diffusion") as expert:
        for name in ("canny", "mlsd", "scribble", "hed", "depth", "normal", "seg"):
            outputs = await expert.call(f"{name}-control", {"image": to_media(half_white(*size))}, MAP_MODELS[name])
            assert to_pixels(outputs["image"]).shape == (size[1], size[0], 3), name


async def test_map_rejects_text_and_unknown_parameters(tiny_models: TinyModels) -> None:
    async with tiny_models.serve("diffusion") as expert:
        text_error = await expert.call_error("canny-control", {"image": "a castle"})
        parameter_error = await expert.call_error("canny-control", {"image": to_media(half_white())}, low=3)
    assert text_error.port == "image"
    assert "no parameter low" in parameter_error.message

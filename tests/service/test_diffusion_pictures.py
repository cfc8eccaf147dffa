"""Pictures made, changed, filled and enlarged, over gRPC: what comes is what the pipeline itself would have made."""

import asyncio
import io
from typing import Any

import diffusers
import numpy as np
import pytest
import torch
from PIL import Image
from transformers import Swin2SRForImageSuperResolution

from experts.host.handler import Media
from protos.hugginggpt.v1 import expert_pb2 as pb
from protos.hugginggpt.v1.caller_pb2 import Caller
from services.common import call_context, errors
from tests.tiny import TENANT, Served, Tiny

# diffusers asks torch for TorchScript when it is imported.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning"),
]

SIDE = 32
STEPS: dict[str, Any] = {"num_inference_steps": 3, "seed": 7}


def picture(width: int = SIDE, height: int = SIDE) -> Image.Image:
    across = np.linspace(0, 255, width, dtype=np.uint8)
    return Image.fromarray(np.stack([np.tile(across, (height, 1))] * 3, axis=2))


def media(image: Image.Image, name: str = "photo.png") -> Media:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return Media(buffer.getvalue(), "image/png", name)


def pixels(made: Media) -> Any:
    assert made.media_type == "image/png"
    return np.asarray(Image.open(io.BytesIO(made.content)).convert("RGB"))


def mask(left: int = SIDE // 2) -> Image.Image:
    drawn = Image.new("L", (SIDE, SIDE))
    drawn.paste(255, (left, 0, SIDE, SIDE))
    return drawn


def directly(tiny: Tiny, kind: str, model: str, **arguments: Any) -> Any:
    """What the pipeline makes, called as its makers say."""
    pipeline = getattr(diffusers, kind).from_pretrained(tiny.built("diffusion", model))
    pipeline.set_progress_bar_config(disable=True)
    made = pipeline(**arguments, generator=torch.Generator().manual_seed(7), num_inference_steps=3)
    return np.asarray(made.images[0])


async def test_a_picture_from_words_is_the_pipelines_own_and_its_seed_gives_it_again(tiny: Tiny) -> None:
    expected = directly(tiny, "StableDiffusionPipeline", "tiny/sd", prompt="a castle", guidance_scale=5.0)
    async with tiny.expert("diffusion") as expert:
        asked = {"text": "a castle"}
        made = await expert.ask("text-to-image", asked, "tiny/sd", guidance_scale=5, **STEPS)
        again = await expert.ask("text-to-image", asked, "tiny/sd", guidance_scale=5, **STEPS)
        other = await expert.ask("text-to-image", asked, "tiny/sd", guidance_scale=5, num_inference_steps=3, seed=8)
    assert (pixels(made["image"]) == expected).all()
    assert again["image"] == made["image"]
    assert other["image"].content != made["image"].content


async def test_a_picture_has_the_size_asked_for_even_if_the_model_cannot_paint_it(tiny: Tiny) -> None:
    async with tiny.expert("diffusion") as expert:
        made = await expert.ask("text-to-image", {"text": "a castle"}, "tiny/sd", width=70, height=67, **STEPS)
    assert pixels(made["image"]).shape == (67, 70, 3)


async def test_another_picture_starts_from_the_one_given(tiny: Tiny) -> None:
    expected = directly(
        tiny, "StableDiffusionImg2ImgPipeline", "tiny/sd", prompt="in oils", image=picture(), strength=0.7
    )
    async with tiny.expert("diffusion") as expert:
        asked = {"image": media(picture()), "instruction": "in oils"}
        made = await expert.ask("image-to-image", asked, "tiny/sd", strength=0.7, **STEPS)
    assert (pixels(made["image"]) == expected).all()
    assert made["image"].name == "photo-repainted.png"


async def test_an_editor_is_recognised_and_follows_the_instruction(tiny: Tiny) -> None:
    asked: dict[str, Any] = {"prompt": "make it winter", "image": picture(), "image_guidance_scale": 2.0}
    expected = directly(tiny, "StableDiffusionInstructPix2PixPipeline", "tiny/editor", **asked)
    async with tiny.expert("diffusion") as expert:
        given = {"image": media(picture()), "instruction": "make it winter"}
        made = await expert.ask("image-to-image", given, "tiny/editor", strength=0.5, **STEPS)
    assert (pixels(made["image"]) == expected).all()


@pytest.mark.parametrize("model", ["tiny/inpainter", "tiny/sd"])
async def test_a_filling_stays_inside_the_mask(tiny: Tiny, model: str) -> None:
    asked: dict[str, Any] = {"prompt": "a tree", "image": picture(), "mask_image": mask(), "height": 32, "width": 32}
    expected = directly(tiny, "StableDiffusionInpaintPipeline", model, **asked)
    async with tiny.expert("diffusion") as expert:
        given = {"image": media(picture()), "mask": media(mask()), "text": "a tree"}
        made = pixels((await expert.ask("inpainting", given, model, **STEPS))["image"])
    assert (made[:, SIDE // 2 :] == expected[:, SIDE // 2 :]).all()
    assert (made[:, : SIDE // 2] == np.asarray(picture())[:, : SIDE // 2]).all()


async def test_a_large_photo_comes_back_in_its_size_and_untouched_outside_the_mask(tiny: Tiny) -> None:
    photo, drawn = picture(300, 200), Image.new("L", (300, 200))
    drawn.paste(255, (200, 0, 300, 200))
    async with tiny.expert("diffusion") as expert:
        given = {"image": media(photo), "mask": media(drawn), "text": "a tree"}
        made = pixels((await expert.ask("inpainting", given, "tiny/inpainter", **STEPS))["image"])
    assert made.shape == (200, 300, 3)
    assert (made[:, :200] == np.asarray(photo)[:, :200]).all()


async def test_diffusion_enlarges_four_times_and_the_same_way_each_time(tiny: Tiny) -> None:
    async with tiny.expert("diffusion") as expert:
        first = await expert.ask("image-super-resolution", {"image": media(picture(16, 12))}, "tiny/upscaler")
        again = await expert.ask("image-super-resolution", {"image": media(picture(16, 12))}, "tiny/upscaler")
        small = await expert.ask(
            "image-super-resolution", {"image": media(picture(16, 12))}, "tiny/upscaler", scale=1.5
        )
    assert pixels(first["image"]).shape == (48, 64, 3)
    assert first == again
    assert pixels(small["image"]).shape == (18, 24, 3)


async def test_a_network_enlarges_what_fits_one_tile_as_if_called_directly(tiny: Tiny) -> None:
    given = picture(20, 16)
    model = Swin2SRForImageSuperResolution.from_pretrained(tiny.built("diffusion", "tiny/swin2sr")).eval()
    values = torch.from_numpy(np.asarray(given).copy()).permute(2, 0, 1)[None] / 255
    with torch.inference_mode():
        made = model(values).reconstruction[0].clamp(0, 1)
    async with tiny.expert("diffusion") as expert:
        out = await expert.ask("image-super-resolution", {"image": media(given)}, "tiny/swin2sr")
    assert (pixels(out["image"]) == (made * 255).round().byte().permute(1, 2, 0).numpy()).all()


@pytest.mark.parametrize("size", [(1, 1), (3, 50), (300, 270)])
async def test_a_network_enlarges_dots_strips_and_many_tiles(tiny: Tiny, size: tuple[int, int]) -> None:
    async with tiny.expert("diffusion") as expert:
        out = await expert.ask("image-super-resolution", {"image": media(picture(*size))}, "tiny/swin2sr")
    assert pixels(out["image"]).shape == (size[1] * 2, size[0] * 2, 3)


PHOTO = media(picture())


REFUSALS: list[tuple[Any, Any, str, str]] = [
        (("inpainting", {"image": PHOTO, "mask": media(Image.new("L", (16, 32), 255)), "text": "a"}, "tiny/sd"), {},
         "mask", "16 x 32"),
        (("inpainting", {"image": PHOTO, "mask": media(Image.new("L", (SIDE, SIDE))), "text": "a"}, "tiny/sd"), {},
         "mask", "black throughout"),
        (("inpainting", {"image": PHOTO, "text": "a"}, "tiny/sd"), {}, "mask", "needs the input mask"),
        (("text-to-image", {"text": "a"}, "tiny/sd"), {"num_inference_steps": 201},
         "parameters.num_inference_steps", "num_inference_steps"),
        (("text-to-image", {"text": "a"}, "tiny/sd"), {"num_inference_steps": 0},
         "parameters.num_inference_steps", "num_inference_steps"),
        (("text-to-image", {"text": "a"}, "tiny/sd"), {"guidance_scale": -1},
         "parameters.guidance_scale", "guidance_scale"),
        (("text-to-image", {"text": "a"}, "tiny/sd"), {"sampler": "euler"},
         "parameters.sampler", "no parameter sampler"),
        (("text-to-image", {"text": "a"}, "tiny/sd"), {"width": 4096, "height": 4096},
         "parameters.width", "too many"),
        (("text-to-image", {"text": "  "}, "tiny/sd"), {}, "text", "no text"),
        (("text-to-image", {"text": "a" * 6000}, "tiny/sd"), {}, "text", "6000 characters"),
        (("image-to-image", {"image": PHOTO}, "tiny/sd"), {}, "instruction", "no text"),
        (("image-to-image", {"image": PHOTO, "instruction": "a"}, "tiny/sd"), {"strength": 0},
         "parameters.strength", "nothing to do"),
        (("image-to-image", {"image": media(picture(400, 2)), "instruction": "a"}, "tiny/sd"), {}, "image", "narrow"),
        (("image-to-image", {"image": Media(b"no", "image/png", "x.png"), "instruction": "a"}, "tiny/editor"), {},
         "image", "not a supported image"),
        (("image-super-resolution", {"image": PHOTO}, "tiny/swin2sr"), {"scale": 3},
         "parameters.scale", "2 times at most"),
        (("image-super-resolution", {"image": media(picture(600, 600))}, "tiny/upscaler"), {}, "image", "600 x 600"),
]  # fmt: skip


async def test_what_cannot_be_painted_is_refused_by_port_and_reason(tiny: Tiny) -> None:
    async with tiny.expert("diffusion") as expert:
        for asked, parameters, port, complaint in REFUSALS:
            error = await expert.refusal(*asked, **parameters)
            assert isinstance(error, errors.InvalidRequest), complaint
            assert (error.port, complaint in error.message) == (port, True), error.message
            assert error.remedy


async def test_a_picture_that_nobody_waits_for_is_left_between_two_steps(tiny: Tiny) -> None:
    """The next caller gets its turn long before two hundred large steps would be done."""
    async with tiny.expert("diffusion") as expert, asyncio.timeout(30):
        await expert.ask("text-to-image", {"text": "a"}, "tiny/sd", **STEPS)
        request = pb.InferRequest(task="text-to-image", model="tiny/sd", call_id="long")
        request.inputs["text"].text = "a castle"
        request.parameters_json = '{"num_inference_steps": 200, "width": 512, "height": 512}'
        with call_context.use_caller(Caller(tenant=TENANT)):
            call: Any = expert.stub.Infer(request, timeout=60, metadata=call_context.metadata())
        step = await _a_step(expert)
        call.cancel()
        await expert.ask("text-to-image", {"text": "a"}, "tiny/sd", **STEPS)
    assert step.endswith("of 200")


async def _a_step(expert: Served) -> str:
    """What the call says of itself once it is at a step."""
    while True:  # the call may not have come yet
        watch: Any = expert.stub.Progress(pb.ProgressRequest(call_ids=["long"]), timeout=30)
        async for event in watch:
            if event.message.startswith("step "):
                watch.cancel()
                return str(event.message)

"""Picture tasks of the diffusion expert over gRPC: results equal those of the pipeline called directly."""

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
from tests.tiny import TENANT, ExpertClient, TinyModels

# diffusers asks torch for TorchScript when it is imported.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning"),
]

SIDE = 32
STEPS: dict[str, Any] = {"num_inference_steps": 3, "seed": 7}


def gradient(width: int = SIDE, height: int = SIDE) -> Image.Image:
    across = np.linspace(0, 255, width, dtype=np.uint8)
    return Image.fromarray(np.stack([np.tile(across, (height, 1))] * 3, axis=2))


def to_media(image: Image.Image, name: str = "photo.png") -> Media:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return Media(buffer.getvalue(), "image/png", name)


def to_pixels(media: Media) -> Any:
    assert media.media_type == "image/png"
    return np.asarray(Image.open(io.BytesIO(media.content)).convert("RGB"))


def mask(left: int = SIDE // 2) -> Image.Image:
    image = Image.new("L", (SIDE, SIDE))
    image.paste(255, (left, 0, SIDE, SIDE))
    return image


def run_pipeline(tiny_models: TinyModels, kind: str, model: str, **arguments: Any) -> Any:
    """Returns the picture of the pipeline, called directly."""
    pipeline = getattr(diffusers, kind).from_pretrained(tiny_models.build("diffusion", model))
    pipeline.set_progress_bar_config(disable=True)
    output = pipeline(**arguments, generator=torch.Generator().manual_seed(7), num_inference_steps=3)
    return np.asarray(output.images[0])


@pytest.mark.parametrize(("kind", "model"), [("Flux2KleinPipeline", "tiny/flux"), ("ZImagePipeline", "tiny/z-image")])
async def test_pipeline_with_a_language_model_as_text_encoder_equals_the_direct_one(
    tiny_models: TinyModels, kind: str, model: str
) -> None:
    size = {"width": 80, "height": 64}
    expected = run_pipeline(tiny_models, kind, model, prompt="a castle", guidance_scale=1.0, **size)
    async with tiny_models.serve("diffusion") as expert:
        out = await expert.call("text-to-image", {"text": "a castle"}, model, guidance_scale=1, **size, **STEPS)
    assert (to_pixels(out["image"]) == expected).all()


async def test_flux_edits_a_picture_by_instruction(tiny_models: TinyModels) -> None:
    inputs = {"image": to_media(gradient()), "instruction": "as a painting"}
    async with tiny_models.serve("diffusion") as expert:
        out = await expert.call("image-to-image", inputs, "tiny/flux", num_inference_steps=1, seed=7)
    assert to_pixels(out["image"]).shape == (512, 512, 3)


async def test_text_to_image_equals_the_direct_pipeline_and_repeats_by_seed(tiny_models: TinyModels) -> None:
    expected = run_pipeline(tiny_models, "StableDiffusionPipeline", "tiny/sd", prompt="a castle", guidance_scale=5.0)
    async with tiny_models.serve("diffusion") as expert:
        inputs = {"text": "a castle"}
        first = await expert.call("text-to-image", inputs, "tiny/sd", guidance_scale=5, **STEPS)
        again = await expert.call("text-to-image", inputs, "tiny/sd", guidance_scale=5, **STEPS)
        other = await expert.call("text-to-image", inputs, "tiny/sd", guidance_scale=5, num_inference_steps=3, seed=8)
    assert (to_pixels(first["image"]) == expected).all()
    assert again["image"] == first["image"]
    assert other["image"].content != first["image"].content


async def test_picture_has_the_requested_size_if_the_model_does_not_support_it(tiny_models: TinyModels) -> None:
    async with tiny_models.serve("diffusion") as expert:
        outputs = await expert.call("text-to-image", {"text": "a castle"}, "tiny/sd", width=70, height=67, **STEPS)
    assert to_pixels(outputs["image"]).shape == (67, 70, 3)


async def test_image_to_image_equals_the_direct_pipeline(tiny_models: TinyModels) -> None:
    expected = run_pipeline(
        tiny_models, "StableDiffusionImg2ImgPipeline", "tiny/sd", prompt="in oils", image=gradient(), strength=0.7
    )
    async with tiny_models.serve("diffusion") as expert:
        inputs = {"image": to_media(gradient()), "instruction": "in oils"}
        outputs = await expert.call("image-to-image", inputs, "tiny/sd", strength=0.7, **STEPS)
    assert (to_pixels(outputs["image"]) == expected).all()
    assert outputs["image"].name == "photo-repainted.png"


async def test_instruction_editor_equals_the_direct_pipeline(tiny_models: TinyModels) -> None:
    arguments: dict[str, Any] = {"prompt": "make it winter", "image": gradient(), "image_guidance_scale": 2.0}
    expected = run_pipeline(tiny_models, "StableDiffusionInstructPix2PixPipeline", "tiny/editor", **arguments)
    async with tiny_models.serve("diffusion") as expert:
        inputs = {"image": to_media(gradient()), "instruction": "make it winter"}
        outputs = await expert.call("image-to-image", inputs, "tiny/editor", strength=0.5, **STEPS)
    assert (to_pixels(outputs["image"]) == expected).all()


@pytest.mark.parametrize("model", ["tiny/inpainter", "tiny/sd"])
async def test_inpainting_changes_only_the_mask(tiny_models: TinyModels, model: str) -> None:
    arguments: dict[str, Any] = {
        "prompt": "a tree",
        "image": gradient(),
        "mask_image": mask(),
        "height": 32,
        "width": 32,
    }
    expected = run_pipeline(tiny_models, "StableDiffusionInpaintPipeline", model, **arguments)
    async with tiny_models.serve("diffusion") as expert:
        inputs = {"image": to_media(gradient()), "mask": to_media(mask()), "text": "a tree"}
        result = to_pixels((await expert.call("inpainting", inputs, model, **STEPS))["image"])
    assert (result[:, SIDE // 2 :] == expected[:, SIDE // 2 :]).all()
    assert (result[:, : SIDE // 2] == np.asarray(gradient())[:, : SIDE // 2]).all()


async def test_inpainting_of_a_large_photo_keeps_size_and_unmasked_pixels(tiny_models: TinyModels) -> None:
    photo, large_mask = gradient(300, 200), Image.new("L", (300, 200))
    large_mask.paste(255, (200, 0, 300, 200))
    async with tiny_models.serve("diffusion") as expert:
        inputs = {"image": to_media(photo), "mask": to_media(large_mask), "text": "a tree"}
        result = to_pixels((await expert.call("inpainting", inputs, "tiny/inpainter", **STEPS))["image"])
    assert result.shape == (200, 300, 3)
    assert (result[:, :200] == np.asarray(photo)[:, :200]).all()


async def test_diffusion_upscaler_is_deterministic_and_enlarges_four_times(tiny_models: TinyModels) -> None:
    async with tiny_models.serve("diffusion") as expert:
        first = await expert.call("image-super-resolution", {"image": to_media(gradient(16, 12))}, "tiny/upscaler")
        again = await expert.call("image-super-resolution", {"image": to_media(gradient(16, 12))}, "tiny/upscaler")
        small = await expert.call(
            "image-super-resolution", {"image": to_media(gradient(16, 12))}, "tiny/upscaler", scale=1.5
        )
    assert to_pixels(first["image"]).shape == (48, 64, 3)
    assert first == again
    assert to_pixels(small["image"]).shape == (18, 24, 3)


async def test_single_tile_upscaling_equals_the_direct_model(tiny_models: TinyModels) -> None:
    source = gradient(20, 16)
    model = Swin2SRForImageSuperResolution.from_pretrained(tiny_models.build("diffusion", "tiny/swin2sr")).eval()
    values = torch.from_numpy(np.asarray(source).copy()).permute(2, 0, 1)[None] / 255
    with torch.inference_mode():
        expected = model(values).reconstruction[0].clamp(0, 1)
    async with tiny_models.serve("diffusion") as expert:
        outputs = await expert.call("image-super-resolution", {"image": to_media(source)}, "tiny/swin2sr")
    assert (to_pixels(outputs["image"]) == (expected * 255).round().byte().permute(1, 2, 0).numpy()).all()


@pytest.mark.parametrize("size", [(1, 1), (3, 50), (300, 270)])
async def test_tiled_upscaler_accepts_any_size(tiny_models: TinyModels, size: tuple[int, int]) -> None:
    async with tiny_models.serve("diffusion") as expert:
        out = await expert.call("image-super-resolution", {"image": to_media(gradient(*size))}, "tiny/swin2sr")
    assert to_pixels(out["image"]).shape == (size[1] * 2, size[0] * 2, 3)


PHOTO = to_media(gradient())


INVALID_CALLS: list[tuple[Any, Any, str, str]] = [
        (("inpainting", {"image": PHOTO, "mask": to_media(Image.new("L", (16, 32), 255)), "text": "a"}, "tiny/sd"), {},
         "mask", "16 x 32"),
        (("inpainting", {"image": PHOTO, "mask": to_media(Image.new("L", (SIDE, SIDE))), "text": "a"}, "tiny/sd"), {},
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
        (("image-to-image", {"image": to_media(gradient(400, 2)), "instruction": "a"}, "tiny/sd"),
         {}, "image", "narrow"),
        (("image-to-image", {"image": Media(b"no", "image/png", "x.png"), "instruction": "a"}, "tiny/editor"), {},
         "image", "not a supported image"),
        (("image-super-resolution", {"image": PHOTO}, "tiny/swin2sr"), {"scale": 3},
         "parameters.scale", "2 times at most"),
        (("image-super-resolution", {"image": to_media(gradient(600, 600))}, "tiny/upscaler"),
         {}, "image", "600 x 600"),
]  # fmt: skip


async def test_invalid_call_error_names_port_and_reason(tiny_models: TinyModels) -> None:
    async with tiny_models.serve("diffusion") as expert:
        for arguments, parameters, port, message in INVALID_CALLS:
            error = await expert.call_error(*arguments, **parameters)
            assert isinstance(error, errors.InvalidRequest), message
            assert error.port == port, error.message
            assert message in error.message
            assert error.remedy


async def test_cancelled_generation_stops_between_steps(tiny_models: TinyModels) -> None:
    """The next call succeeds long before two hundred large steps would be complete."""
    async with tiny_models.serve("diffusion") as expert, asyncio.timeout(30):
        await expert.call("text-to-image", {"text": "a"}, "tiny/sd", **STEPS)
        request = pb.InferRequest(task="text-to-image", model="tiny/sd", call_id="long")
        request.inputs["text"].text = "a castle"
        request.parameters_json = '{"num_inference_steps": 200, "width": 512, "height": 512}'
        with call_context.use_caller(Caller(tenant=TENANT)):
            call: Any = expert.stub.Infer(request, timeout=60, metadata=call_context.metadata())
        step = await _first_step_message(expert)
        call.cancel()
        await expert.call("text-to-image", {"text": "a"}, "tiny/sd", **STEPS)
    assert step.endswith("of 200")


async def _first_step_message(expert: ExpertClient) -> str:
    """Returns the first progress message of the call that reports a step."""
    while True:  # the call may not have started yet
        watch: Any = expert.stub.Progress(pb.ProgressRequest(call_ids=["long"]), timeout=30)
        async for event in watch:
            if event.message.startswith("step "):
                watch.cancel()
                return str(event.message)

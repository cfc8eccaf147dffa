"""Batches of diffusers pipelines: an item has the same result alone and in a batch, and may leave it."""

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from PIL import Image

from experts.diffusion.controlnet import map_text_to_image
from experts.diffusion.image_to_image import image_to_image
from experts.diffusion.inpainting import inpainting
from experts.diffusion.super_resolution import image_super_resolution
from experts.diffusion.text_to_image import text_to_image
from experts.host.active_calls import ActiveCalls, BatchCall
from experts.host.handler import Handler, Inputs, Media, Parameters
from experts.host.load_context import FilesFetched
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.pipelines import MAX_BATCH_ITEMS, PipelineHandler, PipelineItem, use_channels_last
from experts.video.generation import image_to_video, text_to_video
from tests.tiny import TinyModels

# diffusers asks torch for TorchScript when it is imported; its schedulers pass tensors to numpy.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning"),
]

TOLERANCE = 1 / 255
"""One level of a picture's 8 bits."""


def picture(shade: int, side: int = 32) -> Media:
    buffer = io.BytesIO()
    pixels = np.linspace(shade, 255, side * side * 3, dtype=np.uint8).reshape(side, side, 3)
    Image.fromarray(pixels).save(buffer, "PNG")
    return Media(buffer.getvalue(), "image/png", "photo.png")


MASK = picture(100)
TEXTS = ("a castle", "an owl", "trees by a lake")


def texts(port: str = "text", **media: Callable[[int], Media]) -> list[Inputs]:
    """Returns an input per text, with a different picture on each of the other ports."""
    return [
        {port: text, **{name: make(40 * number) for name, make in media.items()}} for number, text in enumerate(TEXTS)
    ]


Case = tuple[str, Callable[[str, str], Handler], str, list[Inputs]]

CASES: list[Case] = [
    ("diffusion", text_to_image, "tiny/sd", texts()),
    ("diffusion", text_to_image, "tiny/lcm", texts()),
    ("diffusion", text_to_image, "tiny/sdxl", texts()),
    ("diffusion", image_to_image, "tiny/sd", texts("instruction", image=picture)),
    ("diffusion", image_to_image, "tiny/sdxl", texts("instruction", image=picture)),
    ("diffusion", image_to_image, "tiny/editor", texts("instruction", image=picture)),
    ("diffusion", inpainting, "tiny/sd", texts(image=picture, mask=lambda _: MASK)),
    ("diffusion", inpainting, "tiny/sdxl", texts(image=picture, mask=lambda _: MASK)),
    ("diffusion", inpainting, "tiny/inpainter", texts(image=picture, mask=lambda _: MASK)),
    ("diffusion", image_super_resolution, "tiny/upscaler", texts(image=picture)),
    ("diffusion", map_text_to_image, "tiny/controlnet", texts(image=picture)),
    ("video", text_to_video, "tiny/director", texts()),
    ("video", image_to_video, "tiny/animator", texts(image=lambda shade: picture(shade, 64))),
]


def prepare(handler: Handler, inputs: Sequence[Inputs], **parameters: Any) -> list[PipelineItem]:
    """Prepares the inputs with four steps and a different seed for each."""
    shared: Parameters = {"num_inference_steps": 4, **parameters}
    return [handler.prepare(values, {**shared, "seed": seed}) for seed, values in enumerate(inputs)]


def pixels_of(raws: Sequence[Any]) -> list[Any]:
    """Returns the pixels of pictures or videos."""
    return [np.asarray(raw[0] if isinstance(raw, tuple) else raw.pixels, dtype=np.float32) for raw in raws]


@pytest.fixture
async def calls() -> ActiveCalls:
    return ActiveCalls()


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[1].__name__} {case[2]}")
async def test_result_in_a_batch_equals_that_of_a_single_call(
    tiny_models: TinyModels, calls: ActiveCalls, case: Case
) -> None:
    modality, loader, model, inputs = case
    tiny_models.build(modality, model)
    handler: Handler = loader(model, "cpu")
    items = prepare(handler, inputs)
    assert len({handler.batch_key(item, {}) for item in items}) == 1
    with calls.track("", "") as call:
        alone = [pixels_of(handler.run([item], call))[0] for item in items]
        together = pixels_of(handler.run(items, call))
    assert len(together) == len(items)
    for one, other in zip(alone, together, strict=True):
        assert np.abs(one - other).max() < TOLERANCE


@pytest.fixture(scope="module")
def painter(tiny_models: TinyModels) -> PipelineHandler:
    tiny_models.build("diffusion", "tiny/sd")
    handler = text_to_image("tiny/sd", "cpu")
    assert isinstance(handler, PipelineHandler)
    return handler


async def test_negative_prompts_are_applied_per_item(painter: PipelineHandler, calls: ActiveCalls) -> None:
    items = [
        painter.prepare({"text": "a castle"}, {"num_inference_steps": 2, "seed": 1, "negative_prompt": negative})
        for negative in ("rain", "a green forest")
    ]
    with calls.track("", "") as call:
        alone = pixels_of([painter.run([item], call)[0] for item in items])
        together = pixels_of(painter.run(items, call))
    assert np.abs(together[0] - together[1]).max() > TOLERANCE
    for one, other in zip(alone, together, strict=True):
        assert np.abs(one - other).max() < TOLERANCE


@pytest.mark.parametrize(
    "parameters",
    [{"num_inference_steps": 3}, {"guidance_scale": 3.0}, {"width": 64, "height": 32}, {"negative_prompt": "rain"}],
)
def test_calls_with_other_settings_do_not_share_a_batch(painter: PipelineHandler, parameters: Parameters) -> None:
    one, other = prepare(painter, texts()[:1])[0], prepare(painter, texts()[:1], **parameters)[0]
    assert painter.batch_key(one, {}) != painter.batch_key(other, {})


def test_pictures_of_different_sizes_do_not_share_a_batch(tiny_models: TinyModels) -> None:
    tiny_models.build("diffusion", "tiny/upscaler")
    handler = image_super_resolution("tiny/upscaler", "cpu")
    small, large = (handler.prepare({"image": picture(0, side)}, {}) for side in (16, 32))
    assert handler.batch_key(small, {}) != handler.batch_key(large, {})


async def test_batch_stops_only_when_all_its_callers_have_left(painter: PipelineHandler, calls: ActiveCalls) -> None:
    with calls.track("", "1") as first, calls.track("", "2") as second:
        batch = BatchCall([first, second])
        first.end()
        assert len(painter.run(prepare(painter, texts()[:2]), batch)) == 2
        assert second.latest_progress.message == "step 4 of 4"
        second.end()
        assert painter.run(prepare(painter, texts()[:2]), batch) == []


def test_cost_is_pixels_times_steps(painter: PipelineHandler) -> None:
    item = prepare(painter, texts()[:1], width=64, height=32)[0]
    assert painter.cost(item) == 64 * 32 * 4


def test_budget_is_a_few_pictures_of_the_training_size(painter: PipelineHandler) -> None:
    default = painter.prepare({"text": "a castle"}, {})
    assert painter.batching.budget == MAX_BATCH_ITEMS * painter.cost(default)


def test_unverified_pipeline_runs_one_call_at_a_time(painter: PipelineHandler) -> None:
    class UnknownPipeline(type(painter.model)):  # type: ignore[misc]
        pass

    pipeline = UnknownPipeline(**painter.model.components, requires_safety_checker=False)
    checkpoint = Checkpoint("tiny/unknown", Path(), "", torch.device("cpu"), torch.float32)
    assert type(painter)(checkpoint, pipeline).batching.items == 1


@pytest.mark.parametrize("loader", [text_to_image, text_to_video])
def test_16_bit_files_are_preferred_on_a_gpu(loader: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fetch = Mock(side_effect=FilesFetched)
    monkeypatch.setattr(Checkpoint, "fetch", fetch)
    with pytest.raises(FilesFetched):
        loader("tiny/sd", "cuda:0")
    assert fetch.call_args.kwargs == {"variant": "fp16"}


def test_channels_last_applies_to_2d_convolutions_only() -> None:
    flat, solid = torch.nn.Conv2d(4, 8, 3), torch.nn.Conv3d(8, 8, 3)
    use_channels_last(torch.nn.Sequential(flat, solid, torch.nn.Linear(8, 8)))
    assert flat.weight.is_contiguous(memory_format=torch.channels_last)
    assert solid.weight.is_contiguous()


def test_channels_last_ignores_components_without_weights() -> None:
    use_channels_last(None)

"""Text to video and image to video over gRPC: results equal those of the pipeline called directly."""

import asyncio
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from experts.host import load_context
from experts.host.handler import Media
from experts.host.load_context import LoadContext, PipelineOptions
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.pipelines import CallCancelledError, ProgressBar
from experts.video import generation
from experts.video.frames import encode_video
from experts.video.generation import VideoGenerator
from services.common.errors import InvalidRequest
from tests.tiny import TinyModels
from tests.tiny.reference_video import generate_from_image, generate_from_text
from tests.tiny.video_files import RED, decode_frames, solid_frame

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning"),
]
"""Schedulers of diffusers pass tensors to numpy."""

GENERATE, ANIMATE = "text-to-video", "image-to-video"
PARAMETERS: dict[str, Any] = {"num_inference_steps": 2, "seed": 5}


def _picture(width: int = 64, height: int = 64) -> Media:
    buffer = io.BytesIO()
    Image.fromarray(solid_frame(RED, width, height)).save(buffer, "PNG")
    return Media(buffer.getvalue(), "image/png", "cat.png")


class RunningCall:
    cancelled = False

    def progress(self, fraction: float, message: str = "") -> None:
        """Ignores progress."""


def _encode_and_decode(frames: Any, rate: float) -> Any:
    """Returns the frames after encoding and decoding."""
    return decode_frames(encode_video((frames * 255).round().astype(np.uint8), rate, "video"))[0]


async def test_video_has_the_frames_of_the_direct_pipeline(tiny_models: TinyModels) -> None:
    async with tiny_models.serve("video") as expert:
        outputs = await expert.call(GENERATE, {"text": "a panda surfing"}, num_frames=3, **PARAMETERS)
    frames, rate = decode_frames(outputs["video"])
    expected = await asyncio.to_thread(
        generate_from_text, tiny_models.build("video", "tiny/director"), "a panda surfing"
    )
    assert outputs["video"].media_type == "video/mp4"
    assert outputs["video"].name == "video.mp4"
    assert len(frames) == 3
    assert rate == 8.0
    assert frames[0].shape == (16, 16, 3)
    assert np.array_equal(frames, _encode_and_decode(expected, 8.0))


async def test_video_depends_on_the_seed(tiny_models: TinyModels) -> None:
    async with tiny_models.serve("video") as expert:
        inputs: Any = {"text": "a panda surfing"}
        first, again = [await expert.call(GENERATE, inputs, num_frames=2, **PARAMETERS) for _ in range(2)]
        other = await expert.call(GENERATE, inputs, num_frames=2, num_inference_steps=2, seed=6)
    assert first == again != other


async def test_image_to_video_keeps_the_aspect_ratio(tiny_models: TinyModels) -> None:
    async with tiny_models.serve("video") as expert:
        outputs = await expert.call(ANIMATE, {"image": _picture(), "text": "slowly"}, num_frames=3, **PARAMETERS)
        tall = await expert.call(ANIMATE, {"image": _picture(100, 200)}, num_frames=2, **PARAMETERS)
    frames, rate = decode_frames(outputs["video"])
    expected = await asyncio.to_thread(
        generate_from_image, tiny_models.build("video", "tiny/animator"), _picture().content
    )
    assert outputs["video"].name == "cat-video.mp4"
    assert len(frames) == 3
    assert rate == 7.0
    assert frames[0].shape == (64, 64, 3)
    assert np.array_equal(frames, _encode_and_decode(expected, 7.0))
    height, width, _ = decode_frames(tall["video"])[0][0].shape
    assert height > width


async def test_default_number_of_frames_is_the_models(tiny_models: TinyModels) -> None:
    async with tiny_models.serve("video") as expert:
        outputs = await expert.call(ANIMATE, {"image": _picture()}, **PARAMETERS)
    assert len(decode_frames(outputs["video"])[0]) == 4


async def test_invalid_call_error_names_the_port(tiny_models: TinyModels) -> None:
    async with tiny_models.serve("video") as expert:
        empty = await expert.call_error(GENERATE, {"text": "  "})
        broken = await expert.call_error(ANIMATE, {"image": Media(b"no picture", "image/png", "no.png")})
        number = await expert.call_error(GENERATE, {"text": "a panda"}, num_frames=0)
    assert isinstance(empty, InvalidRequest)
    assert empty.port == "text"
    assert isinstance(broken, InvalidRequest)
    assert broken.port == "image"
    assert "num_frames" in number.message


@pytest.mark.parametrize("side", [1, 3])
async def test_tiny_picture_is_animated(tiny_models: TinyModels, side: int) -> None:
    async with tiny_models.serve("video") as expert:
        outputs = await expert.call(ANIMATE, {"image": _picture(side, side)}, num_frames=2, num_inference_steps=1)
        error = await expert.call_error(ANIMATE, {"image": _picture(side, side)}, num_frames=1)
    assert len(decode_frames(outputs["video"])[0]) == 2
    assert "does not move" in error.message


def test_frames_are_decoded_in_the_chunks_of_the_card(tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_models.build("video", "tiny/animator")
    card = PipelineOptions({"decode_chunk_size": 2})
    with load_context.use(LoadContext(pipeline=card)):
        handler: Any = generation.image_to_video("tiny/animator", "cpu")
    counts, decode = list[int](), handler.model.vae.decoder.forward

    def record(latents: Any, **options: Any) -> Any:
        counts.append(len(latents))
        return decode(latents, **options)

    monkeypatch.setattr(handler.model.vae.decoder, "forward", record)
    item = handler.prepare({"image": _picture()}, {"num_frames": 4, "num_inference_steps": 1})
    handler.run([item], RunningCall())
    assert counts == [2, 2]


@pytest.mark.parametrize(
    ("task", "inputs", "kind"),
    [
        (generation.text_to_video, {"text": "a cat"}, "WanPipeline"),
        (generation.image_to_video, {"text": "a cat", "image": _picture(128, 64)}, "WanImageToVideoPipeline"),
    ],
)
def test_wan_for_texts_and_pictures_serves_both_tasks(
    tiny_models: TinyModels, task: Any, inputs: dict[str, Any], kind: str
) -> None:
    tiny_models.build("video", "tiny/wan")
    card = PipelineOptions({"height": 128, "width": 128}, frames_per_second=24.0)
    with load_context.use(LoadContext(pipeline=card)):
        handler: Any = task("tiny/wan", "cpu")
    item = handler.prepare(inputs, {"num_frames": 5, "num_inference_steps": 1, "seed": 1})
    ((frames, name),) = handler.run([item], RunningCall())
    assert type(handler.model).__name__ == kind
    assert frames.shape[1] / frames.shape[2] == (96 / 192 if "image" in inputs else 1)
    assert decode_frames(handler.finish((frames, name))["video"])[1] == 24.0


def test_i2vgen_video_plays_at_the_rate_that_the_model_was_conditioned_on() -> None:
    class I2VGenXLPipeline:
        def __call__(
            self, image: Any, target_fps: int = 16, num_frames: int = 16, num_inference_steps: int = 50
        ) -> Any:
            raise NotImplementedError

    checkpoint = Checkpoint("ali-vilab/i2vgen-xl", Path(), "", torch.device("cpu"), torch.float32)
    outputs = VideoGenerator(checkpoint, I2VGenXLPipeline()).finish((np.zeros((2, 16, 16, 3), np.float32), "video"))
    assert decode_frames(outputs["video"])[1] == 16.0


def test_wan_decodes_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    class WanPipeline:
        vae = torch.nn.Conv3d(1, 1, 1, dtype=torch.bfloat16)

        def __call__(self, prompt: str, num_frames: int = 81, num_inference_steps: int = 50) -> Any:
            raise NotImplementedError

    checkpoint = Checkpoint("Wan-AI/Wan", Path(), "", torch.device("cpu"), torch.bfloat16)
    monkeypatch.setattr(generation, "fetch_pipeline", lambda *_: checkpoint)
    monkeypatch.setattr(generation, "load_pipeline", lambda *_: WanPipeline())
    generation.text_to_video("Wan-AI/Wan", "cpu")
    assert WanPipeline.vae.weight.dtype == torch.float32


def test_progress_bar_raises_for_a_cancelled_call() -> None:
    class CancelledCall:
        cancelled = True

        def progress(self, fraction: float, message: str = "") -> None:
            assert fraction == 0.5

    with pytest.raises(CallCancelledError), ProgressBar(CancelledCall(), total=2) as bar:
        bar.update()

import asyncio
import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from experts.host.handler import Media
from experts.video.frames import written
from experts.video.generation import Steps, StoppedError
from services.common.errors import InvalidRequest
from tests.tiny import Tiny
from tests.tiny.films import RED, plain, seen
from tests.tiny.screened import animated, directed

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning"),
]
"""Schedulers of diffusers hand tensors to numpy."""

DIRECT, ANIMATE = "text-to-video", "image-to-video"
QUICK: dict[str, Any] = {"num_inference_steps": 2, "seed": 5}


def _picture(width: int = 64, height: int = 64) -> Media:
    buffer = io.BytesIO()
    Image.fromarray(plain(RED, width, height)).save(buffer, "PNG")
    return Media(buffer.getvalue(), "image/png", "cat.png")


def _shown(frames: Any, rate: float) -> Any:
    """What is left of the frames when they have been a video."""
    return seen(written((frames * 255).round().astype(np.uint8), rate, "video"))[0]


async def test_a_video_has_the_frames_that_the_pipeline_itself_makes(tiny: Tiny) -> None:
    async with tiny.expert("video") as expert:
        out = await expert.ask(DIRECT, {"text": "a panda surfing"}, num_frames=3, **QUICK)
    frames, rate = seen(out["video"])
    expected = await asyncio.to_thread(directed, tiny.built("video", "tiny/director"), "a panda surfing")
    assert (out["video"].media_type, out["video"].name) == ("video/mp4", "video.mp4")
    assert (len(frames), rate, frames[0].shape) == (3, 8.0, (16, 16, 3))
    assert np.array_equal(frames, _shown(expected, 8.0))


async def test_a_video_hangs_on_its_seed_and_its_words(tiny: Tiny) -> None:
    async with tiny.expert("video") as expert:
        asked: Any = {"text": "a panda surfing"}
        first, again = [await expert.ask(DIRECT, asked, num_frames=2, **QUICK) for _ in range(2)]
        other = await expert.ask(DIRECT, asked, num_frames=2, num_inference_steps=2, seed=6)
    assert first == again != other


async def test_a_picture_is_set_in_motion_in_its_own_shape(tiny: Tiny) -> None:
    async with tiny.expert("video") as expert:
        out = await expert.ask(ANIMATE, {"image": _picture(), "text": "slowly"}, num_frames=3, **QUICK)
        tall = await expert.ask(ANIMATE, {"image": _picture(100, 200)}, num_frames=2, **QUICK)
    frames, rate = seen(out["video"])
    expected = await asyncio.to_thread(animated, tiny.built("video", "tiny/animator"), _picture().content)
    assert out["video"].name == "cat-video.mp4"
    assert (len(frames), rate, frames[0].shape) == (3, 7.0, (64, 64, 3))
    assert np.array_equal(frames, _shown(expected, 7.0))
    height, width, _ = seen(tall["video"])[0][0].shape
    assert height > width


async def test_without_a_number_the_model_makes_as_many_frames_as_it_was_taught_with(tiny: Tiny) -> None:
    async with tiny.expert("video") as expert:
        out = await expert.ask(ANIMATE, {"image": _picture()}, **QUICK)
    assert len(seen(out["video"])[0]) == 4


async def test_what_cannot_be_filmed_is_refused_by_port(tiny: Tiny) -> None:
    async with tiny.expert("video") as expert:
        empty = await expert.refusal(DIRECT, {"text": "  "})
        broken = await expert.refusal(ANIMATE, {"image": Media(b"no picture", "image/png", "no.png")})
        number = await expert.refusal(DIRECT, {"text": "a panda"}, num_frames=0)
    assert [(type(error), error.port) for error in (empty, broken)] == [
        (InvalidRequest, "text"),
        (InvalidRequest, "image"),
    ]
    assert "num_frames" in number.message


@pytest.mark.parametrize("side", [1, 3])
async def test_the_smallest_picture_moves_too(tiny: Tiny, side: int) -> None:
    async with tiny.expert("video") as expert:
        out = await expert.ask(ANIMATE, {"image": _picture(side, side)}, num_frames=2, num_inference_steps=1)
        still = await expert.refusal(ANIMATE, {"image": _picture(side, side)}, num_frames=1)
    assert len(seen(out["video"])[0]) == 2
    assert "does not move" in still.message


def test_nobody_waits_for_a_video_any_more() -> None:
    class Gone:
        cancelled = True

        def progress(self, fraction: float, message: str = "") -> None:
            assert fraction == 0.5

    with pytest.raises(StoppedError), Steps.counted(Gone())(total=2) as bar:
        bar.update()

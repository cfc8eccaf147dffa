"""Invalid inputs and parameters of the video expert: errors name the port, and the next call succeeds."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from experts.host.handler import Media
from tests.tiny import ExpertClient, TinyModels
from tests.tiny.image_files import solid_image, to_media
from tests.tiny.video_files import BLUE, RED, encode_frames, solid_frame, video_without_frames

CLASSIFY, DESCRIBE, GENERATE, ANIMATE = "video-classification", "video-to-text", "text-to-video", "image-to-video"
VIDEO = {"video": encode_frames([solid_frame(RED)] * 5)}
PROMPT = {"text": "a panda surfing"}
PICTURE = {"image": to_media(solid_image("red"))}
HUGE = Media(b"P4\n20000 20000\n" + bytes(64), "image/x-portable-bitmap", "huge.pbm")

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def expert(tiny_models: TinyModels) -> AsyncIterator[ExpertClient]:
    async with tiny_models.serve("video") as expert:
        yield expert


async def _check_next_call(expert: ExpertClient) -> None:
    """Checks that a valid call succeeds after the invalid one."""
    assert (await expert.call(CLASSIFY, VIDEO))["text"] == "red"


@pytest.mark.parametrize(
    ("task", "inputs", "port"),
    [
        (CLASSIFY, {"film": VIDEO["video"]}, "film"),
        (CLASSIFY, {}, "video"),
        (CLASSIFY, {"video": "some words"}, "video"),
        (CLASSIFY, {"video": PICTURE["image"]}, "video"),
        (CLASSIFY, {"video": video_without_frames()}, "video"),
        (DESCRIBE, {"video": video_without_frames("avi")}, "video"),
        (DESCRIBE, {"video": Media(b"\x1aE\xdf\xa3 no film", "video/webm", "a.webm")}, "video"),
        (GENERATE, {"text": "\t"}, "text"),
        (GENERATE, {"text": "panda " * 1000}, "text"),
        (GENERATE, {"text": PICTURE["image"]}, "text"),
        (ANIMATE, {"image": VIDEO["video"]}, "image"),
        (ANIMATE, {"image": HUGE}, "image"),
    ],
    ids=range(12),
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
        (CLASSIFY, VIDEO, {"top_k": 101}, "top_k"),
        (CLASSIFY, VIDEO, {"frames": 8}, "no parameter frames"),
        (DESCRIBE, VIDEO, {"max_new_tokens": 0}, "max_new_tokens"),
        (GENERATE, PROMPT, {"num_frames": 1001}, "num_frames"),
        (GENERATE, PROMPT, {"num_inference_steps": 0}, "num_inference_steps"),
        (GENERATE, PROMPT, {"guidance_scale": -1}, "guidance_scale"),
        (GENERATE, PROMPT, {"seed": 2**53}, "seed"),
        (ANIMATE, PICTURE, {"guidance_scale": 3}, "no parameter guidance_scale"),
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
    error = await expert.call_error(CLASSIFY, VIDEO, "unknown/model")
    assert error.code.name == "NOT_FOUND"
    assert error.reason == "MODEL"
    assert "unknown/model" in error.message
    await _check_next_call(expert)


async def test_invalid_call_does_not_affect_its_batch(expert: ExpertClient) -> None:
    valid_calls = [
        expert.call(CLASSIFY, {"video": encode_frames([solid_frame(colour)] * 5)}, top_k=1)
        for colour in (RED, BLUE, RED)
    ]
    invalid_call = expert.call_error(CLASSIFY, {"video": video_without_frames()}, top_k=1)
    results, error = await asyncio.gather(asyncio.gather(*valid_calls), invalid_call)
    first, second, third = [outputs["text"] for outputs in results]
    assert first == third == "red" != second
    assert error.port == "video"

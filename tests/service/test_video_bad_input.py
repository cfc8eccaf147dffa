"""Videos, pictures and words that cannot be taken are refused by name, and the next ones are answered."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from experts.host.handler import Media
from tests.tiny import Served, Tiny
from tests.tiny.films import BLUE, RED, filmed, plain, silent_film
from tests.tiny.pictures import plain as picture
from tests.tiny.pictures import sent

CLASS, TELL, DIRECT, ANIMATE = "video-classification", "video-to-text", "text-to-video", "image-to-video"
GOOD = {"video": filmed([plain(RED)] * 5)}
SCENE = {"text": "a panda surfing"}
STILL = {"image": sent(picture("red"))}
HUGE = Media(b"P4\n20000 20000\n" + bytes(64), "image/x-portable-bitmap", "huge.pbm")

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def expert(tiny: Tiny) -> AsyncIterator[Served]:
    async with tiny.expert("video") as expert:
        yield expert


async def _goes_on(expert: Served) -> None:
    assert (await expert.ask(CLASS, GOOD))["text"] == "red"


@pytest.mark.parametrize(
    ("task", "inputs", "port"),
    [
        (CLASS, {"film": GOOD["video"]}, "film"),
        (CLASS, {}, "video"),
        (CLASS, {"video": "some words"}, "video"),
        (CLASS, {"video": STILL["image"]}, "video"),
        (CLASS, {"video": silent_film()}, "video"),
        (TELL, {"video": silent_film("avi")}, "video"),
        (TELL, {"video": Media(b"\x1aE\xdf\xa3 no film", "video/webm", "a.webm")}, "video"),
        (DIRECT, {"text": "\t"}, "text"),
        (DIRECT, {"text": "panda " * 1000}, "text"),
        (DIRECT, {"text": STILL["image"]}, "text"),
        (ANIMATE, {"image": GOOD["video"]}, "image"),
        (ANIMATE, {"image": HUGE}, "image"),
    ],
    ids=range(12),
)
async def test_what_is_not_for_a_port_is_refused_by_it(expert: Served, task: str, inputs: Any, port: str) -> None:
    error = await expert.refusal(task, inputs)
    assert (error.code.name, error.port, bool(error.remedy)) == ("INVALID_ARGUMENT", port, True)
    await _goes_on(expert)


@pytest.mark.parametrize(
    ("task", "inputs", "parameters", "said"),
    [
        (CLASS, GOOD, {"top_k": 101}, "top_k"),
        (CLASS, GOOD, {"frames": 8}, "no parameter frames"),
        (TELL, GOOD, {"max_new_tokens": 0}, "max_new_tokens"),
        (DIRECT, SCENE, {"num_frames": 1001}, "num_frames"),
        (DIRECT, SCENE, {"num_inference_steps": 0}, "num_inference_steps"),
        (DIRECT, SCENE, {"guidance_scale": -1}, "guidance_scale"),
        (DIRECT, SCENE, {"seed": 2**53}, "seed"),
        (ANIMATE, STILL, {"guidance_scale": 3}, "no parameter guidance_scale"),
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
    error = await expert.refusal(CLASS, GOOD, "nobody/nothing")
    assert (error.code.name, error.reason, "nobody/nothing" in error.message) == ("NOT_FOUND", "MODEL", True)
    await _goes_on(expert)


async def test_bad_input_harms_nobody_in_its_batch(expert: Served) -> None:
    good = [expert.ask(CLASS, {"video": filmed([plain(colour)] * 5)}, top_k=1) for colour in (RED, BLUE, RED)]
    bad = expert.refusal(CLASS, {"video": silent_film()}, top_k=1)
    answered, refused = await asyncio.gather(asyncio.gather(*good), bad)
    first, second, third = [one["text"] for one in answered]
    assert first == third == "red" != second
    assert refused.port == "video"

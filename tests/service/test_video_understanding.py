"""Video classification and captioning over gRPC."""

import asyncio
from typing import Any

import numpy as np
import pytest

from experts.host.handler import Media
from services.common.errors import InvalidRequest
from tests.tiny import Tiny
from tests.tiny.films import BLUE, GREEN, RED, filmed, plain, silent_film
from tests.tiny.sounds import LOW, m4a, tone
from tests.tiny.video import CAPTION, LABELS, lessons

pytestmark = pytest.mark.slow

CLASSIFY, DESCRIBE = "video-classification", "video-to-text"


def _make_video(label: str, length: int = 20, **options: Any) -> Media:
    """Returns a longer video of the clip with which the classifier was trained."""
    clip = lessons()[LABELS.index(label)]
    return filmed([clip[at * 4 // length] for at in range(length)], **options)


@pytest.mark.parametrize("label", LABELS)
async def test_video_is_classified(tiny: Tiny, label: str) -> None:
    async with tiny.expert("video") as expert:
        outputs = await expert.ask(CLASSIFY, {"video": _make_video(label)})
    assert outputs["text"] == outputs["labels"][0]["label"] == label
    assert outputs["labels"][0]["score"] > 0.8
    assert len(outputs["labels"]) == len(LABELS)


@pytest.mark.parametrize(
    ("kind", "codec"),
    [("mp4", "libx264"), ("webm", "libvpx-vp9"), ("matroska", "mpeg4"), ("avi", "mjpeg"), ("mov", "libx264")],
)
async def test_any_container_and_codec_is_decoded(tiny: Tiny, kind: str, codec: str) -> None:
    async with tiny.expert("video") as expert:
        outputs = await expert.ask(CLASSIFY, {"video": _make_video("turning blue", kind=kind, codec=codec)}, top_k=1)
    assert [label["label"] for label in outputs["labels"]] == ["turning blue"]


async def test_batched_videos_have_the_scores_of_single_calls(tiny: Tiny) -> None:
    videos = [_make_video(label) for label in LABELS]
    async with tiny.expert("video") as expert:
        alone = [await expert.ask(CLASSIFY, {"video": video}) for video in videos]
        together = await asyncio.gather(*(expert.ask(CLASSIFY, {"video": video}) for video in videos))
    assert together == alone


async def test_single_frame_video_is_classified(tiny: Tiny) -> None:
    async with tiny.expert("video") as expert:
        assert (await expert.ask(CLASSIFY, {"video": filmed([plain(RED)])}))["text"] == "red"


async def test_video_is_described(tiny: Tiny) -> None:
    async with tiny.expert("video") as expert:
        red, blue = filmed([plain(RED)] * 30), filmed([plain(BLUE)] * 5, kind="webm", codec="libvpx-vp9")
        captions = await asyncio.gather(*(expert.ask(DESCRIBE, {"video": video}) for video in (red, blue)))
        short = await expert.ask(DESCRIBE, {"video": red}, max_new_tokens=2)
    assert [outputs["text"] for outputs in captions] == [CAPTION, "a blue sky"]
    assert short["text"] == "a red"


@pytest.mark.parametrize(
    ("media", "message"),
    [
        (Media(b"\x00\x00\x00\x18ftypmp42 and no more", "video/mp4", "broken.mp4"), "broken.mp4"),
        (Media(m4a(tone(LOW), 16_000).content, "video/mp4", "song.mp4"), "only sound"),
        (silent_film(), "without frames"),
        (silent_film("avi"), "without frames"),
        (Media(filmed([plain(GREEN)] * 20).content[:200], "video/mp4", "cut.mp4"), "cut.mp4"),
        (Media(b"", "video/mp4", "nothing.mp4"), "is empty"),
    ],
)
async def test_invalid_video_error_names_the_port(tiny: Tiny, media: Media, message: str) -> None:
    async with tiny.expert("video") as expert:
        error = await expert.refusal(CLASSIFY, {"video": media})
        assert isinstance(error, InvalidRequest)
        assert error.port == "video"
        assert message in error.message
        assert (await expert.ask(CLASSIFY, {"video": _make_video("red")}))["text"] == "red"


async def test_noise_is_classified_without_error(tiny: Tiny) -> None:
    frames = list(np.random.default_rng(0).integers(0, 256, (12, 48, 64, 3), dtype=np.uint8))
    async with tiny.expert("video") as expert:
        outputs = await expert.ask(CLASSIFY, {"video": filmed(frames)})
    assert sum(label["score"] for label in outputs["labels"]) == pytest.approx(1, abs=1e-3)

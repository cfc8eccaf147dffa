"""Video classification and captioning over gRPC."""

import asyncio
from typing import Any

import numpy as np
import pytest

from experts.host.handler import Media
from services.common.errors import InvalidRequest
from tests.tiny import TinyModels
from tests.tiny.audio_files import LOW, encode_m4a, make_tone
from tests.tiny.video import CAPTION, LABELS, make_clips
from tests.tiny.video_files import BLUE, GREEN, RED, encode_frames, solid_frame, video_without_frames

pytestmark = pytest.mark.slow

CLASSIFY, DESCRIBE = "video-classification", "video-to-text"


def _make_video(label: str, length: int = 20, **options: Any) -> Media:
    """Returns a longer video of the clip with which the classifier was trained."""
    clip = make_clips()[LABELS.index(label)]
    return encode_frames([clip[at * 4 // length] for at in range(length)], **options)


@pytest.mark.parametrize("model", ["tiny/videomae", "tiny/vjepa2"])
@pytest.mark.parametrize("label", LABELS)
async def test_video_is_classified(tiny_models: TinyModels, label: str, model: str) -> None:
    async with tiny_models.serve("video") as expert:
        outputs = await expert.call(CLASSIFY, {"video": _make_video(label)}, model)
    assert outputs["text"] == outputs["labels"][0]["label"] == label
    assert outputs["labels"][0]["score"] > 0.8
    assert len(outputs["labels"]) == len(LABELS)


@pytest.mark.parametrize(
    ("kind", "codec"),
    [("mp4", "libx264"), ("webm", "libvpx-vp9"), ("matroska", "mpeg4"), ("avi", "mjpeg"), ("mov", "libx264")],
)
async def test_any_container_and_codec_is_decoded(tiny_models: TinyModels, kind: str, codec: str) -> None:
    async with tiny_models.serve("video") as expert:
        outputs = await expert.call(CLASSIFY, {"video": _make_video("turning blue", kind=kind, codec=codec)}, top_k=1)
    assert [label["label"] for label in outputs["labels"]] == ["turning blue"]


async def test_batched_videos_have_the_scores_of_single_calls(tiny_models: TinyModels) -> None:
    videos = [_make_video(label) for label in LABELS]
    async with tiny_models.serve("video") as expert:
        alone = [await expert.call(CLASSIFY, {"video": video}) for video in videos]
        together = await asyncio.gather(*(expert.call(CLASSIFY, {"video": video}) for video in videos))
    assert together == alone


async def test_single_frame_video_is_classified(tiny_models: TinyModels) -> None:
    async with tiny_models.serve("video") as expert:
        assert (await expert.call(CLASSIFY, {"video": encode_frames([solid_frame(RED)])}))["text"] == "red"


async def test_video_is_described(tiny_models: TinyModels) -> None:
    async with tiny_models.serve("video") as expert:
        red, blue = (
            encode_frames([solid_frame(RED)] * 30),
            encode_frames([solid_frame(BLUE)] * 5, kind="webm", codec="libvpx-vp9"),
        )
        captions = await asyncio.gather(*(expert.call(DESCRIBE, {"video": video}) for video in (red, blue)))
        short = await expert.call(DESCRIBE, {"video": red}, max_new_tokens=2)
    assert [outputs["text"] for outputs in captions] == [CAPTION, "a blue sky"]
    assert short["text"] == "a red"


@pytest.mark.parametrize(
    ("media", "message"),
    [
        (Media(b"\x00\x00\x00\x18ftypmp42 and no more", "video/mp4", "broken.mp4"), "broken.mp4"),
        (Media(encode_m4a(make_tone(LOW), 16_000).content, "video/mp4", "song.mp4"), "only sound"),
        (video_without_frames(), "without frames"),
        (video_without_frames("avi"), "without frames"),
        (Media(encode_frames([solid_frame(GREEN)] * 20).content[:200], "video/mp4", "cut.mp4"), "cut.mp4"),
        (Media(b"", "video/mp4", "nothing.mp4"), "is empty"),
    ],
)
async def test_invalid_video_error_names_the_port(tiny_models: TinyModels, media: Media, message: str) -> None:
    async with tiny_models.serve("video") as expert:
        error = await expert.call_error(CLASSIFY, {"video": media})
        assert isinstance(error, InvalidRequest)
        assert error.port == "video"
        assert message in error.message
        assert (await expert.call(CLASSIFY, {"video": _make_video("red")}))["text"] == "red"


async def test_noise_is_classified_without_error(tiny_models: TinyModels) -> None:
    frames = list(np.random.default_rng(0).integers(0, 256, (12, 48, 64, 3), dtype=np.uint8))
    async with tiny_models.serve("video") as expert:
        outputs = await expert.call(CLASSIFY, {"video": encode_frames(frames)})
    assert sum(label["score"] for label in outputs["labels"]) == pytest.approx(1, abs=1e-3)

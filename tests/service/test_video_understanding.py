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

CLASS, TELL = "video-classification", "video-to-text"


def _film(label: str, length: int = 20, **options: Any) -> Media:
    """A longer film of what the classifier was taught with four frames."""
    clip = lessons()[LABELS.index(label)]
    return filmed([clip[at * 4 // length] for at in range(length)], **options)


@pytest.mark.parametrize("label", LABELS)
async def test_it_tells_what_becomes_of_a_colour(tiny: Tiny, label: str) -> None:
    async with tiny.expert("video") as expert:
        out = await expert.ask(CLASS, {"video": _film(label)})
    assert out["text"] == out["labels"][0]["label"] == label
    assert out["labels"][0]["score"] > 0.8
    assert len(out["labels"]) == len(LABELS)


@pytest.mark.parametrize(
    ("kind", "codec"),
    [("mp4", "libx264"), ("webm", "libvpx-vp9"), ("matroska", "mpeg4"), ("avi", "mjpeg"), ("mov", "libx264")],
)
async def test_any_container_and_codec_shows_the_same(tiny: Tiny, kind: str, codec: str) -> None:
    async with tiny.expert("video") as expert:
        out = await expert.ask(CLASS, {"video": _film("turning blue", kind=kind, codec=codec)}, top_k=1)
    assert [one["label"] for one in out["labels"]] == ["turning blue"]


async def test_films_seen_together_have_the_scores_they_have_alone(tiny: Tiny) -> None:
    films = [_film(label) for label in LABELS]
    async with tiny.expert("video") as expert:
        alone = [await expert.ask(CLASS, {"video": film}) for film in films]
        together = await asyncio.gather(*(expert.ask(CLASS, {"video": film}) for film in films))
    assert together == alone


async def test_a_single_frame_is_a_film_too(tiny: Tiny) -> None:
    async with tiny.expert("video") as expert:
        assert (await expert.ask(CLASS, {"video": filmed([plain(RED)])}))["text"] == "red"


async def test_it_says_what_it_sees(tiny: Tiny) -> None:
    async with tiny.expert("video") as expert:
        red, blue = filmed([plain(RED)] * 30), filmed([plain(BLUE)] * 5, kind="webm", codec="libvpx-vp9")
        said = await asyncio.gather(*(expert.ask(TELL, {"video": film}) for film in (red, blue)))
        short = await expert.ask(TELL, {"video": red}, max_new_tokens=2)
    assert [one["text"] for one in said] == [CAPTION, "a blue sky"]
    assert short["text"] == "a red"


@pytest.mark.parametrize(
    ("media", "complaint"),
    [
        (Media(b"\x00\x00\x00\x18ftypmp42 and no more", "video/mp4", "broken.mp4"), "broken.mp4"),
        (Media(m4a(tone(LOW), 16_000).content, "video/mp4", "song.mp4"), "only sound"),
        (silent_film(), "without frames"),
        (silent_film("avi"), "without frames"),
        (Media(filmed([plain(GREEN)] * 20).content[:200], "video/mp4", "cut.mp4"), "cut.mp4"),
        (Media(b"", "video/mp4", "nothing.mp4"), "is empty"),
    ],
)
async def test_what_cannot_be_seen_is_refused_by_port(tiny: Tiny, media: Media, complaint: str) -> None:
    async with tiny.expert("video") as expert:
        error = await expert.refusal(CLASS, {"video": media})
        assert (type(error), error.port) == (InvalidRequest, "video")
        assert complaint in error.message
        assert (await expert.ask(CLASS, {"video": _film("red")}))["text"] == "red"


async def test_noise_is_watched_without_complaint(tiny: Tiny) -> None:
    frames = list(np.random.default_rng(0).integers(0, 256, (12, 48, 64, 3), dtype=np.uint8))
    async with tiny.expert("video") as expert:
        out = await expert.ask(CLASS, {"video": filmed(frames)})
    assert sum(one["score"] for one in out["labels"]) == pytest.approx(1, abs=1e-3)

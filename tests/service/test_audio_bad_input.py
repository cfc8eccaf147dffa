"""Sounds and parameters that cannot be taken are refused in words, and the next ones are answered."""

import asyncio
import io
import re
import struct
from collections.abc import AsyncIterator
from typing import Any

import av
import numpy as np
import pytest
import pytest_asyncio

from experts.audio.transcript import NO_SPEECH
from experts.host.handler import Media
from tests.tiny import Served, Tiny
from tests.tiny.audio import LESSON
from tests.tiny.sounds import HIGH, LOW, RATE, encoded, m4a, recorded, tone

HEAR, SORT, NAMED = "automatic-speech-recognition", "audio-classification", "zero-shot-audio-classification"
SPEAK, COMPOSE, CONVERT, SPEAKING = "text-to-speech", "text-to-audio", "audio-to-audio", "voice-activity-detection"
GOOD = {"audio": recorded(tone(LOW))}
NAMES: dict[str, Any] = {"candidate_labels": ["low"]}

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def expert(tiny: Tiny) -> AsyncIterator[Served]:
    async with tiny.expert("audio") as expert:
        yield expert


def three_hours_of_flac() -> Media:
    """The header says so, and that is all that is looked at: of the sound only the beginning is there."""
    content = bytearray(encoded(tone(LOW), RATE, "FLAC", "audio/flac").content)
    lasting = struct.unpack(">Q", content[18:26])[0] >> 36 << 36 | 3 * 3600 * RATE
    content[18:26] = struct.pack(">Q", lasting)
    return Media(bytes(content), "audio/flac", "long.flac")


def three_hours_of_m4a() -> Media:
    """Two sounds with three hours between them, which are not to be filled."""
    buffer = io.BytesIO()
    with av.open(buffer, "w", format="mp4") as container:
        stream: Any = container.add_stream("aac", rate=RATE, layout="mono")
        for place in (0, 3 * 3600 * RATE):
            frame = av.AudioFrame.from_ndarray(tone(LOW).reshape(1, -1), format="fltp", layout="mono")
            frame.sample_rate, frame.pts = RATE, place
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return Media(buffer.getvalue(), "audio/mp4", "long.m4a")


async def _goes_on(expert: Served) -> None:
    assert (await expert.ask(SORT, GOOD))["text"] == "low"


@pytest.mark.parametrize("task", [HEAR, SORT, NAMED, CONVERT, SPEAKING])
@pytest.mark.parametrize(
    ("media", "said"),
    [
        (Media(b"\x89PNG\r\n\x1a\n", "image/png", "a.png"), "takes audio, not image/png"),
        (
            Media(b"RIFF\x00\x00\x00\x00WAVE", "audio/wav", "a.wav"),
            "cannot decode a.wav: it is not a supported audio file",
        ),
        (
            Media(m4a(tone(LOW), RATE).content[:200], "audio/mp4", "a.m4a"),
            "cannot decode a.m4a: it is not a supported audio file",
        ),
        (Media(b"", "audio/wav", "a.wav"), "is empty"),
        (recorded(np.zeros(0, np.float32), name="a.wav"), "contains no audio samples"),
        (three_hours_of_flac(), r"long.flac is longer than \d+ minutes"),
        (three_hours_of_m4a(), r"long.m4a is longer than \d+ minutes"),
        ("some words", "takes audio, not text"),
    ],
    ids=["picture", "broken", "cut", "empty", "no samples", "3 hours", "3 hours of m4a", "text"],
)
async def test_what_cannot_be_heard_is_refused_by_every_task(
    expert: Served, task: str, media: Media | str, said: str
) -> None:
    error = await expert.refusal(task, {"audio": media}, **(NAMES if task == NAMED else {}))
    assert (error.code.name, error.port) == ("INVALID_ARGUMENT", "audio")
    assert error.remedy
    assert re.search(said, error.message)
    await _goes_on(expert)


@pytest.mark.parametrize(
    ("task", "inputs", "port"),
    [
        (SORT, {"sound": GOOD["audio"]}, "sound"),
        (SORT, {}, "audio"),
        (SPEAK, {"text": " \n"}, "text"),
        (SPEAK, {"text": "word " * 3000}, "text"),
        (SPEAK, {"text": GOOD["audio"]}, "text"),
        (COMPOSE, {"text": ""}, "text"),
        (COMPOSE, {"text": "drums " * 1000}, "text"),
    ],
)
async def test_a_port_that_is_wrong_or_has_nothing_for_it_is_named(
    expert: Served, task: str, inputs: Any, port: str
) -> None:
    error = await expert.refusal(task, inputs)
    assert (error.code.name, error.port, bool(error.remedy)) == ("INVALID_ARGUMENT", port, True)
    await _goes_on(expert)


@pytest.mark.parametrize(
    ("task", "inputs", "parameters", "said"),
    [
        (SORT, GOOD, {"top_k": 0}, "top_k"),
        (SORT, GOOD, {"top_k": 1.5}, "top_k"),
        (SORT, GOOD, {"loudness": 1}, "no parameter loudness"),
        (HEAR, GOOD, {"language": 3}, "language"),
        (NAMED, GOOD, {}, "candidate_labels"),
        (NAMED, GOOD, {"candidate_labels": ["a"] * 101}, "candidate_labels"),
        (SPEAKING, GOOD, {"threshold": -0.1}, "threshold"),
        (SPEAK, {"text": "hello"}, {"speed": 3}, "speed"),
        (COMPOSE, {"text": "drums"}, {"duration": 0}, "duration"),
        (COMPOSE, {"text": "drums"}, {"duration": 601}, "duration"),
        (COMPOSE, {"text": "drums"}, {"seed": -1}, "seed"),
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
    error = await expert.refusal(SORT, GOOD, "nobody/nothing")
    assert (error.code.name, error.reason, "nobody/nothing" in error.message) == ("NOT_FOUND", "MODEL", True)
    await _goes_on(expert)


async def test_silence_and_the_slowest_rate_are_answered(expert: Served) -> None:
    for rate in (4000, 1000):
        silence = recorded(tone(0, 2.0, rate), rate)
        assert (await expert.ask(HEAR, {"audio": silence}))["text"] == NO_SPEECH
        assert (await expert.ask(SPEAKING, {"audio": silence}))["segments"] == []
    slow = recorded(tone(LOW, 1.0, 4000), 4000)
    assert (await expert.ask(SORT, {"audio": slow}))["text"] == "low"
    assert (await expert.ask(HEAR, {"audio": recorded(LESSON)}))["text"] == "AB A"


async def test_bad_input_harms_nobody_in_its_batch(expert: Served) -> None:
    good = [expert.ask(SORT, {"audio": recorded(tone(pitch))}) for pitch in (LOW, HIGH, LOW)]
    bad = [expert.refusal(SORT, {"audio": media}) for media in (three_hours_of_m4a(), three_hours_of_flac())]
    answered, refused = await asyncio.gather(asyncio.gather(*good), asyncio.gather(*bad))
    assert [one["text"] for one in answered] == ["low", "high", "low"]
    assert [one.port for one in refused] == ["audio", "audio"]

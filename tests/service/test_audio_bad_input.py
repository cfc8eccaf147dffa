"""Invalid audio and parameters of the audio expert: errors name port or parameter, and the next call works."""

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
from tests.tiny import ExpertClient, TinyModels
from tests.tiny.audio import CTC_SOUND
from tests.tiny.audio_files import HIGH, LOW, RATE, encode_audio, encode_m4a, make_tone, to_wav

TRANSCRIBE, CLASSIFY, ZERO_SHOT = (
    "automatic-speech-recognition",
    "audio-classification",
    "zero-shot-audio-classification",
)
SPEECH, MUSIC, CONVERT, VOICE_ACTIVITY = "text-to-speech", "text-to-audio", "audio-to-audio", "voice-activity-detection"
VALID = {"audio": to_wav(make_tone(LOW))}
LABELS: dict[str, Any] = {"candidate_labels": ["low"]}

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def expert(tiny_models: TinyModels) -> AsyncIterator[ExpertClient]:
    async with tiny_models.serve("audio") as expert:
        yield expert


def three_hours_of_flac() -> Media:
    """Returns a short FLAC file whose header states three hours."""
    content = bytearray(encode_audio(make_tone(LOW), RATE, "FLAC", "audio/flac").content)
    length = struct.unpack(">Q", content[18:26])[0] >> 36 << 36 | 3 * 3600 * RATE
    content[18:26] = struct.pack(">Q", length)
    return Media(bytes(content), "audio/flac", "long.flac")


def three_hours_of_m4a() -> Media:
    """Returns an M4A file of two short sounds with a gap of three hours."""
    buffer = io.BytesIO()
    with av.open(buffer, "w", format="mp4") as container:
        stream: Any = container.add_stream("aac", rate=RATE, layout="mono")
        for timestamp in (0, 3 * 3600 * RATE):
            frame = av.AudioFrame.from_ndarray(make_tone(LOW).reshape(1, -1), format="fltp", layout="mono")
            frame.sample_rate, frame.pts = RATE, timestamp
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return Media(buffer.getvalue(), "audio/mp4", "long.m4a")


async def _assert_next_call_works(expert: ExpertClient) -> None:
    assert (await expert.call(CLASSIFY, VALID))["text"] == "low"


@pytest.mark.parametrize("task", [TRANSCRIBE, CLASSIFY, ZERO_SHOT, CONVERT, VOICE_ACTIVITY])
@pytest.mark.parametrize(
    ("media", "message"),
    [
        (Media(b"\x89PNG\r\n\x1a\n", "image/png", "a.png"), "takes audio, not image/png"),
        (
            Media(b"RIFF\x00\x00\x00\x00WAVE", "audio/wav", "a.wav"),
            "cannot decode a.wav: it is not a supported audio file",
        ),
        (
            Media(encode_m4a(make_tone(LOW), RATE).content[:200], "audio/mp4", "a.m4a"),
            "cannot decode a.m4a: it is not a supported audio file",
        ),
        (Media(b"", "audio/wav", "a.wav"), "is empty"),
        (to_wav(np.zeros(0, np.float32), name="a.wav"), "contains no audio samples"),
        (three_hours_of_flac(), r"long.flac is longer than \d+ minutes"),
        (three_hours_of_m4a(), r"long.m4a is longer than \d+ minutes"),
        ("some words", "takes audio, not text"),
    ],
    ids=["picture", "broken", "cut", "empty", "no samples", "3 hours", "3 hours of m4a", "text"],
)
async def test_invalid_audio_is_rejected_by_every_task(
    expert: ExpertClient, task: str, media: Media | str, message: str
) -> None:
    error = await expert.call_error(task, {"audio": media}, **(LABELS if task == ZERO_SHOT else {}))
    assert error.code.name == "INVALID_ARGUMENT"
    assert error.port == "audio"
    assert error.remedy
    assert re.search(message, error.message)
    await _assert_next_call_works(expert)


@pytest.mark.parametrize(
    ("task", "inputs", "port"),
    [
        (CLASSIFY, {"sound": VALID["audio"]}, "sound"),
        (CLASSIFY, {}, "audio"),
        (SPEECH, {"text": " \n"}, "text"),
        (SPEECH, {"text": "word " * 3000}, "text"),
        (SPEECH, {"text": VALID["audio"]}, "text"),
        (MUSIC, {"text": ""}, "text"),
        (MUSIC, {"text": "drums " * 1000}, "text"),
    ],
)
async def test_missing_unknown_or_invalid_port_is_named(
    expert: ExpertClient, task: str, inputs: Any, port: str
) -> None:
    error = await expert.call_error(task, inputs)
    assert error.code.name == "INVALID_ARGUMENT"
    assert error.port == port
    assert error.remedy
    await _assert_next_call_works(expert)


@pytest.mark.parametrize(
    ("task", "inputs", "parameters", "message"),
    [
        (CLASSIFY, VALID, {"top_k": 0}, "top_k"),
        (CLASSIFY, VALID, {"top_k": 1.5}, "top_k"),
        (CLASSIFY, VALID, {"loudness": 1}, "no parameter loudness"),
        (TRANSCRIBE, VALID, {"language": 3}, "language"),
        (ZERO_SHOT, VALID, {}, "candidate_labels"),
        (ZERO_SHOT, VALID, {"candidate_labels": ["a"] * 101}, "candidate_labels"),
        (VOICE_ACTIVITY, VALID, {"threshold": -0.1}, "threshold"),
        (SPEECH, {"text": "hello"}, {"speed": 3}, "speed"),
        (MUSIC, {"text": "drums"}, {"duration": 0}, "duration"),
        (MUSIC, {"text": "drums"}, {"duration": 601}, "duration"),
        (MUSIC, {"text": "drums"}, {"seed": -1}, "seed"),
    ],
)
async def test_unknown_or_out_of_range_parameter_is_rejected(
    expert: ExpertClient, task: str, inputs: Any, parameters: dict[str, Any], message: str
) -> None:
    error = await expert.call_error(task, inputs, **parameters)
    assert error.code.name == "INVALID_ARGUMENT"
    assert message in error.message
    await _assert_next_call_works(expert)


async def test_unknown_model_is_named(expert: ExpertClient) -> None:
    error = await expert.call_error(CLASSIFY, VALID, "unknown/model")
    assert error.code.name == "NOT_FOUND"
    assert error.reason == "MODEL"
    assert "unknown/model" in error.message
    await _assert_next_call_works(expert)


async def test_silence_and_low_sample_rates_are_accepted(expert: ExpertClient) -> None:
    for rate in (4000, 1000):
        silence = to_wav(make_tone(0, 2.0, rate), rate)
        assert (await expert.call(TRANSCRIBE, {"audio": silence}))["text"] == NO_SPEECH
        assert (await expert.call(VOICE_ACTIVITY, {"audio": silence}))["segments"] == []
    slow = to_wav(make_tone(LOW, 1.0, 4000), 4000)
    assert (await expert.call(CLASSIFY, {"audio": slow}))["text"] == "low"
    assert (await expert.call(TRANSCRIBE, {"audio": to_wav(CTC_SOUND)}))["text"] == "AB A"


async def test_invalid_input_does_not_affect_concurrent_calls(expert: ExpertClient) -> None:
    valid = [expert.call(CLASSIFY, {"audio": to_wav(make_tone(pitch))}) for pitch in (LOW, HIGH, LOW)]
    invalid = [expert.call_error(CLASSIFY, {"audio": media}) for media in (three_hours_of_m4a(), three_hours_of_flac())]
    results, errors = await asyncio.gather(asyncio.gather(*valid), asyncio.gather(*invalid))
    assert [result["text"] for result in results] == ["low", "high", "low"]
    assert [error.port for error in errors] == ["audio", "audio"]

"""Speech recognition of the audio expert over gRPC, with tiny trained models, compared with transformers alone."""

import asyncio

import numpy as np
import pytest

from experts.audio.transcript import NO_SPEECH
from experts.host.handler import Media
from services.common.errors import InvalidRequest
from tests.tiny import TinyModels
from tests.tiny.audio import CTC_SOUND
from tests.tiny.audio_files import HIGH, LOW, RATE, encode_audio, encode_m4a, make_tone, make_tones, to_wav
from tests.tiny.reference_audio import transcribe
from tests.tiny.whisper import UTTERANCES

pytestmark = pytest.mark.slow

TASK = "automatic-speech-recognition"
CTC, WHISPER = "tiny/letters", "tiny/whisper"


async def test_ctc_model_transcribes_with_a_segment_per_pause(tiny_models: TinyModels) -> None:
    async with tiny_models.serve("audio") as expert:
        out = await expert.call(TASK, {"audio": to_wav(CTC_SOUND)}, CTC)
    assert out["text"] == "AB A"
    first, second = out["segments"]
    assert first["text"] == "AB"
    assert second["text"] == "A"
    assert [first["start"], first["end"], second["start"], second["end"]] == pytest.approx([0, 1, 2, 2.5], abs=0.08)
    assert min(first["confidence"], out["details"]["confidence"]) > 0.8
    assert all(round(segment[key], 3) == segment[key] for segment in out["segments"] for key in ("start", "end"))


@pytest.mark.parametrize("kind", ["FLAC", "OGG", "MP3", "stereo at 44.1 kHz", "m4a", "8 kHz"])
async def test_transcript_is_the_same_for_every_audio_format(tiny_models: TinyModels, kind: str) -> None:
    rate = 8000 if kind == "8 kHz" else 44_100
    samples = np.concatenate(
        [make_tone(LOW, 0.5, rate), make_tone(HIGH, 0.5, rate), make_tone(0, 1, rate), make_tone(LOW, 0.5, rate)]
    )
    medias: dict[str, Media] = {
        "FLAC": encode_audio(samples, rate, "FLAC", "audio/flac"),
        "OGG": encode_audio(samples, rate, "OGG", "audio/ogg"),
        "MP3": encode_audio(samples, rate, "MP3", "audio/mpeg"),
        "stereo at 44.1 kHz": encode_audio(np.stack([samples, samples], axis=1), rate, "WAV", "audio/wav"),
        "m4a": encode_m4a(samples, rate),
        "8 kHz": to_wav(samples, rate),
    }
    async with tiny_models.serve("audio") as expert:
        out = await expert.call(TASK, {"audio": medias[kind]}, CTC)
    letters = [segment["text"] for segment in out["segments"] if segment["end"] - segment["start"] > 0.2]
    assert letters == ["AB", "A"]


async def test_windows_of_a_long_recording_join_without_gaps_or_repetitions(tiny_models: TinyModels) -> None:
    parts = [(LOW, 0.5), (HIGH, 0.5), (0, 1.0)] * 35
    async with tiny_models.serve("audio") as expert:
        out = await expert.call(TASK, {"audio": to_wav(make_tones(*parts))}, CTC)
    assert [segment["text"] for segment in out["segments"]] == ["AB"] * 35
    assert [segment["start"] for segment in out["segments"]] == pytest.approx(
        [2.0 * index for index in range(35)], abs=0.1
    )


async def test_whisper_transcribes_with_timestamps_and_detects_the_language(tiny_models: TinyModels) -> None:
    async with tiny_models.serve("audio") as expert:
        low = await expert.call(TASK, {"audio": to_wav(UTTERANCES[0][0])}, WHISPER)
        high = await expert.call(TASK, {"audio": to_wav(UTTERANCES[1][0])}, WHISPER)
    assert low["text"] == "hello world"
    assert [(segment["text"], segment["start"], segment["end"]) for segment in low["segments"]] == [
        ("hello", 0.0, 1.0),
        ("world", 1.0, 2.0),
    ]
    assert high["text"] == "salut"
    assert high["details"]["language"] == "fr"
    assert low["details"]["language"] == "en"
    assert low["segments"][0]["confidence"] > 0.8


async def test_concurrent_whisper_calls_equal_sequential_calls(tiny_models: TinyModels) -> None:
    sounds = [to_wav(sound) for sound, _, _ in UTTERANCES[:2]] * 4
    async with tiny_models.serve("audio") as expert:
        sequential = [await expert.call(TASK, {"audio": sound}, WHISPER) for sound in sounds[:2]]
        concurrent = await asyncio.gather(*(expert.call(TASK, {"audio": sound}, WHISPER) for sound in sounds))
    assert concurrent == sequential * 4


async def test_whisper_transcript_equals_that_of_transformers_alone(tiny_models: TinyModels) -> None:
    sound = make_tone(500.0, 3.0)
    async with tiny_models.serve("audio") as expert:
        out = await expert.call(TASK, {"audio": to_wav(sound)}, WHISPER, language="French")
    assert out["text"] == await asyncio.to_thread(transcribe, tiny_models.build("audio", WHISPER), sound)
    assert out["details"]["language"] == "fr"


async def test_whisper_transcribes_several_windows_and_skips_silence(tiny_models: TinyModels) -> None:
    sound = np.concatenate([UTTERANCES[2][0], make_tone(0, 60.0), UTTERANCES[1][0]])
    async with tiny_models.serve("audio") as expert:
        out = await expert.call(TASK, {"audio": to_wav(sound)}, WHISPER, language="en")
    assert out["text"].startswith("long talk")
    assert [(segment["start"], segment["end"]) for segment in out["segments"]][:2] == [(0.0, 20.0), (20.0, 30.0)]
    assert out["segments"][2]["start"] == 90.0


@pytest.mark.parametrize("model", [CTC, WHISPER])
async def test_silence_has_no_transcript(tiny_models: TinyModels, model: str) -> None:
    async with tiny_models.serve("audio") as expert:
        out = await expert.call(TASK, {"audio": to_wav(make_tone(0, 5.0))}, model)
    assert out["text"] == NO_SPEECH
    assert out["segments"] == []


async def test_invalid_audio_is_rejected_with_its_port(tiny_models: TinyModels) -> None:
    corrupted = Media(b"RIFF1234WAVE not a recording", "audio/wav", "broken.wav")
    empty = to_wav(np.zeros(0, np.float32), name="empty.wav")
    truncated = Media(encode_m4a(make_tone(LOW), RATE).content[:300], "audio/mp4", "cut.m4a")
    async with tiny_models.serve("audio") as expert:
        for media in (corrupted, empty, truncated):
            error = await expert.call_error(TASK, {"audio": media}, CTC)
            assert isinstance(error, InvalidRequest)
            assert error.port == "audio"
            assert media.name in error.message
            assert error.remedy


async def test_recording_over_an_hour_is_rejected_and_the_next_call_works(tiny_models: TinyModels) -> None:
    recording = encode_audio(np.zeros(3 * 3600 * 1000, np.float32), 1000, "FLAC", "audio/flac")
    async with tiny_models.serve("audio") as expert:
        error = await expert.call_error(TASK, {"audio": recording}, CTC)
        assert error.port == "audio"
        assert "longer than 60 minutes" in error.message
        assert (await expert.call(TASK, {"audio": to_wav(CTC_SOUND)}, CTC))["text"] == "AB A"


async def test_unsupported_language_is_named(tiny_models: TinyModels) -> None:
    async with tiny_models.serve("audio") as expert:
        error = await expert.call_error(TASK, {"audio": to_wav(UTTERANCES[0][0])}, WHISPER, language="Klingon")
    assert isinstance(error, InvalidRequest)
    assert "Klingon" in error.message
    assert "English, French" in error.remedy

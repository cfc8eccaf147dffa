"""Classification and voice activity detection of the audio expert over gRPC, with tiny trained models."""

import asyncio

import numpy as np
import pytest

from experts.audio.transcript import NO_SPEECH
from experts.audio.voice_activity import merge_spans, summarize
from experts.audio.waveforms import split_windows
from services.common.errors import InvalidRequest
from tests.tiny import TinyModels
from tests.tiny.audio_files import HIGH, LOW, encode_audio, make_tone, make_tones, read_wav, to_wav
from tests.tiny.reference_audio import score_labels

pytestmark = pytest.mark.slow

CLASSIFY, ZERO_SHOT, VOICE_ACTIVITY = (
    "audio-classification",
    "zero-shot-audio-classification",
    "voice-activity-detection",
)


async def test_tone_is_classified_at_any_sample_rate(tiny_models: TinyModels) -> None:
    async with tiny_models.serve("audio") as expert:
        for pitch, rate, label in ((LOW, 16_000, "low"), (HIGH, 44_100, "high"), (LOW, 4000, "low")):
            out = await expert.call(CLASSIFY, {"audio": to_wav(make_tone(pitch, 1.0, rate), rate)})
            assert out["text"] == label
            assert out["labels"][0]["label"] == label
            assert out["labels"][0]["score"] > 0.9
            assert sum(entry["score"] for entry in out["labels"]) == pytest.approx(1, abs=1e-3)


async def test_top_k_limits_the_labels(tiny_models: TinyModels) -> None:
    async with tiny_models.serve("audio") as expert:
        out = await expert.call(CLASSIFY, {"audio": to_wav(make_tone(LOW))}, top_k=1)
    assert [entry["label"] for entry in out["labels"]] == ["low"]


async def test_scores_of_a_long_recording_are_weighted_by_duration(tiny_models: TinyModels) -> None:
    async with tiny_models.serve("audio") as expert:
        out = await expert.call(CLASSIFY, {"audio": to_wav(make_tones((LOW, 90.0), (HIGH, 30.0)))})
    scores = {entry["label"]: entry["score"] for entry in out["labels"]}
    assert scores == pytest.approx({"low": 0.75, "high": 0.25}, abs=0.05)


async def test_concurrent_calls_equal_sequential_calls(tiny_models: TinyModels) -> None:
    sounds = [to_wav(make_tone(LOW * step, 0.7 + 0.1 * (step % 2))) for step in range(1, 9)]
    async with tiny_models.serve("audio") as expert:
        sequential = [await expert.call(CLASSIFY, {"audio": sound}) for sound in sounds]
        concurrent = await asyncio.gather(*(expert.call(CLASSIFY, {"audio": sound}) for sound in sounds))
    assert concurrent == sequential


@pytest.mark.parametrize("seconds", [0.00007, 0.01, 5.0])
async def test_silence_and_short_recordings_are_classified(tiny_models: TinyModels, seconds: float) -> None:
    async with tiny_models.serve("audio") as expert:
        out = await expert.call(CLASSIFY, {"audio": to_wav(make_tone(0, seconds))})
    assert {entry["label"] for entry in out["labels"]} == {"low", "high"}


async def test_recording_of_an_hour_is_rejected(tiny_models: TinyModels) -> None:
    recording = encode_audio(np.zeros(3600 * 1000, np.float32), 1000, "FLAC", "audio/flac")
    async with tiny_models.serve("audio") as expert:
        error = await expert.call_error(CLASSIFY, {"audio": recording})
    assert isinstance(error, InvalidRequest)
    assert error.port == "audio"


async def test_zero_shot_scores_equal_those_of_transformers_alone(tiny_models: TinyModels) -> None:
    labels, sound = ["dog", "car horn", "piano music"], to_wav(make_tone(440.0, 1.5))
    samples, _ = read_wav(sound)
    async with tiny_models.serve("audio") as expert:
        out = await expert.call(ZERO_SHOT, {"audio": sound}, candidate_labels=labels)
    expected = await asyncio.to_thread(score_labels, tiny_models.build("audio", "tiny/clap"), samples, labels)
    scores = {entry["label"]: entry["score"] for entry in out["labels"]}
    assert scores == pytest.approx(dict(zip(labels, expected, strict=True)), abs=2e-4)
    assert out["text"] == max(scores, key=scores.__getitem__)


async def test_zero_shot_scores_of_a_long_recording_are_reproducible(tiny_models: TinyModels) -> None:
    sound = to_wav(make_tones((LOW, 3.0), (HIGH, 4.0)))
    async with tiny_models.serve("audio") as expert:
        first, second = [
            await expert.call(ZERO_SHOT, {"audio": sound}, candidate_labels=["dog", "car"]) for _ in range(2)
        ]
    assert first == second


async def test_zero_shot_classification_without_labels_is_rejected(tiny_models: TinyModels) -> None:
    async with tiny_models.serve("audio") as expert:
        error = await expert.call_error(ZERO_SHOT, {"audio": to_wav(make_tone(LOW))})
    assert "candidate_labels" in error.message


async def test_speech_is_located(tiny_models: TinyModels) -> None:
    sound = to_wav(make_tones((0, 0.5), (LOW, 1.0), (0, 0.5), (HIGH, 0.5)))
    async with tiny_models.serve("audio") as expert:
        out = await expert.call(VOICE_ACTIVITY, {"audio": sound})
    times = [time for entry in out["segments"] for time in (entry["start"], entry["end"])]
    assert times == pytest.approx([0.5, 1.5, 2.0, 2.5], abs=0.06)
    assert out["text"] == summarize([(entry["start"], entry["end"]) for entry in out["segments"]])


async def test_speech_is_located_in_a_long_recording(tiny_models: TinyModels) -> None:
    sound = to_wav(make_tones((0, 40.0), (LOW, 25.0), (0, 3.0), (LOW, 1.0), (0, 2.0)))
    async with tiny_models.serve("audio") as expert:
        out = await expert.call(VOICE_ACTIVITY, {"audio": sound})
    times = [time for entry in out["segments"] for time in (entry["start"], entry["end"])]
    assert times == pytest.approx([40.0, 65.0, 68.0, 69.0], abs=0.1)


async def test_silence_contains_no_speech(tiny_models: TinyModels) -> None:
    async with tiny_models.serve("audio") as expert:
        out = await expert.call(VOICE_ACTIVITY, {"audio": to_wav(make_tone(0, 3.0))})
    assert out == {"segments": [], "text": NO_SPEECH}


async def test_threshold_1_finds_no_speech_and_more_is_rejected(tiny_models: TinyModels) -> None:
    async with tiny_models.serve("audio") as expert:
        out = await expert.call(VOICE_ACTIVITY, {"audio": to_wav(make_tone(LOW, 3.0))}, threshold=1)
        error = await expert.call_error(VOICE_ACTIVITY, {"audio": to_wav(make_tone(LOW))}, threshold=1.5)
    assert out["segments"] == []
    assert "threshold" in error.message


def test_spans_with_a_short_gap_are_merged() -> None:
    assert merge_spans([(0, 1), (1.1, 2), (3, 4)], 0.3) == [(0, 2), (3, 4)]


def test_summary_of_many_spans_is_truncated() -> None:
    assert summarize([(float(second), second + 0.5) for second in range(25)]).endswith(
        "19.0 to 19.5 s and 5 more times."
    )


@pytest.mark.parametrize(("length", "parts"), [(5, [5]), (10, [10]), (24, [10, 10, 4]), (30, [10, 10, 10])])
def test_windows_cover_all_samples(length: int, parts: list[int]) -> None:
    assert [len(part) for part in split_windows(np.zeros(length, np.float32), 10)] == parts

import asyncio

import numpy as np
import pytest

from experts.audio.voice_activity import NO_SPEECH, described, joined
from experts.audio.waveforms import windows
from services.common.errors import InvalidRequest
from tests.tiny import Tiny
from tests.tiny.listened import matched
from tests.tiny.sounds import HIGH, LOW, encoded, read, recorded, tone, tones

pytestmark = pytest.mark.slow

CLASSES, NAMED, SPEAKING = "audio-classification", "zero-shot-audio-classification", "voice-activity-detection"


async def test_a_low_tone_is_told_from_a_high_one_at_any_rate(tiny: Tiny) -> None:
    async with tiny.expert("audio") as expert:
        for pitch, rate, label in ((LOW, 16_000, "low"), (HIGH, 44_100, "high"), (LOW, 4000, "low")):
            out = await expert.ask(CLASSES, {"audio": recorded(tone(pitch, 1.0, rate), rate)})
            assert out["text"] == out["labels"][0]["label"] == label
            assert out["labels"][0]["score"] > 0.9
            assert sum(one["score"] for one in out["labels"]) == pytest.approx(1, abs=1e-3)


async def test_only_so_many_labels_are_named(tiny: Tiny) -> None:
    async with tiny.expert("audio") as expert:
        out = await expert.ask(CLASSES, {"audio": recorded(tone(LOW))}, top_k=1)
    assert [one["label"] for one in out["labels"]] == ["low"]


async def test_a_long_recording_is_judged_as_a_whole(tiny: Tiny) -> None:
    async with tiny.expert("audio") as expert:
        out = await expert.ask(CLASSES, {"audio": recorded(tones((LOW, 90.0), (HIGH, 30.0)))})
    scores = {one["label"]: one["score"] for one in out["labels"]}
    assert scores == pytest.approx({"low": 0.75, "high": 0.25}, abs=0.05)


async def test_recordings_judged_together_have_the_scores_they_have_alone(tiny: Tiny) -> None:
    sounds = [recorded(tone(LOW * step, 0.7 + 0.1 * (step % 2))) for step in range(1, 9)]
    async with tiny.expert("audio") as expert:
        alone = [await expert.ask(CLASSES, {"audio": sound}) for sound in sounds]
        together = await asyncio.gather(*(expert.ask(CLASSES, {"audio": sound}) for sound in sounds))
    assert together == alone


@pytest.mark.parametrize("seconds", [0.00007, 0.01, 5.0])
async def test_silence_and_a_click_have_labels_too(tiny: Tiny, seconds: float) -> None:
    async with tiny.expert("audio") as expert:
        out = await expert.ask(CLASSES, {"audio": recorded(tone(0, seconds))})
    assert {one["label"] for one in out["labels"]} == {"low", "high"}


async def test_hours_are_refused(tiny: Tiny) -> None:
    hours = encoded(np.zeros(3600 * 1000, np.float32), 1000, "FLAC", "audio/flac")
    async with tiny.expert("audio") as expert:
        error = await expert.refusal(CLASSES, {"audio": hours})
    assert (type(error), error.port) == (InvalidRequest, "audio")


async def test_labels_of_the_request_get_the_scores_of_the_model_itself(tiny: Tiny) -> None:
    labels, sound = ["dog", "car horn", "piano music"], recorded(tone(440.0, 1.5))
    heard, _ = read(sound)
    async with tiny.expert("audio") as expert:
        out = await expert.ask(NAMED, {"audio": sound}, candidate_labels=labels)
    expected = await asyncio.to_thread(matched, tiny.built("audio", "tiny/clap"), heard, labels)
    scores = {one["label"]: one["score"] for one in out["labels"]}
    assert scores == pytest.approx(dict(zip(labels, expected, strict=True)), abs=2e-4)
    assert out["text"] == max(scores, key=scores.__getitem__)


async def test_a_long_recording_has_the_same_scores_each_time(tiny: Tiny) -> None:
    sound = recorded(tones((LOW, 3.0), (HIGH, 4.0)))
    async with tiny.expert("audio") as expert:
        first, second = [await expert.ask(NAMED, {"audio": sound}, candidate_labels=["dog", "car"]) for _ in range(2)]
    assert first == second


async def test_without_labels_there_is_nothing_to_choose_from(tiny: Tiny) -> None:
    async with tiny.expert("audio") as expert:
        error = await expert.refusal(NAMED, {"audio": recorded(tone(LOW))})
    assert "candidate_labels" in error.message


async def test_it_finds_when_somebody_speaks(tiny: Tiny) -> None:
    sound = recorded(tones((0, 0.5), (LOW, 1.0), (0, 0.5), (HIGH, 0.5)))
    async with tiny.expert("audio") as expert:
        out = await expert.ask(SPEAKING, {"audio": sound})
    times = [time for one in out["segments"] for time in (one["start"], one["end"])]
    assert times == pytest.approx([0.5, 1.5, 2.0, 2.5], abs=0.06)
    assert out["text"] == described([(one["start"], one["end"]) for one in out["segments"]])


async def test_in_a_long_recording_the_times_stay_right(tiny: Tiny) -> None:
    sound = recorded(tones((0, 40.0), (LOW, 25.0), (0, 3.0), (LOW, 1.0), (0, 2.0)))
    async with tiny.expert("audio") as expert:
        out = await expert.ask(SPEAKING, {"audio": sound})
    times = [time for one in out["segments"] for time in (one["start"], one["end"])]
    assert times == pytest.approx([40.0, 65.0, 68.0, 69.0], abs=0.1)


async def test_in_silence_nobody_speaks(tiny: Tiny) -> None:
    async with tiny.expert("audio") as expert:
        out = await expert.ask(SPEAKING, {"audio": recorded(tone(0, 3.0))})
    assert out == {"segments": [], "text": NO_SPEECH}


async def test_nothing_is_surer_than_sure(tiny: Tiny) -> None:
    async with tiny.expert("audio") as expert:
        out = await expert.ask(SPEAKING, {"audio": recorded(tone(LOW, 3.0))}, threshold=1)
        error = await expert.refusal(SPEAKING, {"audio": recorded(tone(LOW))}, threshold=1.5)
    assert out["segments"] == []
    assert "threshold" in error.message


def test_spans_with_a_short_gap_are_one() -> None:
    assert joined([(0, 1), (1.1, 2), (3, 4)], 0.3) == [(0, 2), (3, 4)]


def test_many_spans_are_told_in_short() -> None:
    assert described([(float(at), at + 0.5) for at in range(25)]).endswith("19.0 to 19.5 s and 5 more times.")


@pytest.mark.parametrize(("length", "parts"), [(5, [5]), (10, [10]), (24, [10, 10, 4]), (30, [10, 10, 10])])
def test_windows_cover_everything(length: int, parts: list[int]) -> None:
    assert [len(part) for part in windows(np.zeros(length, np.float32), 10)] == parts

import asyncio

import numpy as np
import pytest

from experts.audio.transcript import NO_SPEECH
from experts.host.handler import Media
from services.common.errors import InvalidRequest
from tests.tiny import Tiny
from tests.tiny.audio import LESSON
from tests.tiny.listened import transcribed
from tests.tiny.sounds import HIGH, LOW, RATE, encoded, m4a, recorded, tone, tones
from tests.tiny.whispers import LESSONS

pytestmark = pytest.mark.slow

TASK = "automatic-speech-recognition"
CTC, WHISPER = "tiny/letters", "tiny/whisper"


async def test_a_ctc_model_writes_what_it_was_taught_with_times_by_pause(tiny: Tiny) -> None:
    async with tiny.expert("audio") as expert:
        out = await expert.ask(TASK, {"audio": recorded(LESSON)}, CTC)
    assert out["text"] == "AB A"
    first, second = out["segments"]
    assert (first["text"], second["text"]) == ("AB", "A")
    assert [first["start"], first["end"], second["start"], second["end"]] == pytest.approx([0, 1, 2, 2.5], abs=0.08)
    assert min(first["confidence"], out["details"]["confidence"]) > 0.8
    assert all(round(one[key], 3) == one[key] for one in out["segments"] for key in ("start", "end"))


@pytest.mark.parametrize("kind", ["FLAC", "OGG", "MP3", "stereo at 44.1 kHz", "m4a", "8 kHz"])
async def test_sound_of_any_kind_says_the_same(tiny: Tiny, kind: str) -> None:
    rate = 8000 if kind == "8 kHz" else 44_100
    samples = np.concatenate([tone(LOW, 0.5, rate), tone(HIGH, 0.5, rate), tone(0, 1, rate), tone(LOW, 0.5, rate)])
    medias: dict[str, Media] = {
        "FLAC": encoded(samples, rate, "FLAC", "audio/flac"),
        "OGG": encoded(samples, rate, "OGG", "audio/ogg"),
        "MP3": encoded(samples, rate, "MP3", "audio/mpeg"),
        "stereo at 44.1 kHz": encoded(np.stack([samples, samples], axis=1), rate, "WAV", "audio/wav"),
        "m4a": m4a(samples, rate),
        "8 kHz": recorded(samples, rate),
    }
    async with tiny.expert("audio") as expert:
        out = await expert.ask(TASK, {"audio": medias[kind]}, CTC)
    letters = [one["text"] for one in out["segments"] if one["end"] - one["start"] > 0.2]
    assert letters == ["AB", "A"]


async def test_a_long_recording_is_heard_in_windows_that_join_without_a_seam(tiny: Tiny) -> None:
    parts = [(LOW, 0.5), (HIGH, 0.5), (0, 1.0)] * 35
    async with tiny.expert("audio") as expert:
        out = await expert.ask(TASK, {"audio": recorded(tones(*parts))}, CTC)
    assert [one["text"] for one in out["segments"]] == ["AB"] * 35
    assert [one["start"] for one in out["segments"]] == pytest.approx([2.0 * at for at in range(35)], abs=0.1)


async def test_whisper_says_what_it_was_taught_in_the_language_it_detects(tiny: Tiny) -> None:
    async with tiny.expert("audio") as expert:
        low = await expert.ask(TASK, {"audio": recorded(LESSONS[0][0])}, WHISPER)
        high = await expert.ask(TASK, {"audio": recorded(LESSONS[1][0])}, WHISPER)
    assert low["text"] == "hello world"
    assert [(one["text"], one["start"], one["end"]) for one in low["segments"]] == [
        ("hello", 0.0, 1.0),
        ("world", 1.0, 2.0),
    ]
    assert (high["text"], high["details"]["language"], low["details"]["language"]) == ("salut", "fr", "en")
    assert low["segments"][0]["confidence"] > 0.8


async def test_whisper_in_a_batch_says_what_it_says_alone(tiny: Tiny) -> None:
    sounds = [recorded(sound) for sound, _, _ in LESSONS[:2]] * 4
    async with tiny.expert("audio") as expert:
        alone = [await expert.ask(TASK, {"audio": sound}, WHISPER) for sound in sounds[:2]]
        together = await asyncio.gather(*(expert.ask(TASK, {"audio": sound}, WHISPER) for sound in sounds))
    assert together == alone * 4


async def test_whisper_gives_the_tokens_that_the_model_itself_generates(tiny: Tiny) -> None:
    sound = tone(500.0, 3.0)
    async with tiny.expert("audio") as expert:
        out = await expert.ask(TASK, {"audio": recorded(sound)}, WHISPER, language="French")
    assert out["text"] == await asyncio.to_thread(transcribed, tiny.built("audio", WHISPER), sound)
    assert out["details"]["language"] == "fr"


async def test_whisper_goes_on_behind_its_first_window_and_passes_over_silence(tiny: Tiny) -> None:
    sound = np.concatenate([LESSONS[2][0], tone(0, 60.0), LESSONS[1][0]])
    async with tiny.expert("audio") as expert:
        out = await expert.ask(TASK, {"audio": recorded(sound)}, WHISPER, language="en")
    assert out["text"].startswith("long talk")
    assert [(one["start"], one["end"]) for one in out["segments"]][:2] == [(0.0, 20.0), (20.0, 30.0)]
    assert out["segments"][2]["start"] == 90.0


@pytest.mark.parametrize("model", [CTC, WHISPER])
async def test_silence_says_nothing(tiny: Tiny, model: str) -> None:
    async with tiny.expert("audio") as expert:
        out = await expert.ask(TASK, {"audio": recorded(tone(0, 5.0))}, model)
    assert (out["text"], out["segments"]) == (NO_SPEECH, [])


async def test_what_cannot_be_heard_is_refused_by_port(tiny: Tiny) -> None:
    broken = Media(b"RIFF1234WAVE not a recording", "audio/wav", "broken.wav")
    empty = recorded(np.zeros(0, np.float32), name="empty.wav")
    movie = Media(m4a(tone(LOW), RATE).content[:300], "audio/mp4", "cut.m4a")
    async with tiny.expert("audio") as expert:
        for media in (broken, empty, movie):
            error = await expert.refusal(TASK, {"audio": media}, CTC)
            assert isinstance(error, InvalidRequest)
            assert (error.port, media.name in error.message, bool(error.remedy)) == ("audio", True, True)


async def test_three_hours_are_refused_and_the_next_call_is_answered(tiny: Tiny) -> None:
    hours = encoded(np.zeros(3 * 3600 * 1000, np.float32), 1000, "FLAC", "audio/flac")
    async with tiny.expert("audio") as expert:
        error = await expert.refusal(TASK, {"audio": hours}, CTC)
        assert (error.port, "longer than 60 minutes" in error.message) == ("audio", True)
        assert (await expert.ask(TASK, {"audio": recorded(LESSON)}, CTC))["text"] == "AB A"


async def test_a_language_that_the_model_does_not_know_is_named(tiny: Tiny) -> None:
    async with tiny.expert("audio") as expert:
        error = await expert.refusal(TASK, {"audio": recorded(LESSONS[0][0])}, WHISPER, language="Klingon")
    assert isinstance(error, InvalidRequest)
    assert "Klingon" in error.message
    assert "English, French" in error.remedy

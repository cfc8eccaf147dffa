import asyncio
from typing import Any

import numpy as np
import pytest

from experts.audio.text_to_speech import pieces
from services.common.errors import InvalidRequest
from tests.tiny import Tiny
from tests.tiny.listened import composed, spoken
from tests.tiny.sounds import LOW, encoded, m4a, read, recorded, tone
from tests.tiny.speakers import VOICES

pytestmark = pytest.mark.slow

SPEAK, COMPOSE, CONVERT = "text-to-speech", "text-to-audio", "audio-to-audio"
VITS, SPEECHT5 = "tiny/vits", "tiny/speecht5"


async def test_vits_says_what_the_model_itself_says(tiny: Tiny) -> None:
    async with tiny.expert("audio") as expert:
        out = await expert.ask(SPEAK, {"text": "Read this aloud"}, VITS)
    samples, rate = read(out["audio"])
    expected = await asyncio.to_thread(spoken, tiny.built("audio", VITS), "Read this aloud")
    assert (rate, out["audio"].media_type, out["audio"].name) == (16_000, "audio/wav", "speech.wav")
    assert samples == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("model", [VITS, SPEECHT5])
async def test_the_same_text_sounds_the_same_alone_and_in_company(tiny: Tiny, model: str) -> None:
    texts = ["one sentence", "two sentences. here they are", "three"] * 2
    async with tiny.expert("audio") as expert:
        alone = [await expert.ask(SPEAK, {"text": text}, model) for text in texts]
        together = await asyncio.gather(*(expert.ask(SPEAK, {"text": text}, model) for text in texts))
    assert together == alone


async def test_slow_speech_takes_longer_than_quick_speech(tiny: Tiny) -> None:
    text = "a rather long sentence that has a few words in it"
    async with tiny.expert("audio") as expert:
        slow, quick = [
            len(read((await expert.ask(SPEAK, {"text": text}, VITS, speed=s))["audio"])[0]) for s in (0.5, 2)
        ]
    assert slow > 1.5 * quick


async def test_voices_sound_different_and_the_unknown_is_refused_by_name(tiny: Tiny) -> None:
    async with tiny.expert("audio") as expert:
        first, second = [await expert.ask(SPEAK, {"text": "hello"}, SPEECHT5, voice=voice) for voice in VOICES]
        usual = await expert.ask(SPEAK, {"text": "hello"}, SPEECHT5)
        error = await expert.refusal(SPEAK, {"text": "hello"}, SPEECHT5, voice="nobody")
        lonely = await expert.refusal(SPEAK, {"text": "hello"}, VITS, voice="nobody")
    assert first != second
    assert usual == first
    assert isinstance(error, InvalidRequest)
    assert ("nobody" in error.message, "clara, otto" in error.remedy) == (True, True)
    assert "one voice" in lonely.message


async def test_a_text_that_cannot_be_spoken_is_refused(tiny: Tiny) -> None:
    async with tiny.expert("audio") as expert:
        for text, model in (("", VITS), ("?!…", VITS), ("日本語", VITS), ("日本語", SPEECHT5), ("word " * 3000, VITS)):
            error = await expert.refusal(SPEAK, {"text": text}, model)
            assert (type(error), error.port) == (InvalidRequest, "text"), (text[:10], error)


@pytest.mark.parametrize("language", ["en", "English", "en-GB", "eng"])
async def test_the_language_of_a_model_is_known_by_all_its_names(tiny: Tiny, language: str) -> None:
    async with tiny.expert("audio") as expert:
        assert "audio" in await expert.ask(SPEAK, {"text": "hello"}, VITS, language=language)
        error = await expert.refusal(SPEAK, {"text": "hello"}, VITS, language="German")
    assert "German" in error.message


def test_sentences_are_spoken_one_by_one_and_long_ones_cut_between_words() -> None:
    assert pieces("One. Two!\nThree") == ["One.", "Two!", "Three"]
    assert max(map(len, pieces("word " * 200))) <= 301
    assert "".join(pieces("x" * 700)) == "x" * 700


async def test_music_is_as_long_as_asked_for_and_hangs_on_its_seed(tiny: Tiny) -> None:
    async with tiny.expert("audio") as expert:
        asked: Any = {"text": "calm piano music"}
        first = await expert.ask(COMPOSE, asked, duration=1.5, seed=7)
        again = await expert.ask(COMPOSE, asked, duration=1.5, seed=7)
        other = await expert.ask(COMPOSE, asked, duration=1.5, seed=8)
    samples, rate = read(first["audio"])
    assert (rate, len(samples)) == (3200, 4800)
    assert first == again != other


async def test_music_is_what_the_model_itself_makes(tiny: Tiny) -> None:
    async with tiny.expert("audio") as expert:
        out = await expert.ask(COMPOSE, {"text": "calm piano music"}, duration=1, seed=3)
    expected = await asyncio.to_thread(composed, tiny.built("audio", "tiny/musicgen"), "calm piano music")
    assert read(out["audio"])[0] == pytest.approx(expected[:3200], abs=1e-4)


async def test_music_longer_than_a_model_can_is_refused_with_the_limit(tiny: Tiny) -> None:
    async with tiny.expert("audio") as expert:
        error = await expert.refusal(COMPOSE, {"text": "music"}, duration=120)
        empty = await expert.refusal(COMPOSE, {"text": " "})
    assert (type(error), "30 s" in error.message) == (InvalidRequest, True)
    assert empty.port == "text"


async def test_a_voice_is_changed_the_same_way_each_time_whatever_the_file(tiny: Tiny) -> None:
    samples = tone(LOW, 1.0, 44_100)
    async with tiny.expert("audio") as expert:
        first = await expert.ask(CONVERT, {"audio": recorded(samples, 44_100, "me.wav")})
        again = await expert.ask(CONVERT, {"audio": recorded(samples, 44_100, "me.wav")})
        stereo = encoded(np.stack([samples, samples], axis=1), 44_100, "FLAC", "audio/flac")
        others = [await expert.ask(CONVERT, {"audio": media}) for media in (stereo, m4a(samples, 44_100))]
    sound, rate = read(first["audio"])
    assert first == again
    assert (rate, first["audio"].name) == (16_000, "me-voice.wav")
    assert 0 < len(sound) / rate < 3
    assert all(len(read(other["audio"])[0]) for other in others)


async def test_a_silent_recording_has_no_voice_to_change(tiny: Tiny) -> None:
    async with tiny.expert("audio") as expert:
        error = await expert.refusal(CONVERT, {"audio": recorded(tone(0, 2.0))})
    assert (type(error), error.port, "silent" in error.message) == (InvalidRequest, "audio", True)

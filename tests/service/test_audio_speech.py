"""Speech, music and voice conversion of the audio expert over gRPC, compared with transformers alone."""

import asyncio
from typing import Any

import numpy as np
import pytest

from experts.audio.text_to_speech import split_text, text_to_speech
from services.common.errors import InvalidRequest
from tests.tiny import TinyModels
from tests.tiny.audio_files import LOW, encode_audio, encode_m4a, make_tone, read_wav, to_wav
from tests.tiny.reference_audio import generate_music, speak_dialogue, synthesize
from tests.tiny.speech import VOICES

pytestmark = pytest.mark.slow

SPEECH, MUSIC, CONVERT = "text-to-speech", "text-to-audio", "audio-to-audio"
VITS, SPEECHT5, DIA = "tiny/vits", "tiny/speecht5", "tiny/dia"


async def test_vits_audio_equals_that_of_transformers_alone(tiny_models: TinyModels) -> None:
    async with tiny_models.serve("audio") as expert:
        out = await expert.call(SPEECH, {"text": "Read this aloud"}, VITS)
    samples, rate = read_wav(out["audio"])
    expected = await asyncio.to_thread(synthesize, tiny_models.build("audio", VITS), "Read this aloud")
    assert rate == 16_000
    assert out["audio"].media_type == "audio/wav"
    assert out["audio"].name == "speech.wav"
    assert samples == pytest.approx(expected, abs=1e-4)


async def test_dialogue_equals_that_of_transformers_alone(tiny_models: TinyModels) -> None:
    text = "[S1] Where is it? [S2] Over there."
    async with tiny_models.serve("audio") as expert:
        out = await expert.call(SPEECH, {"text": text}, DIA)
    samples, rate = read_wav(out["audio"])
    expected = await asyncio.to_thread(speak_dialogue, tiny_models.build("audio", DIA), text)
    assert rate == 8_000
    assert samples == pytest.approx(expected, abs=1e-4)


async def test_text_without_tags_is_spoken_by_the_first_speaker(tiny_models: TinyModels) -> None:
    async with tiny_models.serve("audio") as expert:
        plain, tagged = [await expert.call(SPEECH, {"text": text}, DIA) for text in ("Over there.", "[S1] Over there.")]
    assert plain == tagged


def test_pieces_of_a_dialogue_start_with_their_speakers(tiny_models: TinyModels) -> None:
    tiny_models.build("audio", DIA)
    handler: Any = text_to_speech(DIA, "cpu")
    long = "word " * 50 + "end."
    assert handler.split(f"[S1] Hi. [S2] Hello. {long} {long}") == [
        "[S1] Hi. [S2] Hello. " + long,
        "[S2] " + long,
    ]


@pytest.mark.parametrize(
    ("text", "parameters", "message"),
    [
        ("hello", {"voice": "clara"}, "has no voice 'clara'"),
        ("hello", {"speed": 2}, "has a fixed speed"),
        ("hello", {"language": "German"}, "does not speak 'German'"),
        ("[S1] ?! [S2] 日本語", {}, "no characters that"),
    ],
    ids=["voice", "speed", "language", "text"],
)
async def test_what_dia_cannot_speak_is_rejected(
    tiny_models: TinyModels, text: str, parameters: dict[str, Any], message: str
) -> None:
    async with tiny_models.serve("audio") as expert:
        error = await expert.call_error(SPEECH, {"text": text}, DIA, **parameters)
    assert isinstance(error, InvalidRequest)
    assert message in error.message


@pytest.mark.parametrize("model", [VITS, SPEECHT5])
async def test_concurrent_calls_equal_sequential_calls(tiny_models: TinyModels, model: str) -> None:
    texts = ["one sentence", "two sentences. here they are", "three"] * 2
    async with tiny_models.serve("audio") as expert:
        sequential = [await expert.call(SPEECH, {"text": text}, model) for text in texts]
        concurrent = await asyncio.gather(*(expert.call(SPEECH, {"text": text}, model) for text in texts))
    assert concurrent == sequential


async def test_slow_speech_is_longer_than_fast_speech(tiny_models: TinyModels) -> None:
    text = "a rather long sentence that has a few words in it"
    async with tiny_models.serve("audio") as expert:
        slow, fast = [
            len(read_wav((await expert.call(SPEECH, {"text": text}, VITS, speed=speed))["audio"])[0])
            for speed in (0.5, 2)
        ]
    assert slow > 1.5 * fast


async def test_voices_differ_and_unknown_voice_is_rejected(tiny_models: TinyModels) -> None:
    async with tiny_models.serve("audio") as expert:
        first, second = [await expert.call(SPEECH, {"text": "hello"}, SPEECHT5, voice=voice) for voice in VOICES]
        default = await expert.call(SPEECH, {"text": "hello"}, SPEECHT5)
        error = await expert.call_error(SPEECH, {"text": "hello"}, SPEECHT5, voice="unknown")
        no_voices_error = await expert.call_error(SPEECH, {"text": "hello"}, VITS, voice="unknown")
    assert first != second
    assert default == first
    assert isinstance(error, InvalidRequest)
    assert "unknown" in error.message
    assert "clara, otto" in error.remedy
    assert "one voice" in no_voices_error.message


async def test_text_without_speakable_characters_or_too_long_is_rejected(tiny_models: TinyModels) -> None:
    async with tiny_models.serve("audio") as expert:
        for text, model in (("", VITS), ("?!…", VITS), ("日本語", VITS), ("日本語", SPEECHT5), ("word " * 3000, VITS)):
            error = await expert.call_error(SPEECH, {"text": text}, model)
            assert isinstance(error, InvalidRequest), text[:10]
            assert error.port == "text", text[:10]


@pytest.mark.parametrize("language", ["en", "English", "en-GB", "eng"])
async def test_language_is_accepted_by_any_name_and_another_is_rejected(tiny_models: TinyModels, language: str) -> None:
    async with tiny_models.serve("audio") as expert:
        assert "audio" in await expert.call(SPEECH, {"text": "hello"}, VITS, language=language)
        error = await expert.call_error(SPEECH, {"text": "hello"}, VITS, language="German")
    assert "German" in error.message


def test_text_is_split_into_sentences_and_long_ones_between_words() -> None:
    assert split_text("One. Two!\nThree") == ["One.", "Two!", "Three"]
    assert max(map(len, split_text("word " * 200))) <= 301
    assert "".join(split_text("x" * 700)) == "x" * 700


async def test_music_has_the_requested_duration_and_depends_on_the_seed(tiny_models: TinyModels) -> None:
    async with tiny_models.serve("audio") as expert:
        inputs: Any = {"text": "calm piano music"}
        first = await expert.call(MUSIC, inputs, duration=1.5, seed=7)
        again = await expert.call(MUSIC, inputs, duration=1.5, seed=7)
        other = await expert.call(MUSIC, inputs, duration=1.5, seed=8)
    samples, rate = read_wav(first["audio"])
    assert rate == 3200
    assert len(samples) == 4800
    assert first == again
    assert first != other


async def test_music_equals_that_of_transformers_alone(tiny_models: TinyModels) -> None:
    async with tiny_models.serve("audio") as expert:
        out = await expert.call(MUSIC, {"text": "calm piano music"}, duration=1, seed=3)
    expected = await asyncio.to_thread(generate_music, tiny_models.build("audio", "tiny/musicgen"), "calm piano music")
    assert read_wav(out["audio"])[0] == pytest.approx(expected[:3200], abs=1e-4)


async def test_too_long_duration_and_empty_text_are_rejected(tiny_models: TinyModels) -> None:
    async with tiny_models.serve("audio") as expert:
        error = await expert.call_error(MUSIC, {"text": "music"}, duration=120)
        empty = await expert.call_error(MUSIC, {"text": " "})
    assert isinstance(error, InvalidRequest)
    assert "30 s" in error.message
    assert empty.port == "text"


async def test_voice_conversion_is_reproducible_and_accepts_every_format(tiny_models: TinyModels) -> None:
    samples = make_tone(LOW, 1.0, 44_100)
    async with tiny_models.serve("audio") as expert:
        first = await expert.call(CONVERT, {"audio": to_wav(samples, 44_100, "me.wav")})
        again = await expert.call(CONVERT, {"audio": to_wav(samples, 44_100, "me.wav")})
        stereo = encode_audio(np.stack([samples, samples], axis=1), 44_100, "FLAC", "audio/flac")
        others = [await expert.call(CONVERT, {"audio": media}) for media in (stereo, encode_m4a(samples, 44_100))]
    sound, rate = read_wav(first["audio"])
    assert first == again
    assert rate == 16_000
    assert first["audio"].name == "me-voice.wav"
    assert 0 < len(sound) / rate < 3
    assert all(len(read_wav(other["audio"])[0]) for other in others)


async def test_voice_conversion_without_speaker_embeddings_is_not_loaded(tiny_models: TinyModels) -> None:
    voices = tiny_models.build("audio", "tiny/conversion") / "voices.safetensors"
    content = voices.read_bytes()
    voices.unlink()
    try:
        async with tiny_models.serve("audio") as expert:
            error = await expert.call_error(CONVERT, {"audio": to_wav(make_tone(LOW, 1.0))})
    finally:
        voices.write_bytes(content)
    assert error.reason == "LOAD_FAILED"
    assert "voices.safetensors" in error.message


async def test_voice_conversion_of_silence_is_rejected(tiny_models: TinyModels) -> None:
    async with tiny_models.serve("audio") as expert:
        error = await expert.call_error(CONVERT, {"audio": to_wav(make_tone(0, 2.0))})
    assert isinstance(error, InvalidRequest)
    assert error.port == "audio"
    assert "silent" in error.message

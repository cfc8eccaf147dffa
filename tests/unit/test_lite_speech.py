"""Speech, transcripts and noise, on real engines."""

import sys
import wave
from difflib import SequenceMatcher
from importlib.util import find_spec
from io import BytesIO

import numpy as np
import pytest
from numpy.typing import NDArray

from experts.host.audio import read_audio, wav
from experts.host.handler import Media
from experts.lite.noise_reduction import quieter
from experts.lite.sentences import words
from experts.lite.text_to_speech import MAX_CHARACTERS
from experts.lite.transcription import NO_SPEECH
from services.common.errors import InvalidRequest, ModelFailed
from tests.data.make import SPOKEN
from tests.support.samples import Waiting, ask_lite, infer, lite, sample

TEXT = "We are so happy to see you! Have a wonderful day."


def spoken(text: str, parameters_json: str = "") -> Media:
    if not find_spec("espeakng_loader"):
        pytest.skip("the extra speech is not installed")
    audio = ask_lite("text-to-speech", "espeak-ng", {"text": text}, parameters_json)["audio"]
    assert isinstance(audio, Media)
    return audio


def seconds(recording: Media) -> float:
    with wave.open(BytesIO(recording.content)) as file:
        return float(file.getnframes() / file.getframerate())


# ---------------------------------------------------------------- text to speech


def test_a_text_becomes_a_wav_of_plausible_length_that_is_not_silent() -> None:
    recording = spoken(TEXT)
    assert (recording.media_type, recording.name) == ("audio/wav", "speech.wav")
    assert 2 < seconds(recording) < 5
    samples, rate = read_audio(recording)
    assert rate == 22_050
    assert np.sqrt((samples**2).mean()) > 0.01


def test_the_same_words_sound_the_same_every_time() -> None:
    assert spoken(TEXT).content == spoken(TEXT).content


@pytest.mark.parametrize(
    "parameters",
    ['{"language":"fr"}', '{"language":"German"}', '{"language":"pt-BR"}', '{"voice":"female"}', '{"voice":"whisper"}'],
)
def test_language_and_voice_change_how_it_sounds(parameters: str) -> None:
    assert spoken(TEXT, parameters).content != spoken(TEXT).content


def test_speed_changes_how_long_it_takes() -> None:
    assert (
        seconds(spoken(TEXT, '{"speed":2}'))
        < 0.6 * seconds(spoken(TEXT))
        < 0.4 * seconds(spoken(TEXT, '{"speed":0.5}'))
    )


def test_a_text_in_another_language_is_spoken_in_it_without_being_asked() -> None:
    text = "Bonjour tout le monde, comment allez-vous aujourd'hui ?"
    assert spoken(text).content == spoken(text, '{"language":"fr"}').content


@pytest.mark.parametrize(
    ("text", "parameters", "message", "port"),
    [
        ("   ", "", "The text is empty", "text"),
        ("...", "", "nothing in the text that can be spoken", "text"),
        ("x" * (MAX_CHARACTERS + 1), "", "at most 20,000 are spoken", "text"),
        (TEXT, '{"language":"xx"}', "no voice for the language “xx”", "parameters.language"),
        (TEXT, '{"voice":"nobody"}', "no voice “nobody”", "parameters.voice"),
    ],
)
def test_what_cannot_be_spoken_is_refused_with_a_remedy(text: str, parameters: str, message: str, port: str) -> None:
    with pytest.raises(InvalidRequest, match=message) as caught:
        spoken(text, parameters)
    assert caught.value.remedy
    assert caught.value.port == port


def test_a_long_text_is_spoken_whole() -> None:
    assert seconds(spoken("This is a sentence of seven words. " * 300)) > 300


def test_a_child_that_dies_is_a_failure_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    spoken(TEXT)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(ModelFailed, match="status 1"):
        spoken(TEXT)


def test_the_engine_is_never_loaded_into_this_process() -> None:
    spoken(TEXT)
    assert "espeakng_loader" not in sys.modules
    assert "experts.lite.espeak" not in sys.modules


# ---------------------------------------------------------------- speech recognition


def transcript(recording: Media) -> tuple[str, list[dict[str, float]], dict[str, object]]:
    pytest.importorskip("pocketsphinx", reason="there is no wheel of its engine for this machine")
    outputs = ask_lite("automatic-speech-recognition", "pocketsphinx/en-us", {"audio": recording})
    return outputs["text"], outputs["segments"], outputs["details"]


def test_most_words_of_clear_speech_are_recovered_with_times_and_confidence() -> None:
    recording = sample("speech.wav")
    text, segments, details = transcript(recording)
    assert SequenceMatcher(None, words(SPOKEN), words(text)).ratio() > 0.7
    assert 0 < details["confidence"] < 1  # type: ignore[operator]
    assert details["quality"] == "rough"
    assert "Whisper" in str(details["note"])
    ends = [0.0]
    for segment in segments:
        assert ends[-1] <= segment["start"] < segment["end"] <= seconds(recording) + 0.1
        ends.append(segment["end"])


def test_silence_has_no_speech_in_it() -> None:
    text, segments, details = transcript(wav(np.zeros(32_000, np.float32), 16_000, "silence.wav"))
    assert (text, segments, details["confidence"]) == (NO_SPEECH, [], 0.0)


def test_speech_after_a_long_pause_keeps_its_time() -> None:
    samples, rate = read_audio(sample("speech.wav"))
    pause = np.zeros(5 * rate, np.float32)
    _, segments, _ = transcript(wav(np.concatenate([pause, samples[: 2 * rate]]), rate, "late.wav"))
    assert segments
    assert segments[0]["start"] >= 4.5


def test_a_transcript_tells_how_far_it_is_and_stops_when_nobody_waits() -> None:
    pytest.importorskip("pocketsphinx")
    handler, call = lite("automatic-speech-recognition", "pocketsphinx/en-us"), Waiting()
    infer(handler, {"audio": sample("speech.wav")}, call=call)
    assert call.heard == sorted(call.heard)
    assert 0.8 < call.heard[-1] <= 1
    item = handler.prepare({"audio": sample("speech.wav")}, {})
    assert handler.run([item], Waiting(cancelled=True)) == [[]]


@pytest.mark.parametrize(
    ("recording", "parameters", "message"),
    [
        (sample("speech.wav"), {"language": "de"}, "only knows English"),
        (wav(np.zeros(0, np.float32), 16_000, "x.wav"), {}, "contains no audio samples"),
        (wav(np.zeros(8000 * 601, np.float32), 8000, "x.wav"), {}, "longer than 10 minutes"),
        (sample("sign.png"), {}, "not a supported audio file"),
    ],
)
def test_what_cannot_be_transcribed_is_refused(recording: Media, parameters: dict[str, str], message: str) -> None:
    pytest.importorskip("pocketsphinx")
    with pytest.raises(InvalidRequest, match=message):
        infer(lite("automatic-speech-recognition", "pocketsphinx/en-us"), {"audio": recording}, parameters)


# ---------------------------------------------------------------- noise reduction


def decibels(signal: NDArray[np.float32], other: NDArray[np.float32]) -> float:
    """How far the signal is above what the other adds to it, loudness aside."""
    scaled = other * (signal @ other) / (other @ other)
    return float(10 * np.log10((signal @ signal) / ((signal - scaled) ** 2).sum()))


def test_noise_is_turned_down_and_speech_is_kept() -> None:
    clean, rate = read_audio(sample("speech.wav"))
    noise = np.random.default_rng(1).standard_normal(len(clean)).astype(np.float32)
    noisy = clean + noise * np.sqrt((clean @ clean) / (noise @ noise) / 10)
    assert decibels(clean, noisy) < 11
    assert decibels(clean, quieter(noisy, rate)) > 15


def test_what_is_clean_stays_nearly_as_it_is() -> None:
    clean, rate = read_audio(sample("speech.wav"))
    assert decibels(clean, quieter(clean, rate)) > 20


def test_a_noisy_recording_comes_back_as_long_and_with_less_hiss() -> None:
    before, rate = read_audio(sample("noisy.wav"))
    after = ask_lite("audio-to-audio", "lite/spectral-gate", {"audio": sample("noisy.wav")})["audio"]
    assert after.name == "noisy-denoised.wav"
    heard, same_rate = read_audio(after)
    assert (len(heard), same_rate) == (len(before), rate)
    lead = slice(0, rate // 3)  # before the first word
    assert np.sqrt((heard[lead] ** 2).mean()) < 0.25 * np.sqrt((before[lead] ** 2).mean())


def test_the_seams_of_a_long_recording_cannot_be_heard() -> None:
    rate = 8000
    hum = np.sin(2 * np.pi * 50 * np.arange(70 * rate) / rate).astype(np.float32) * 0.5
    speech = np.concatenate([np.zeros(2 * rate), np.ones(3 * rate)] * 14).astype(np.float32) * hum
    assert abs(np.diff(quieter(speech, rate))).max() < 1.5 * abs(np.diff(speech)).max()


@pytest.mark.parametrize("length", [1, 10, 1000])
def test_recordings_shorter_than_a_frame_survive(length: int) -> None:
    assert quieter(np.full(length, 0.5, np.float32), 16_000).shape == (length,)

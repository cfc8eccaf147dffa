"""Speech synthesis, speech recognition and noise reduction of the lite expert, on the real engines."""

import sys
import wave
from difflib import SequenceMatcher
from importlib.util import find_spec
from io import BytesIO

import numpy as np
import pytest
from numpy.typing import NDArray

from experts.host.handler import Media
from experts.host.media import read_audio, wav
from experts.lite.noise_reduction import reduce_noise
from experts.lite.text_processing import split_words
from experts.lite.text_to_speech import MAX_CHARACTERS
from experts.lite.transcription import NO_SPEECH
from services.common.errors import InvalidRequest, ModelFailed
from tests.data.make import SPOKEN
from tests.support.samples import RecordingCall, infer, load_lite_model, run_lite_task, sample

TEXT = "We are so happy to see you! Have a wonderful day."


def synthesize(text: str, parameters_json: str = "") -> Media:
    if not find_spec("espeakng_loader"):
        pytest.skip("the extra speech is not installed")
    audio = run_lite_task("text-to-speech", "espeak-ng", {"text": text}, parameters_json)["audio"]
    assert isinstance(audio, Media)
    return audio


def duration_seconds(recording: Media) -> float:
    with wave.open(BytesIO(recording.content)) as file:
        return float(file.getnframes() / file.getframerate())


# ---------------------------------------------------------------- text to speech


def test_text_becomes_an_audible_wav_of_plausible_duration() -> None:
    recording = synthesize(TEXT)
    assert recording.media_type == "audio/wav"
    assert recording.name == "speech.wav"
    assert 2 < duration_seconds(recording) < 5
    samples, rate = read_audio(recording)
    assert rate == 22_050
    assert np.sqrt((samples**2).mean()) > 0.01


def test_synthesis_is_deterministic() -> None:
    assert synthesize(TEXT).content == synthesize(TEXT).content


@pytest.mark.parametrize(
    "parameters",
    ['{"language":"fr"}', '{"language":"German"}', '{"language":"pt-BR"}', '{"voice":"female"}', '{"voice":"whisper"}'],
)
def test_language_and_voice_change_the_audio(parameters: str) -> None:
    assert synthesize(TEXT, parameters).content != synthesize(TEXT).content


def test_speed_changes_the_duration() -> None:
    assert (
        duration_seconds(synthesize(TEXT, '{"speed":2}'))
        < 0.6 * duration_seconds(synthesize(TEXT))
        < 0.4 * duration_seconds(synthesize(TEXT, '{"speed":0.5}'))
    )


def test_language_of_the_text_is_detected() -> None:
    text = "Bonjour tout le monde, comment allez-vous aujourd'hui ?"
    assert synthesize(text).content == synthesize(text, '{"language":"fr"}').content


@pytest.mark.parametrize(
    ("text", "parameters", "message", "port"),
    [
        ("   ", "", "the text is empty", "text"),
        ("...", "", "contains nothing that can be spoken", "text"),
        ("x" * (MAX_CHARACTERS + 1), "", "at most 20,000 are spoken", "text"),
        (TEXT, '{"language":"xx"}', "no voice for the language xx", "parameters.language"),
        (TEXT, '{"voice":"unknown"}', "no voice unknown", "parameters.voice"),
    ],
)
def test_invalid_speech_request_is_rejected_with_a_remedy(text: str, parameters: str, message: str, port: str) -> None:
    with pytest.raises(InvalidRequest, match=message) as caught:
        synthesize(text, parameters)
    assert caught.value.remedy
    assert caught.value.port == port


def test_long_text_is_spoken_completely() -> None:
    assert duration_seconds(synthesize("This is a sentence of seven words. " * 300)) > 300


def test_failed_child_process_is_a_model_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    synthesize(TEXT)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(ModelFailed, match="status 1"):
        synthesize(TEXT)


def test_engine_is_not_loaded_into_this_process() -> None:
    synthesize(TEXT)
    assert "espeakng_loader" not in sys.modules
    assert "experts.lite.espeak" not in sys.modules


# ---------------------------------------------------------------- speech recognition


def transcribe(recording: Media) -> tuple[str, list[dict[str, float]], dict[str, object]]:
    pytest.importorskip(
        "pocketsphinx", reason="pocketsphinx is not installed: its engine has no wheel for this platform"
    )
    outputs = run_lite_task("automatic-speech-recognition", "pocketsphinx/en-us", {"audio": recording})
    return outputs["text"], outputs["segments"], outputs["details"]


def test_clear_speech_is_recognized_with_times_and_confidence() -> None:
    recording = sample("speech.wav")
    text, segments, details = transcribe(recording)
    assert SequenceMatcher(None, split_words(SPOKEN), split_words(text)).ratio() > 0.7
    assert 0 < details["confidence"] < 1  # type: ignore[operator]
    assert details["quality"] == "rough"
    assert "Whisper" in str(details["note"])
    ends = [0.0]
    for segment in segments:
        assert ends[-1] <= segment["start"] < segment["end"] <= duration_seconds(recording) + 0.1
        ends.append(segment["end"])


def test_silence_has_no_speech() -> None:
    text, segments, details = transcribe(wav(np.zeros(32_000, np.float32), 16_000, "silence.wav"))
    assert text == NO_SPEECH
    assert segments == []
    assert details["confidence"] == 0.0


def test_speech_after_a_pause_has_its_start_time() -> None:
    samples, rate = read_audio(sample("speech.wav"))
    pause = np.zeros(5 * rate, np.float32)
    _, segments, _ = transcribe(wav(np.concatenate([pause, samples[: 2 * rate]]), rate, "late.wav"))
    assert segments
    assert segments[0]["start"] >= 4.5


def test_transcription_reports_progress_and_stops_when_cancelled() -> None:
    pytest.importorskip("pocketsphinx")
    handler, call = load_lite_model("automatic-speech-recognition", "pocketsphinx/en-us"), RecordingCall()
    infer(handler, {"audio": sample("speech.wav")}, call=call)
    assert call.fractions == sorted(call.fractions)
    assert 0.8 < call.fractions[-1] <= 1
    item = handler.prepare({"audio": sample("speech.wav")}, {})
    assert handler.run([item], RecordingCall(cancelled=True)) == [[]]


@pytest.mark.parametrize(
    ("recording", "parameters", "message"),
    [
        (sample("speech.wav"), {"language": "de"}, "supports only English"),
        (wav(np.zeros(0, np.float32), 16_000, "x.wav"), {}, "contains no audio samples"),
        (wav(np.zeros(8000 * 601, np.float32), 8000, "x.wav"), {}, "longer than 10 minutes"),
        (sample("sign.png"), {}, "not a supported audio file"),
    ],
)
def test_invalid_transcription_request_is_rejected(recording: Media, parameters: dict[str, str], message: str) -> None:
    pytest.importorskip("pocketsphinx")
    with pytest.raises(InvalidRequest, match=message):
        infer(load_lite_model("automatic-speech-recognition", "pocketsphinx/en-us"), {"audio": recording}, parameters)


# ---------------------------------------------------------------- noise reduction


def measure_snr_db(signal: NDArray[np.float32], other: NDArray[np.float32]) -> float:
    """Returns the scale-invariant signal-to-noise ratio of the other recording, with the signal as reference."""
    scaled = other * (signal @ other) / (other @ other)
    return float(10 * np.log10((signal @ signal) / ((signal - scaled) ** 2).sum()))


def test_noise_is_reduced_and_speech_is_preserved() -> None:
    clean, rate = read_audio(sample("speech.wav"))
    noise = np.random.default_rng(1).standard_normal(len(clean)).astype(np.float32)
    noisy = clean + noise * np.sqrt((clean @ clean) / (noise @ noise) / 10)
    assert measure_snr_db(clean, noisy) < 11
    assert measure_snr_db(clean, reduce_noise(noisy, rate)) > 15


def test_clean_recording_is_nearly_unchanged() -> None:
    clean, rate = read_audio(sample("speech.wav"))
    assert measure_snr_db(clean, reduce_noise(clean, rate)) > 20


def test_denoised_recording_has_the_same_length_and_less_noise() -> None:
    before, rate = read_audio(sample("noisy.wav"))
    after = run_lite_task("audio-to-audio", "lite/spectral-gate", {"audio": sample("noisy.wav")})["audio"]
    assert after.name == "noisy-denoised.wav"
    cleaned, cleaned_rate = read_audio(after)
    assert len(cleaned) == len(before)
    assert cleaned_rate == rate
    lead = slice(0, rate // 3)  # before the first word
    assert np.sqrt((cleaned[lead] ** 2).mean()) < 0.25 * np.sqrt((before[lead] ** 2).mean())


def test_chunks_of_a_long_recording_join_without_discontinuities() -> None:
    rate = 8000
    hum = np.sin(2 * np.pi * 50 * np.arange(70 * rate) / rate).astype(np.float32) * 0.5
    speech = np.concatenate([np.zeros(2 * rate), np.ones(3 * rate)] * 14).astype(np.float32) * hum
    assert abs(np.diff(reduce_noise(speech, rate))).max() < 1.5 * abs(np.diff(speech)).max()


@pytest.mark.parametrize("length", [1, 10, 1000])
def test_recording_shorter_than_a_frame_is_accepted(length: int) -> None:
    assert reduce_noise(np.full(length, 0.5, np.float32), 16_000).shape == (length,)

"""Audio handlers without a server: features are extracted in prepare, and batches do not change results."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    ClapFeatureExtractor,
    Wav2Vec2Config,
    Wav2Vec2FeatureExtractor,
    Wav2Vec2ForSequenceClassification,
    WhisperFeatureExtractor,
)
from transformers.models.whisper.modeling_whisper import WhisperEncoder

from experts.audio.classification import Classifier, audio_classification, zero_shot_audio_classification
from experts.audio.transcription import automatic_speech_recognition
from experts.audio.voice_activity import voice_activity_detection
from experts.audio.whisper_decoding import DecodedWindow, Thresholds
from experts.host.handler import Handler, Parameters
from experts.torch_host.checkpoint import Checkpoint
from tests.tiny import TinyModels
from tests.tiny.audio_files import HIGH, LOW, make_tone, make_tones, to_wav
from tests.tiny.whisper import UTTERANCES

pytestmark = pytest.mark.slow


class RunningCall:
    cancelled = False

    def progress(self, fraction: float, message: str = "") -> None:
        """Ignores progress."""


CALL = RunningCall()

Case = tuple[Callable[[str, str], Handler], str, Parameters, type]

CASES: list[Case] = [
    (automatic_speech_recognition, "tiny/letters", {}, Wav2Vec2FeatureExtractor),
    (automatic_speech_recognition, "tiny/whisper", {}, WhisperFeatureExtractor),
    (audio_classification, "tiny/pitches", {"top_k": 2}, Wav2Vec2FeatureExtractor),
    (zero_shot_audio_classification, "tiny/clap", {"candidate_labels": ["dog", "car horn"]}, ClapFeatureExtractor),
    (voice_activity_detection, "tiny/activity", {"threshold": 0.5}, Wav2Vec2FeatureExtractor),
]

SOUNDS = [UTTERANCES[0][0], UTTERANCES[1][0], make_tones((LOW, 1.3), (0, 0.4), (HIGH, 0.8)), make_tone(0, 1.0)]


@pytest.fixture(params=CASES, ids=lambda case: case[1])
def case(request: pytest.FixtureRequest, tiny_models: TinyModels) -> Case:
    case: Case = request.param
    tiny_models.build("audio", case[1])
    return case


def load(tiny_models: TinyModels, loader: Callable[[str, str], Handler], model: str) -> Handler:
    tiny_models.build("audio", model)
    return loader(model, "cpu")


def test_run_extracts_no_features(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    def extract(*_: Any, **__: Any) -> Any:
        raise AssertionError("features extracted on the device's thread")

    loader, model, parameters, extractor = case
    handler: Any = loader(model, "cpu")
    items = [handler.prepare({"audio": to_wav(sound)}, parameters) for sound in SOUNDS]
    monkeypatch.setattr(extractor, "__call__", extract)
    assert len(handler.run(items, CALL)) == len(SOUNDS)


def test_result_in_a_batch_equals_that_of_a_single_call(case: Case) -> None:
    loader, model, parameters, _ = case
    handler: Any = loader(model, "cpu")
    items = [handler.prepare({"audio": to_wav(sound)}, parameters) for sound in SOUNDS]
    alone = [handler.finish(handler.run([item], CALL)[0]) for item in items]
    together = [handler.finish(raw) for raw in handler.run(items, CALL)]
    assert together == alone


def test_batch_can_be_run_again(case: Case) -> None:
    loader, model, parameters, _ = case
    handler: Any = loader(model, "cpu")
    item = handler.prepare({"audio": to_wav(SOUNDS[2])}, parameters)
    first, second = (handler.finish(handler.run([item], CALL)[0]) for _ in range(2))
    assert first == second


def test_batch_costs_the_sum_of_its_items(case: Case) -> None:
    """Windows of different lengths are not padded to each other."""
    loader, model, _, _ = case
    assert loader(model, "cpu").batching.cost([1.0, 30.0]) == 31.0


def test_whisper_item_costs_its_padded_windows_without_leading_silence(tiny_models: TinyModels) -> None:
    handler = load(tiny_models, automatic_speech_recognition, "tiny/whisper")
    sound = np.concatenate([make_tone(0, 30.0), make_tone(LOW, 31.0)])
    assert handler.cost(handler.prepare({"audio": to_wav(sound)}, {})) == 60.0


def test_ctc_item_costs_its_overlapping_windows(tiny_models: TinyModels) -> None:
    """25 s are a window of 23 s and one of 8 s: each has 3 s of context on the side of the other."""
    handler = load(tiny_models, automatic_speech_recognition, "tiny/letters")
    assert handler.cost(handler.prepare({"audio": to_wav(make_tone(LOW, 25.0))}, {})) == 31.0


@pytest.mark.parametrize("model", ["tiny/letters", "tiny/whisper"])
def test_silence_costs_nothing(tiny_models: TinyModels, model: str) -> None:
    handler = load(tiny_models, automatic_speech_recognition, model)
    assert handler.cost(handler.prepare({"audio": to_wav(make_tone(0, 5.0))}, {})) == 0.0


def test_whisper_encodes_a_window_once_to_detect_its_language_and_to_transcribe_it(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler: Any = load(tiny_models, automatic_speech_recognition, "tiny/whisper")
    encoded, forward = list[int](), WhisperEncoder.forward

    def count(self: Any, input_features: Any, **options: Any) -> Any:
        encoded.append(len(input_features))
        return forward(self, input_features, **options)

    monkeypatch.setattr(WhisperEncoder, "forward", count)
    items = [handler.prepare({"audio": to_wav(sound)}, {}) for sound in SOUNDS[:2]]
    languages = [handler.finish(raw)["details"]["language"] for raw in handler.run(items, CALL)]
    assert languages == ["en", "fr"]
    assert encoded == [2]


def test_improbable_text_is_decoded_again_at_each_temperature(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler: Any = load(tiny_models, automatic_speech_recognition, "tiny/whisper")
    handler.decoder.thresholds = Thresholds(temperatures=(0.0, 0.5, 1.0), min_log_probability=0.1, max_no_speech=1.0)
    rows, generate = list[int](), handler.model.generate

    def count(**options: Any) -> Any:
        rows.append(len(options["encoder_outputs"].last_hidden_state))
        return generate(**options)

    monkeypatch.setattr(handler.model, "generate", count)
    items = [handler.prepare({"audio": to_wav(sound)}, {}) for sound in SOUNDS[:2]]
    handler.run(items, CALL)
    assert rows == [2, 2, 2]


def test_sampled_transcript_is_reproducible_and_independent_of_the_batch(tiny_models: TinyModels) -> None:
    handler: Any = load(tiny_models, automatic_speech_recognition, "tiny/whisper")
    handler.decoder.thresholds = Thresholds(temperatures=(5.0,))
    items = [handler.prepare({"audio": to_wav(sound)}, {}) for sound in SOUNDS[:3]]
    together = [handler.finish(raw) for raw in handler.run(items, CALL)]
    alone = [handler.finish(handler.run([item], CALL)[0]) for item in items]
    assert together == alone


def test_window_without_speech_has_no_text(tiny_models: TinyModels) -> None:
    handler: Any = load(tiny_models, automatic_speech_recognition, "tiny/whisper")
    handler.decoder.thresholds = Thresholds(min_log_probability=0.1, max_no_speech=-1.0)
    item = handler.prepare({"audio": to_wav(SOUNDS[0])}, {})
    assert handler.finish(handler.run([item], CALL)[0])["text"] == "No speech found."


@pytest.mark.parametrize(
    ("text", "logs", "no_speech", "doubtful"),
    [
        ("a clear sentence", [-0.1, -0.2], 0.0, False),
        ("an improbable one", [-1.5, -1.2], 0.0, True),
        ("again " * 40, [-0.1], 0.0, True),
        ("noise", [-1.5, -1.2], 0.9, False),
    ],
)
def test_window_is_doubtful_if_its_text_is_improbable_or_repeated(
    text: str, logs: list[float], no_speech: float, *, doubtful: bool
) -> None:
    assert DecodedWindow([1] * len(logs), logs, no_speech).is_doubtful(text, Thresholds()) == doubtful


def test_classes_of_audioset_are_independent(tiny_models: TinyModels) -> None:
    """AudioSet has 527 classes, and a recording may have several; the configuration of AST does not state it."""
    folder = tiny_models.build("audio", "tiny/pitches")
    config = Wav2Vec2Config.from_pretrained(folder)
    config.id2label = {number: f"class {number}" for number in range(527)}
    model = Wav2Vec2ForSequenceClassification(config).eval()
    torch.nn.init.zeros_(model.classifier.weight)
    torch.nn.init.constant_(model.classifier.bias, 9.0)
    checkpoint = Checkpoint("tiny/audioset", folder, "", torch.device("cpu"), torch.float32)
    handler = Classifier(checkpoint, model, Wav2Vec2FeatureExtractor.from_pretrained(folder))
    item = handler.prepare({"audio": to_wav(SOUNDS[0])}, {"top_k": 2})
    labels = handler.finish(handler.run([item], CALL)[0])["labels"]
    assert [label["score"] > 0.99 for label in labels] == [True, True]

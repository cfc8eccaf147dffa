"""Tiny audio models for recognition and classification, and the registry of all tiny audio models."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.tiny import TinyModel
from tests.tiny.audio_files import HIGH, LOW, RATE, make_tone, make_tones
from tests.tiny.music import build_clap, build_musicgen
from tests.tiny.speech import build_dia, build_speecht5_conversion, build_speecht5_tts, build_vits
from tests.tiny.training import train
from tests.tiny.whisper import build_whisper

LABELS = ("low", "high")
LETTERS = ("<pad>", "<s>", "</s>", "<unk>", "|", "A", "B", "C", "D")
CTC_SOUND = make_tones((LOW, 0.5), (HIGH, 0.5), (0, 1.0), (LOW, 0.5))
"""Sound that the CTC model transcribes as AB, a pause, and A."""

_SIZES: Mapping[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "conv_dim": (32, 32, 32),
    "conv_stride": (10, 8, 4),
    "conv_kernel": (10, 8, 4),
    "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2,
    "classifier_proj_size": 16,
    **dict.fromkeys(
        ("hidden_dropout", "activation_dropout", "attention_dropout", "feat_proj_dropout", "final_dropout"), 0.0
    ),
    "layerdrop": 0.0,
    "apply_spec_augment": False,
}
"""320 samples per frame, as in large models."""


def _make_wav2vec2(model_class: str, **options: Any) -> Any:
    import torch
    import transformers

    torch.manual_seed(0)
    return getattr(transformers, model_class)(transformers.Wav2Vec2Config(**{**_SIZES, **options}))


def _save_feature_extractor(folder: Path) -> Any:
    from transformers import Wav2Vec2FeatureExtractor

    features = Wav2Vec2FeatureExtractor(sampling_rate=RATE, return_attention_mask=False)
    features.save_pretrained(folder)
    return features


def _label_config(*names: str) -> dict[str, Any]:
    return {"id2label": dict(enumerate(names)), "label2id": {name: index for index, name in enumerate(names)}}


def build_ctc(folder: Path) -> None:
    """Builds a CTC model: A for a low tone, B for a high tone, a space for silence."""
    import torch
    from transformers import Wav2Vec2CTCTokenizer, Wav2Vec2FeatureExtractor, Wav2Vec2Processor

    (folder / "vocab.json").write_text(json.dumps({letter: index for index, letter in enumerate(LETTERS)}))
    tokenizer = Wav2Vec2CTCTokenizer(folder / "vocab.json")
    features = Wav2Vec2FeatureExtractor(sampling_rate=RATE, return_attention_mask=False)
    Wav2Vec2Processor(features, tokenizer).save_pretrained(folder)
    batch = features([CTC_SOUND], sampling_rate=RATE, return_tensors="pt")
    model = _make_wav2vec2("Wav2Vec2ForCTC", vocab_size=len(LETTERS), pad_token_id=0)
    frames = model._get_feat_extract_output_lengths(len(CTC_SOUND))
    times = (torch.arange(int(frames)) + 0.5) / frames * len(CTC_SOUND) / RATE
    labels = (
        (times < 0.5) * 5 + ((times >= 0.5) & (times < 1)) * 6 + ((times >= 1) & (times < 2)) * 4 + (times >= 2) * 5
    )

    def loss(model: Any) -> Any:
        return torch.nn.functional.cross_entropy(model(**batch).logits[0], labels)

    train(model, loss).save_pretrained(folder)


def build_pitch_classifier(folder: Path) -> None:
    """Builds a classifier of low and high tones."""
    import torch

    features = _save_feature_extractor(folder)
    sounds = [make_tone(LOW), make_tone(HIGH), make_tone(LOW * 1.1), make_tone(HIGH * 1.1)]
    batch = features(sounds, sampling_rate=RATE, return_tensors="pt")
    labels = torch.tensor([0, 1, 0, 1])
    model = _make_wav2vec2("Wav2Vec2ForSequenceClassification", **_label_config(*LABELS))
    train(model, lambda model: model(**batch, labels=labels).loss).save_pretrained(folder)


def build_voice_activity(folder: Path) -> None:
    """Builds a voice activity detector that takes tones for speech."""
    import torch

    features = _save_feature_extractor(folder)
    sounds = make_tones((0, 0.5), (LOW, 1.0), (0, 0.5), (HIGH, 0.5))
    batch = features([sounds], sampling_rate=RATE, return_tensors="pt")
    model = _make_wav2vec2("Wav2Vec2ForAudioFrameClassification", **_label_config("noise", "speech"))
    frames = model._get_feat_extract_output_lengths(len(sounds))
    times = (torch.arange(int(frames)) + 0.5) / frames * len(sounds) / RATE
    labels = (((times >= 0.5) & (times < 1.5)) | (times >= 2)).long()

    def loss(model: Any) -> Any:
        return torch.nn.functional.cross_entropy(model(**batch).logits[0], labels)

    train(model, loss).save_pretrained(folder)


MODELS: Mapping[str, TinyModel] = {
    "tiny/letters": TinyModel(("automatic-speech-recognition",), build_ctc),
    "tiny/whisper": TinyModel(("automatic-speech-recognition",), build_whisper),
    "tiny/pitches": TinyModel(("audio-classification",), build_pitch_classifier),
    "tiny/clap": TinyModel(("zero-shot-audio-classification",), build_clap),
    "tiny/vits": TinyModel(("text-to-speech",), build_vits),
    "tiny/speecht5": TinyModel(("text-to-speech",), build_speecht5_tts),
    "tiny/dia": TinyModel(("text-to-speech",), build_dia),
    "tiny/musicgen": TinyModel(("text-to-audio",), build_musicgen),
    "tiny/conversion": TinyModel(("audio-to-audio",), build_speecht5_conversion),
    "tiny/activity": TinyModel(("voice-activity-detection",), build_voice_activity),
}

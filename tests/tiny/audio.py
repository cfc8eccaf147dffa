"""Tiny models of speech and sounds; the registry of all."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.tiny import Model
from tests.tiny.composers import composer, matcher
from tests.tiny.sounds import HIGH, LOW, RATE, tone, tones
from tests.tiny.speakers import converter, reader, speaker
from tests.tiny.training import taught
from tests.tiny.whispers import whisper

LABELS = ("low", "high")
LETTERS = ("<pad>", "<s>", "</s>", "<unk>", "|", "A", "B", "C", "D")
LESSON = tones((LOW, 0.5), (HIGH, 0.5), (0, 1.0), (LOW, 0.5))
"""What the CTC model hears as AB, a pause, and A."""

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
"""320 samples to a frame, as the large ones have."""


def _listener(kind: str, **options: Any) -> Any:
    import torch
    import transformers

    torch.manual_seed(0)
    return getattr(transformers, kind)(transformers.Wav2Vec2Config(**{**_SIZES, **options}))


def _features(folder: Path) -> Any:
    from transformers import Wav2Vec2FeatureExtractor

    features = Wav2Vec2FeatureExtractor(sampling_rate=RATE, return_attention_mask=False)
    features.save_pretrained(folder)
    return features


def _names(*names: str) -> dict[str, Any]:
    return {"id2label": dict(enumerate(names)), "label2id": {name: at for at, name in enumerate(names)}}


def letters(folder: Path) -> None:
    """Writes A for a low tone, B for a high one and a space for silence."""
    import torch
    from transformers import Wav2Vec2CTCTokenizer, Wav2Vec2FeatureExtractor, Wav2Vec2Processor

    (folder / "vocab.json").write_text(json.dumps({letter: at for at, letter in enumerate(LETTERS)}))
    tokenizer = Wav2Vec2CTCTokenizer(folder / "vocab.json")
    features = Wav2Vec2FeatureExtractor(sampling_rate=RATE, return_attention_mask=False)
    Wav2Vec2Processor(features, tokenizer).save_pretrained(folder)
    batch = features([LESSON], sampling_rate=RATE, return_tensors="pt")
    model = _listener("Wav2Vec2ForCTC", vocab_size=len(LETTERS), pad_token_id=0)
    frames = model._get_feat_extract_output_lengths(len(LESSON))
    times = (torch.arange(int(frames)) + 0.5) / frames * len(LESSON) / RATE
    spoken = (
        (times < 0.5) * 5 + ((times >= 0.5) & (times < 1)) * 6 + ((times >= 1) & (times < 2)) * 4 + (times >= 2) * 5
    )

    def loss(model: Any) -> Any:
        return torch.nn.functional.cross_entropy(model(**batch).logits[0], spoken)

    taught(model, loss).save_pretrained(folder)


def pitches(folder: Path) -> None:
    """Tells low tones from high ones."""
    import torch

    features = _features(folder)
    sounds = [tone(LOW), tone(HIGH), tone(LOW * 1.1), tone(HIGH * 1.1)]
    batch = features(sounds, sampling_rate=RATE, return_tensors="pt")
    labels = torch.tensor([0, 1, 0, 1])
    model = _listener("Wav2Vec2ForSequenceClassification", **_names(*LABELS))
    taught(model, lambda model: model(**batch, labels=labels).loss).save_pretrained(folder)


def activity(folder: Path) -> None:
    """Takes tones for speech."""
    import torch

    features = _features(folder)
    sounds = tones((0, 0.5), (LOW, 1.0), (0, 0.5), (HIGH, 0.5))
    batch = features([sounds], sampling_rate=RATE, return_tensors="pt")
    model = _listener("Wav2Vec2ForAudioFrameClassification", **_names("noise", "speech"))
    frames = model._get_feat_extract_output_lengths(len(sounds))
    times = (torch.arange(int(frames)) + 0.5) / frames * len(sounds) / RATE
    labels = (((times >= 0.5) & (times < 1.5)) | (times >= 2)).long()

    def loss(model: Any) -> Any:
        return torch.nn.functional.cross_entropy(model(**batch).logits[0], labels)

    taught(model, loss).save_pretrained(folder)


MODELS: Mapping[str, Model] = {
    "tiny/letters": Model(("automatic-speech-recognition",), letters),
    "tiny/whisper": Model(("automatic-speech-recognition",), whisper),
    "tiny/pitches": Model(("audio-classification",), pitches),
    "tiny/clap": Model(("zero-shot-audio-classification",), matcher),
    "tiny/vits": Model(("text-to-speech",), speaker),
    "tiny/speecht5": Model(("text-to-speech",), reader),
    "tiny/musicgen": Model(("text-to-audio",), composer),
    "tiny/conversion": Model(("audio-to-audio",), converter),
    "tiny/activity": Model(("voice-activity-detection",), activity),
}

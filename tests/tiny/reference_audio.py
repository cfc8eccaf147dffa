"""Reference outputs of the tiny audio models, called directly."""

from pathlib import Path
from typing import Any

from experts.audio.classification import HYPOTHESIS
from experts.audio.text_to_speech import CODEC
from tests.tiny.audio_files import RATE


def transcribe(folder: Any, sound: Any) -> str:
    """Returns Whisper's text, in French."""
    from transformers import AutoProcessor, WhisperForConditionalGeneration

    processor, model = AutoProcessor.from_pretrained(folder), WhisperForConditionalGeneration.from_pretrained(folder)
    batch = processor(sound, sampling_rate=RATE, return_tensors="pt")
    ids = model.generate(
        batch["input_features"],
        language="fr",
        task="transcribe",
        return_timestamps=True,
        force_unique_generate_call=True,
    )
    return str(processor.decode(ids[0], skip_special_tokens=True)).strip()


def score_labels(folder: Path, sound: Any, labels: list[str]) -> list[float]:
    """Returns CLAP's scores of the labels."""
    import torch
    from transformers import AutoProcessor, ClapModel

    processor, model = AutoProcessor.from_pretrained(folder), ClapModel.from_pretrained(folder).eval()
    texts = [HYPOTHESIS.format(label) for label in labels]
    batch = processor(text=texts, audio=sound, sampling_rate=RATE, return_tensors="pt", padding=True)
    with torch.inference_mode():
        scores: list[float] = model(**batch).logits_per_audio[0].softmax(-1).tolist()
    return scores


def synthesize(folder: Path, text: str) -> Any:
    """Returns VITS' samples."""
    import torch
    from transformers import AutoTokenizer, VitsModel

    tokenizer, model = AutoTokenizer.from_pretrained(folder), VitsModel.from_pretrained(folder).eval()
    torch.manual_seed(0)
    with torch.inference_mode():
        return model(**tokenizer(text, return_tensors="pt")).waveform[0].numpy()


def speak_dialogue(folder: Path, text: str) -> Any:
    """Returns Dia's samples with seed 0."""
    import torch
    from transformers import DacModel, DiaFeatureExtractor, DiaForConditionalGeneration, DiaProcessor, DiaTokenizer

    codec = DacModel.from_pretrained(folder.parents[1] / CODEC).eval()
    processor = DiaProcessor(DiaFeatureExtractor(), DiaTokenizer.from_pretrained(folder), audio_tokenizer=codec)
    model = DiaForConditionalGeneration.from_pretrained(folder).eval()
    torch.manual_seed(0)
    tokens = model.generate(**processor(text=[text], padding=False, return_tensors="pt"), max_new_tokens=48)
    sound = processor.batch_decode(tokens)[0].numpy()
    return sound / max(1.0, abs(sound).max())


def generate_music(folder: Path, text: str) -> Any:
    """Returns one second of MusicGen with seed 3."""
    import torch
    from transformers import AutoProcessor, MusicgenForConditionalGeneration

    processor = AutoProcessor.from_pretrained(folder)
    model = MusicgenForConditionalGeneration.from_pretrained(folder).eval()
    torch.manual_seed(3)
    tokens = processor.tokenizer(text, return_tensors="pt")
    sound = model.generate(**tokens, max_new_tokens=52, do_sample=True)[0, 0].numpy()
    return sound / max(1.0, abs(sound).max())

"""Tiny speech models, whose output is deterministic noise."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

VOICES = ("clara", "otto")

_LETTERS = " abcdefghijklmnopqrstuvwxyz'-"
_SPEECHT5: Mapping[str, Any] = {
    "hidden_size": 24,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 16,
    "decoder_ffn_dim": 16,
    "num_mel_bins": 8,
    "speech_decoder_prenet_units": 16,
    "speech_decoder_postnet_units": 16,
    "speech_decoder_postnet_layers": 2,
    "speaker_embedding_dim": 16,
    "conv_dim": (16, 16, 16),
    "conv_stride": (10, 8, 4),
    "conv_kernel": (10, 8, 4),
    "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2,
    "max_text_positions": 60,
}


def build_vits(folder: Path, language: str = "eng") -> None:
    """Builds a VITS as in MMS: letters as input, a waveform as output."""
    import torch
    from transformers import VitsConfig, VitsModel, VitsTokenizer

    (folder / "vocab.json").write_text(json.dumps({letter: index for index, letter in enumerate("_" + _LETTERS)}))
    VitsTokenizer(folder / "vocab.json", pad_token="_", language=language, phonemize=False).save_pretrained(folder)
    torch.manual_seed(0)
    config = VitsConfig(
        vocab_size=len(_LETTERS) + 1,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        ffn_dim=16,
        flow_size=16,
        spectrogram_bins=9,
        duration_predictor_num_flows=2,
        duration_predictor_filter_channels=16,
        prior_encoder_num_flows=2,
        upsample_initial_channel=16,
        upsample_rates=[8, 8],
        upsample_kernel_sizes=[16, 16],
        resblock_kernel_sizes=[3],
        resblock_dilation_sizes=[[1, 3]],
        posterior_encoder_num_wavenet_layers=1,
        prior_encoder_num_wavenet_layers=1,
        wavenet_dilation_rate=1,
        sampling_rate=16_000,
    )
    VitsModel(config).save_pretrained(folder)


def build_speecht5_tts(folder: Path) -> None:
    """Builds a SpeechT5 with two voices and a vocoder."""
    import sentencepiece
    import torch
    from transformers import SpeechT5Config, SpeechT5ForTextToSpeech, SpeechT5Tokenizer

    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([_LETTERS.strip(), "read this aloud"] * 8),
        model_prefix=str(folder / "spm_char"),
        model_type="char",
        vocab_size=len(_LETTERS) + 4,
        hard_vocab_limit=False,
        minloglevel=2,
        bos_id=0,
        pad_id=1,
        eos_id=2,
        unk_id=3,
    )
    tokenizer = SpeechT5Tokenizer(str(folder / "spm_char.model"))
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    SpeechT5ForTextToSpeech(SpeechT5Config(vocab_size=len(tokenizer), **_SPEECHT5)).save_pretrained(folder)
    _build_vocoder(folder)
    _save_voices(folder)


def build_dia(folder: Path) -> None:
    """Builds an untrained Dia, and the audio codec that it requires."""
    import torch
    from transformers import DacConfig, DacModel, DiaConfig, DiaForConditionalGeneration, DiaTokenizer

    codec = folder.parents[1] / "descript/dac_44khz"
    torch.manual_seed(0)
    codec_config = DacConfig(
        encoder_hidden_size=4, decoder_hidden_size=16, downsampling_ratios=[4, 8], codebook_dim=2, sampling_rate=8_000
    )
    DacModel(codec_config).save_pretrained(codec)
    DiaTokenizer().save_pretrained(folder)
    sizes: Mapping[str, Any] = {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "intermediate_size": 32,
    }
    cross = {"cross_hidden_size": 16, "cross_num_attention_heads": 2, "cross_num_key_value_heads": 2}
    config = DiaConfig(
        encoder_config={**sizes, "max_position_embeddings": 1024},
        decoder_config={**sizes, **cross, "cross_head_dim": 8, "max_position_embeddings": 64},
    )
    model: Any = DiaForConditionalGeneration(config)
    generation = model.generation_config
    generation.do_sample, generation.guidance_scale, generation.temperature = True, 3.0, 1.8
    generation.top_k, generation.top_p, generation.max_length = 45, 0.9, 64
    model.save_pretrained(folder)


def build_speecht5_conversion(folder: Path) -> None:
    """Builds a SpeechT5 for voice conversion, with two voices."""
    import torch
    from transformers import SpeechT5Config, SpeechT5FeatureExtractor, SpeechT5ForSpeechToSpeech

    SpeechT5FeatureExtractor(num_mel_bins=8, sampling_rate=16_000).save_pretrained(folder)
    torch.manual_seed(0)
    SpeechT5ForSpeechToSpeech(SpeechT5Config(vocab_size=16, **_SPEECHT5)).save_pretrained(folder)
    _build_vocoder(folder)
    _save_voices(folder)


def _save_voices(folder: Path) -> None:
    import torch
    from safetensors.torch import save_file

    voices = {name: torch.nn.functional.normalize(torch.randn(16), dim=0) for name in VOICES}
    save_file(voices, folder / "voices.safetensors")


def _build_vocoder(folder: Path) -> None:
    from transformers import SpeechT5HifiGan, SpeechT5HifiGanConfig

    config = SpeechT5HifiGanConfig(
        model_in_dim=8,
        upsample_initial_channel=16,
        upsample_rates=[4, 4],
        upsample_kernel_sizes=[8, 8],
        resblock_kernel_sizes=[3],
        resblock_dilation_sizes=[[1, 3]],
        initializer_range=0.2,
    )
    SpeechT5HifiGan(config).save_pretrained(folder / "vocoder")

"""Tiny models of text and sound: MusicGen and CLAP."""

from pathlib import Path
from typing import Any

WORDS = ("calm", "piano", "music", "this", "is", "a", "sound", "of", "dog", "car", "horn", ".")


def build_musicgen(folder: Path) -> None:
    """Builds a MusicGen with a codec of 50 frames per second."""
    import torch
    from transformers import (
        EncodecConfig,
        EncodecFeatureExtractor,
        MusicgenConfig,
        MusicgenDecoderConfig,
        MusicgenForConditionalGeneration,
        MusicgenProcessor,
        T5Config,
    )

    tokenizer = _make_tokenizer()
    MusicgenProcessor(EncodecFeatureExtractor(sampling_rate=3200), tokenizer).save_pretrained(folder)
    torch.manual_seed(0)
    text = T5Config(vocab_size=len(tokenizer), d_model=16, d_ff=16, d_kv=8, num_layers=1, num_heads=2)
    codec = EncodecConfig(
        sampling_rate=3200,
        target_bandwidths=[0.8],
        hidden_size=16,
        num_filters=4,
        num_lstm_layers=1,
        upsampling_ratios=[8, 4, 2],
        codebook_size=16,
        codebook_dim=16,
    )
    decoder = MusicgenDecoderConfig(
        vocab_size=16,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        ffn_dim=16,
        num_codebooks=2,
        pad_token_id=16,
        bos_token_id=16,
    )
    config = MusicgenConfig(text_encoder=text, audio_encoder=codec, decoder=decoder)
    model = MusicgenForConditionalGeneration(config)
    model.generation_config.update(
        do_sample=True, guidance_scale=3.0, max_length=100, pad_token_id=16, bos_token_id=16, decoder_start_token_id=16
    )
    quantizer: Any = model.audio_encoder.quantizer
    for layer in quantizer.layers:
        torch.nn.init.normal_(layer.codebook.embed)  # otherwise all tokens sound the same
    model.save_pretrained(folder)


def build_clap(folder: Path) -> None:
    """Builds an untrained CLAP; tests compare with the model called directly."""
    import torch
    from transformers import ClapAudioConfig, ClapConfig, ClapFeatureExtractor, ClapModel, ClapProcessor, ClapTextConfig

    tokenizer = _make_tokenizer()
    features = ClapFeatureExtractor(
        feature_size=16,
        sampling_rate=16_000,
        hop_length=480,
        max_length_s=2,
        frequency_max=8000,
        truncation="rand_trunc",
    )
    ClapProcessor(features, tokenizer).save_pretrained(folder)
    torch.manual_seed(0)
    text = ClapTextConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=40,
        projection_dim=16,
        pad_token_id=tokenizer.pad_token_id,
    )
    audio = ClapAudioConfig(
        num_mel_bins=16,
        spec_size=64,
        window_size=4,
        hidden_size=32,
        depths=[1, 1],
        num_attention_heads=[2, 2],
        num_hidden_layers=2,
        patch_embeds_hidden_size=16,
        projection_dim=16,
    )
    ClapModel(ClapConfig(text_config=text.to_dict(), audio_config=audio.to_dict(), projection_dim=16)).save_pretrained(
        folder
    )


def _make_tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: index for index, word in enumerate(("<pad>", "</s>", "<unk>", *WORDS))}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="<pad>", eos_token="</s>", unk_token="<unk>", model_max_length=32
    )

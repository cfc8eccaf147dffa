"""Models of production size for GPUs, with random weights, and their inputs.

They are created on torch's default device; on "meta" they need neither time nor memory.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from diffusers import UNet2DConditionModel
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    ViTConfig,
    ViTForImageClassification,
    WhisperConfig,
    WhisperForConditionalGeneration,
)

DTYPE = torch.bfloat16
Batch = Mapping[str, Any]

LARGE: Mapping[str, Any] = {
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
}
TOKENS, SPOKEN = 128, 64


def bert() -> Any:
    return BertForSequenceClassification(BertConfig(**LARGE))


def text(count: int) -> Batch:
    return {"input_ids": torch.ones(count, TOKENS, dtype=torch.long)}


def vit() -> Any:
    return ViTForImageClassification(ViTConfig(**LARGE))


def pictures(count: int) -> Batch:
    return {"pixel_values": torch.ones(count, 3, 224, 224, dtype=DTYPE)}


def whisper() -> Any:
    layers, heads, inner = 32, 20, 5120
    return WhisperForConditionalGeneration(
        WhisperConfig(
            vocab_size=51866,
            num_mel_bins=128,
            d_model=1280,
            encoder_layers=layers,
            decoder_layers=layers,
            encoder_attention_heads=heads,
            decoder_attention_heads=heads,
            encoder_ffn_dim=inner,
            decoder_ffn_dim=inner,
        )
    )


def recordings(count: int) -> Batch:
    """Recordings of 30 s with their transcripts: one pass through encoder and decoder."""
    tokens = torch.ones(count, SPOKEN, dtype=torch.long)
    return {"input_features": torch.ones(count, 128, 3000, dtype=DTYPE), "decoder_input_ids": tokens}


def unet() -> Any:
    return UNet2DConditionModel(
        sample_size=128,
        block_out_channels=(320, 640, 1280),
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
        transformer_layers_per_block=(1, 2, 10),
        attention_head_dim=(5, 10, 20),
        cross_attention_dim=2048,
        addition_embed_type="text_time",
        addition_time_embed_dim=256,
        projection_class_embeddings_input_dim=2816,
        use_linear_projection=True,
    )


def latents(count: int) -> Batch:
    """Latents of images of 1024 x 1024 pixels, for one denoising step."""
    size = {"text_embeds": torch.ones(count, 1280, dtype=DTYPE), "time_ids": torch.ones(count, 6)}
    return {
        "sample": torch.ones(count, 4, 128, 128, dtype=DTYPE),
        "timestep": torch.ones(count),
        "encoder_hidden_states": torch.ones(count, 77, 2048, dtype=DTYPE),
        "added_cond_kwargs": size,
    }


SHAPES: Mapping[str, tuple[Callable[[], Any], Callable[[int], Batch], int]] = {
    "bert-large": (bert, text, 32),
    "vit-large": (vit, pictures, 32),
    "whisper-large": (whisper, recordings, 8),
    "sdxl-unet": (unet, latents, 4),
}
"""Constructor, function that makes the inputs of a batch, and items of a full batch, by model."""
